"""Writes the generated tables and charts into the pages (`make docs-tables`).

The lines between `<!-- table: NAME -->`, `<!-- results: NAME ... -->` or `<!-- chart: NAME ... -->` and `<!-- end -->`
are generated: a table from a registry (registry_tables.py), or a table or chart of a file in benchmarks/results
(benchmark_results.py). Charts are SVG files in docs/images/charts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmark_results import chart_of, options_of, results_of
from registry_tables import TABLES, with_citations

DOCS = Path(__file__).resolve().parents[1]
CHARTS = DOCS / "images" / "charts"
PART = re.compile(
    r"^<!-- (table|results|chart): (.+?) -->\n(?:(?!<!-- (?:table|results|chart):).*\n)*?<!-- end -->$", re.M
)
MARKER = re.compile(r"^ *<!-- (table|results|chart): ", re.M)


class Chart(NamedTuple):
    """A chart of a page: the digest of its data and options, and a function that draws it as SVG."""

    digest: str
    svg: Callable[[], str]


def generated(page: Path) -> tuple[str, dict[str, Chart]]:
    """Returns the text of a page with current tables, and its charts by the names of their files.

    Raises: ValueError for a marker without `<!-- end -->`, an unknown name, or an unknown option.
    """
    text = page.read_text(encoding="utf-8")
    charts: dict[str, Chart] = {}
    names: Counter[str] = Counter()

    def part(marker: re.Match[str]) -> str:
        kind, words = marker[1], marker[2]
        if kind == "table":
            if words not in TABLES:
                raise ValueError(f"Expected one of {', '.join(TABLES)}, got {words!r} in {page}. Use one of them.")
            content = TABLES[words]()
        else:
            name, options = options_of(kind, words)
            if kind == "results":
                content = results_of(name, options)
            else:
                names[name] += 1
                file = f"{page.stem}-{name}{f'-{names[name]}' * (names[name] > 1)}.svg"
                caption, *chart = chart_of(name, options)
                charts[file] = Chart(*chart)
                folder = "../" * (len(page.relative_to(DOCS).parts) - 1) + CHARTS.relative_to(DOCS).as_posix()
                content = f"![{caption}]({folder}/{file})\n\n*{caption}*"
        return f"<!-- {kind}: {words} -->\n\n{content}\n\n<!-- end -->"

    text, number = PART.subn(part, text)
    if number != (markers := len(MARKER.findall(text))):
        raise ValueError(f"Expected {markers} generated parts in {page}, got {number}. End each with <!-- end -->.")
    return with_citations(text), charts


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def write() -> None:
    """Rewrites all pages, and the charts whose data or options have changed; deletes other charts."""
    CHARTS.mkdir(exist_ok=True)
    current = set()
    for page in pages():
        text, charts = generated(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
        for name, chart in charts.items():
            file = CHARTS / name
            current.add(file)
            if not file.exists() or chart.digest not in file.read_text(encoding="utf-8"):
                file.write_text(chart.svg(), encoding="utf-8")
    for file in set(CHARTS.glob("*.svg")) - current:
        file.unlink()


if __name__ == "__main__":
    write()
