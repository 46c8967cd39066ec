"""Pages of the site from other folders of the repository, and links to them: CONTRIBUTING.md, the examples, ...

It also fills in the navigation: an entry such as `benchmarks/*.md` becomes the pages of a folder.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).resolve().parents[2]
# A file of the repository -> its page.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
} | {f"examples/{file.name}": f"examples/{file.stem}.md" for file in sorted((REPOSITORY / "examples").glob("*.py"))}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def on_config(config: Any) -> None:
    """Replaces entries with a `*` by the pages that the navigation does not name, in the order of their headings."""
    docs = REPOSITORY / "docs"
    headings = {page.relative_to(docs).as_posix(): heading_of(page) for page in docs.rglob("*.md")}
    headings |= {page: page for page in PAGES.values() if page.startswith("examples/")}
    named = set(pages_of(config["nav"]))
    fill(config["nav"], {page: heading for page, heading in headings.items() if page not in named})


def heading_of(page: Path) -> str:
    """The first heading of a page; its name without one."""
    heading = HEADING.search(page.read_text(encoding="utf-8"))
    return heading[1] if heading else page.name


def pages_of(entries: list[Any]) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from pages_of(value) if isinstance(value, list) else [value]


def fill(entries: list[Any], headings: dict[str, str]) -> None:
    """Replaces the entries with a `*` in a part of the navigation. `headings` has the other pages."""
    for entry in list(entries):
        if isinstance(entry, str) and "*" in entry:
            at = entries.index(entry)
            pages = [page for page in headings if fnmatch(page, entry)]
            entries[at : at + 1] = sorted(pages, key=headings.__getitem__)
        elif isinstance(entry, dict):
            for value in entry.values():
                if isinstance(value, list):
                    fill(value, headings)


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages. The page of an example shows its source."""
    for source, page in PAGES.items():
        if page == "index.md":
            continue  # the site has its own
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        if source.endswith(".py"):
            text = (
                f'---\nsearch:\n  boost: 0.5\n---\n\n# {Path(source).name}\n\n```python title="{source}"\n{text}```\n'
            )
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Changes links between files of the repository, which GitHub follows, into links between pages."""
    uri = page.file.src_uri
    source = next((s for s, p in PAGES.items() if p == uri and p != "index.md"), f"docs/{uri}")

    def lead(link: re.Match[str]) -> str:
        opening, target, anchor, closing = link.groups(default="")
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        to = PAGES.get(place, place.removeprefix("docs/") if place.startswith("docs/") else None)
        if to is None:
            return link[0]  # MkDocs reports it
        return f"{opening}{posixpath.relpath(to, posixpath.dirname(uri) or '.')}{anchor}{closing}"

    return LINK.sub(lead, markdown)
