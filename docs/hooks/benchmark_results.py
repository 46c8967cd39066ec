"""Tables and charts of benchmark pages, from `benchmarks/results/NAME.csv`.

`<!-- results: NAME columns=method,test where=pool:0 sort=test labels=test:Accuracy_(%) -->` becomes a table, and
`<!-- chart: NAME kind=dots label=method value=test group=metric reference=94.36 xlabel=Accuracy_(%) -->` a figure. A
value is a column, or the stem of the columns STEM_mean, STEM_std, STEM_n (`mean` of the columns mean, std, n). An
underscore of a label is a space. `sort=-test` starts with the largest. `where=pool:0|1,metric:snip` has several values
(write numbers and texts without commas).
"""

from __future__ import annotations

import hashlib
import html
import io
import math
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy import stats

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
HEADER = ("question", "command", "machine", "date", "commit")
MARKER = re.compile(r"^( *)<!-- (results|chart): (.+?) -->(?:\n *\*[^*\n]+\*$)?", re.MULTILINE)
PART = re.compile(r"(?:(.+)_)?(mean|median|std|n|low|high|q25|q75|min|max)")
SPREADS = {
    ("mean", "std"): "95 % confidence interval of the mean",
    ("low", "high"): "95 % interval",
    ("q25", "q75"): "quartiles",
    ("min", "max"): "minimum and maximum",
}
CHART = ("kind", "label", "value", "group", "x", "reference", "xlabel", "ylabel", "log", "caption", "where", "sort")
OPTIONS = {"results": ("columns", "where", "sort", "labels"), "chart": CHART}
INK = "#010203"  # replaced by currentColor, so that a figure is readable in light and dark mode
COLORS = ("#1F85C9", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # after Okabe and Ito
SHAPES = "os^Dv*P"
STYLE = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)


class Cell(NamedTuple):
    """A cell as the table shows it, its number, and the interval around it; NaN where there is none."""

    text: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    kind: str = ""


def expect(value: str, choices: Iterable[str], what: str) -> None:
    """Raises: ValueError if `value` is not one of `choices`."""
    choices = sorted(choices)
    if value not in choices:
        raise ValueError(f"Expected {what}, got {value!r}. Use one of: {', '.join(choices)}.")


def interval(mean: float, std: float, n: float) -> tuple[float, float]:
    """The 95 % confidence interval of the mean of n values: mean +- t(0.975, n - 1) std / sqrt(n)."""
    half = stats.t.ppf(0.975, n - 1) * std / math.sqrt(n)
    return mean - half, mean + half


def shown(number: float, like: str) -> str:
    """A number with as many decimals as the text `like` has, but at most four significant digits."""
    if "e" in like:
        return f"{number:.2g}"
    digits = 3 - math.floor(math.log10(abs(number))) if number else 9
    return f"{number:,.{max(0, min(len(like.partition('.')[2]), digits))}f}"


def cell_of(row: dict[str, str]) -> Cell:
    """The cell of the parts of a value, for example its mean, std and n."""
    text = row.get("mean") or row.get("median") or ""
    if not re.fullmatch(r"(-?\d+(\.\d+)?(e-?\d+)?)?", text):
        return Cell(text.replace("|", "\\|"))
    value = float(text) if text else math.nan
    for (first, second), kind in SPREADS.items():
        if row.get(first) and row.get(second) and (second != "std" or float(row["n"]) > 1):
            low, high = float(row[first]), float(row[second])
            low, high = interval(low, high, float(row["n"])) if second == "std" else (low, high)
            like = text or max(row[first], row[second], key=len)
            ends = f"[{shown(low, like)}, {shown(high, like)}]"
            return Cell(f"{shown(value, text)} {ends}" if text else ends, value, low, high, kind)
    return Cell(shown(value, text) if text else "", value)


def cells_of(rows: pd.DataFrame) -> pd.DataFrame:
    """The cells of a file: one column for all parts of a value."""
    parts: dict[str, dict[str, str]] = {}
    for column in rows:
        if match := PART.fullmatch(column):
            parts.setdefault(match[1] or "", {})[match[2]] = column
    parts = {stem: own for stem, own in parts.items() if any(own.keys() >= set(pair) for pair in SPREADS)}
    cells: dict[str, list[Cell]] = {}
    for column in rows:
        match = PART.fullmatch(column)
        stem = (match[1] or "") if match else column
        own, name = {"mean": column}, column
        if stem in parts and not (match and match[2] == "n"):
            shared = {part: c for part, c in (("n", "n"), ("mean", stem)) if c in rows}
            own = {**shared, **parts[stem]}
            name = stem or ("median" if "median" in own else "mean")
        cells[name] = [cell_of({part: row[c] for part, c in own.items()}) for row in rows.to_dict("records")]
    return pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in cells.items()})


def read_results(name: str) -> tuple[dict[str, str], pd.DataFrame]:
    """Reads the header and the cells of a file.

    Raises: ValueError if the file or a key of its header is missing.
    """
    path = RESULTS / f"{name}.csv"
    expect(name, (file.stem for file in RESULTS.glob("*.csv")), "the name of a file in benchmarks/results")
    lines = [line[1:].partition(":") for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    header = {key.strip(): value.strip() for key, _, value in lines}
    for key in HEADER:
        expect(key, header, f"a line '# {key}: ...' in {path.name}")
    return header, cells_of(pd.read_csv(path, comment="#", dtype=str, keep_default_na=False))


def select(cells: pd.DataFrame, options: dict[str, str]) -> pd.DataFrame:
    """The rows of `where`, in the order of `sort`."""
    for condition in filter(None, options.get("where", "").split(",")):
        column, _, wanted = condition.partition(":")
        expect(column, cells, "a column in where=")
        texts = [cell.text.replace(",", "") for cell in cells[column]]
        for one in wanted.split("|"):
            expect(one, texts, f"a value of {column} in where=")
        cells = cells[[text in wanted.split("|") for text in texts]]
    if "sort" in options:
        key = options["sort"].removeprefix("-")
        expect(key, cells, "a column in sort=")
        sign = -1 if options["sort"].startswith("-") else 1
        cells = cells.iloc[np.argsort([sign * cell.value for cell in cells[key]], kind="stable")]
    return cells


def table(header: dict[str, str], cells: pd.DataFrame, options: dict[str, str]) -> str:
    """The table in Markdown, and a line with its origin."""
    counts = {column: {cell.text for cell in cells[column]} for column in cells if re.fullmatch("(.+_)?n", column)}
    same = set().union(*counts.values())
    hidden = counts if len(same) == 1 else {}
    names = options["columns"].split(",") if "columns" in options else [name for name in cells if name not in hidden]
    labels = dict(pair.partition(":")[::2] for pair in filter(None, options.get("labels", "").split(",")))
    for name in (*names, *labels):
        expect(name, cells, "a column of the results")
    lines = [[labels.get(name, name).replace("_", " ") for name in names], ["---"] * len(names)]
    lines += [[cell.text for cell in row] for row in cells[names].itertuples(index=False)]
    kinds = {cell.kind: 0 for name in names for cell in cells[name] if cell.kind}
    notes = [f"Brackets: {' or '.join(kinds)}"] if kinds else []
    notes += [f"n = {min(same)}"] if hidden else []
    head = {key: html.escape(text) for key, text in header.items()}
    origin = f"{head['machine']}; {head['date']}, commit {head['commit']}; <code>{head['command']}</code>"
    small = f"{', '.join(notes)}. {origin}" if notes else origin
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n<small>{small}</small>"


def draw(cells: pd.DataFrame, options: dict[str, str]) -> Figure:
    """The figure of a chart: dots (a row per label) or lines (over x), with intervals and a color per group."""
    kind, value = options.get("kind", "dots"), options.get("value", "mean")
    expect(kind, ("dots", "lines"), "kind=dots or kind=lines")
    dots, across, group = kind == "dots", options.get("label" if kind == "dots" else "x", ""), options.get("group")
    for column in (across, value, *([group] if group else [])):
        expect(column, cells, "a column of the results")
    labels = list(dict.fromkeys(cell.text for cell in cells[across]))
    names = [cell.text for cell in cells[group]] if group else [""] * len(cells)
    groups = list(dict.fromkeys(names))
    height = (0.7 + len(labels) * (0.16 + 0.13 * len(groups)) if dots else 3.4) + 0.25 * math.ceil(
        len(groups) / 3
    ) * bool(group)
    figure = Figure(figsize=(6.5, height), layout="constrained")
    axes = figure.add_subplot()
    for at, name in enumerate(groups):
        part = cells[[one == name for one in names]]
        center, low, high = (np.array([getattr(cell, end) for cell in part[value]]) for end in ("value", "low", "high"))
        color = COLORS[at % len(COLORS)]
        style = {"color": color, "marker": SHAPES[at % len(SHAPES)], "label": name, "markersize": 5, "linewidth": 1.5}
        if dots:
            place = [labels.index(cell.text) + 0.7 * ((at + 0.5) / len(groups) - 0.5) for cell in part[across]]
            axes.hlines(place, low, high, color=color, linewidth=1.5)
            axes.plot(center, place, **style | {"linestyle": "none"})
        else:
            place = [cell.value for cell in part[across]]
            axes.vlines(place, low, high, color=color, linewidth=1.5)
            axes.plot(place, center, **style)
    for axis in options.get("log", ""):
        getattr(axes, f"set_{axis}scale")("log")
        plain_numbers(getattr(axes, f"{axis}axis"))
    if "reference" in options:
        (axes.axvline if dots else axes.axhline)(float(options["reference"]), color=INK, linewidth=0.8, ls="--")
    if dots:
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
    axes.grid(axis="x" if dots else "y", color=INK, alpha=0.15, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(options.get("xlabel", value if dots else across).replace("_", " "))
    axes.set_ylabel(options.get("ylabel", "" if dots else value).replace("_", " "))
    if group:
        figure.legend(loc="outside upper left", ncols=3, frameon=False)
    return figure


def plain_numbers(axis: Axis) -> None:
    """Puts plain numbers at 1, 2 and 5 of a logarithmic axis."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def chart(header: dict[str, str], cells: pd.DataFrame, options: dict[str, str]) -> str:
    """The chart as inline SVG of one line, in the page's color and font."""
    salt = "c" + hashlib.sha256(f"{header} {sorted(options.items())}".encode()).hexdigest()[:10]
    with mpl.rc_context({**STYLE, "svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9}):
        file = io.StringIO()
        draw(cells, options).savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"^.*?<svg ", "", file.getvalue(), flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{salt}-", svg).replace(INK, "currentColor")
    svg = re.sub(r"\bfont-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r'\b(width|height)="[\d.]+pt" ', "", svg, count=2)
    svg = re.sub(r"\s*\n\s*", " ", svg).strip()
    caption = html.escape(options.get("caption", ""))
    label = caption or html.escape(header["question"])
    note = f"<figcaption>{caption}</figcaption>" if caption else ""
    style = "width:6.5in;max-width:100%;height:auto"
    return f'<figure><svg role="img" aria-label="{label}" style="{style}" {svg}{note}</figure>'


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Puts the tables and charts into a page, with the indent of their markers.

    Raises: ValueError for an unknown file, column or option.
    """

    def replace(marker: re.Match[str]) -> str:
        name, *words = shlex.split(marker[3])
        options = dict(word.partition("=")[::2] for word in words)
        for option in options:
            expect(option, OPTIONS[marker[2]], f"an option of {marker[2]}")
        header, cells = read_results(name)
        text = (table if marker[2] == "results" else chart)(header, select(cells, options), options)
        return "\n".join(marker[1] + line if line else "" for line in text.split("\n"))

    return MARKER.sub(replace, markdown)
