"""Tables in pages of the site, from the registries: `<!-- table: NAME -->` becomes the table NAME of TABLES."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a checkout that is not installed has its docs too

from archray.platform.plots import FIGURES, figure_of, methods_of
from archray.trainables.proxies import PROXIES

MARKER = re.compile(r"^<!-- table: (\w+) -->$", re.MULTILINE)


def proxies() -> str:
    """A row for each training-free metric."""
    rows = ["| metric | description | better | reads | source |", "|---|---|---|---|---|"]
    for metric in map(PROXIES.get, PROXIES):
        better = "larger" if metric.direction == "max" else "smaller"
        rows.append(f"| `{metric.name}` | {metric.summary} | {better} | {metric.reads} | {metric.source} |")
    return "\n".join(rows)


def figures() -> str:
    """A row for each figure of `archray.plots`: the first paragraph of its docstring, and what it is drawn from."""
    rows = ["| function | what it shows | drawn from |", "|---|---|---|"]
    for name in FIGURES:
        summary = " ".join((figure_of(name).__doc__ or "").split("\n\n")[0].split())
        methods = [f"`{method}`" for method in methods_of(name)]
        several = {"summaries": "several runs", "progress": "several runs of feature maps", "bench": "a bench"}
        places = several.get(FIGURES[name][0]) or (", ".join(methods) if methods else "every run")
        rows.append(f"| `{name}` | {summary} | {places} |")
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {"proxies": proxies, "figures": figures}


def on_page_markdown(markdown: str, **options: Any) -> str:
    """Puts the tables into a page. Raises: KeyError for a table that is not in TABLES."""
    return MARKER.sub(lambda marker: TABLES[marker[1]](), markdown)
