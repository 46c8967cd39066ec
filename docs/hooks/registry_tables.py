"""Tables in pages of the site, from the registries: `<!-- table: NAME -->` becomes the table NAME of TABLES."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout that is not installed has its docs too

from archray.trainables.proxies import PROXIES

MARKER = re.compile(r"^<!-- table: (\w+) -->$", re.MULTILINE)


def proxies() -> str:
    """A row for each training-free metric."""
    rows = ["| metric | description | better | reads | source |", "|---|---|---|---|---|"]
    for metric in map(PROXIES.get, PROXIES):
        better = "larger" if metric.direction == "max" else "smaller"
        rows.append(f"| `{metric.name}` | {metric.summary} | {better} | {metric.reads} | {metric.source} |")
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {"proxies": proxies}


def on_page_markdown(markdown: str, **options: Any) -> str:
    """Puts the tables into a page. Raises: KeyError for a table that is not in TABLES."""
    return MARKER.sub(lambda marker: TABLES[marker[1]](), markdown)
