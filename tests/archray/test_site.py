"""The documentation site builds without a warning, loads nothing from other servers, and has a working search."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.ci]
LOADING_ATTRIBUTES = {
    "link": "href",
    "script": "src",
    "img": "src",
    "iframe": "src",
}  # elements that a browser loads with a page


class Fetched(HTMLParser):
    """Collects the resources that a page loads, and its links."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        place = dict(attrs).get(LOADING_ATTRIBUTES.get(tag, ""))
        if place is not None and dict(attrs).get("rel") not in ("canonical", "next", "prev"):
            self.places.append(place)


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site that CI has built (`ARCHRAY_SITE`), or a site built here as `make docs` builds it."""
    if "ARCHRAY_SITE" in os.environ:
        return Path(os.environ["ARCHRAY_SITE"])
    pytest.importorskip("mkdocs", reason="the site needs MkDocs: pip install '.[docs]'")
    pytest.importorskip("mkdocstrings", reason="the site needs mkdocstrings: pip install '.[docs]'")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    done = subprocess.run(
        command,
        cwd=request.getfixturevalue("checkout_copy"),  # it writes build/docs there
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_its_pages_load_nothing_from_other_servers(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        fetched = Fetched()
        fetched.feed(page.read_text(encoding="utf-8"))
        assert [place for place in fetched.places if re.match(r"(https?:)?//", place)] == [], page
    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?https?:", styles) == []


def test_its_search_finds_a_page(site: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium")
    from playwright.sync_api import sync_playwright

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            requests: list[str] = []
            page.on("request", lambda request: requests.append(request.url))
            page.goto(address + "index.html")
            page.locator("input.md-search__input").fill("mirror descent")
            found = page.locator(".md-search-result__item a").first
            found.wait_for(timeout=60_000)
            titles = page.locator(".md-search-result__item h1").all_inner_texts()
            browser.close()
    finally:
        server.shutdown()
    assert any("Supernets" in title for title in titles), titles
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []
