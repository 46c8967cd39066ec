"""Pages of the site from other folders of the repository, and links to them: CONTRIBUTING.md, the examples, ..."""

from __future__ import annotations

import posixpath
import re
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
