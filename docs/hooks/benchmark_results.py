"""Tables and charts of benchmark pages, from `benchmarks/results/NAME.csv`.

`<!-- results: NAME columns=method,test where=pool:0 sort=test labels=test:Accuracy_(%) -->` becomes a table, and
`<!-- chart: NAME kind=dots label=method value=test group=metric reference=94.36 xlabel=Accuracy_(%) -->` a figure. A
value is a column, or the stem of the columns STEM_mean, STEM_std, STEM_n (`mean` of the columns mean, std, n). An
underscore of a label is a space. `where` takes several values: `where=pool:0|1,metric:snip`.
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
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy import stats

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
HEADER = ("question", "command", "machine", "date", "commit")
MARKER = re.compile(r"^( *)<!-- (results|chart): (.+?) -->(?:\n *\*[^*\n]+\*$)?", re.MULTILINE)
COLUMN = re.compile(r"(?:(.+)_)?(mean|median|std|n|low|high|q25|q75|min|max)")
SPREADS = {
    ("mean", "std"): "95 % confidence interval of the mean",
    ("low", "high"): "95 % interval",
    ("q25", "q75"): "quartiles",
    ("min", "max"): "minimum and maximum",
}
OPTIONS = {
    "results": {"columns", "where", "sort", "labels"},
    "chart": {
        "kind",
        "label",
        "value",
        "group",
        "x",
        "reference",
        "xlabel",
        "ylabel",
        "log",
        "caption",
        "where",
        "sort",
    },
}
INK = "#010203"  # replaced by currentColor, so that a figure is readable in light and dark mode
COLORS = ("#1F85C9", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito, safe for color blindness
SHAPES = "os^Dv*P"
STYLE = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)


class Results(NamedTuple):
    """A file of results: its header, and its cells as text."""

    name: str
    header: dict[str, str]
    rows: pd.DataFrame


class Statistic(NamedTuple):
    """The value of a cell with its interval; NaN where the file has none."""

    value: float
    low: float
    high: float
    kind: str
    text: str  # the value as the file has it


def read_results(name: str) -> Results:
    """Reads a file.

    Raises: ValueError if the file or a key of its header is missing.
    """
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        expect(name, (file.stem for file in RESULTS.glob("*.csv")), "the name of a file in benchmarks/results")
    lines = [line[1:].partition(":") for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    header = {key.strip(): value.strip() for key, _, value in lines}
    for key in HEADER:
        expect(key, header, f"a line '# {key}: ...' in {path.name}")
    return Results(name, header, pd.read_csv(path, comment="#", dtype=str, keep_default_na=False))


def expect(value: str, choices: Iterable[str], what: str) -> None:
    """Raises: ValueError if `value` is not one of `choices`."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(f"Expected {what}, got {value!r}. Use one of: {', '.join(sorted(choices))}.")


def interval(mean: float, std: float, n: float) -> tuple[float, float]:
    """The 95 % confidence interval of the mean of n values: mean +- t(0.975, n - 1) std / sqrt(n)."""
    half = stats.t.ppf(0.975, n - 1) * std / math.sqrt(n)
    return mean - half, mean + half


def columns_of(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """The columns of each value: {"method": {}, "test": {"mean": "test_mean", "std": "test_std", "n": "test_n"}}."""
    parts: dict[str | None, dict[str, str]] = {}
    for column in rows:
        if match := COLUMN.fullmatch(column):
            parts.setdefault(match[1], {})[match[2]] = column
    complete = {prefix: p for prefix, p in parts.items() if any(set(pair) <= set(p) for pair in SPREADS)}
    values: dict[str, dict[str, str]] = {}
    for column in rows:
        match = COLUMN.fullmatch(column)
        if match is None or match[1] not in complete:
            values[column] = complete.get(column, {})
        elif match[2] == "n":
            values[column] = {}
        else:
            own = complete[match[1]]
            values[match[1] or ("median" if "median" in own else "mean")] = {"n": "n", **own}
    return values


def statistic(row: pd.Series, value: str, columns: dict[str, str]) -> Statistic:
    """The value of a row with its interval."""
    center = columns.get("mean") or columns.get("median") or value
    text = row.get(center, "")

    def number(column: str) -> float:
        cell = row.get(columns.get(column, ""), "")
        return float(cell) if cell else math.nan

    for (low, high), kind in SPREADS.items():
        if not {low, high} <= set(columns) or math.isnan(number(high)):
            continue
        if high != "std":
            return Statistic(float(text) if text else math.nan, number(low), number(high), kind, text)
        if number("n") > 1:
            return Statistic(float(text), *interval(float(text), number("std"), number("n")), kind, text)
    return Statistic(float(text) if text else math.nan, math.nan, math.nan, "", text)


def shown(number: float, like: str) -> str:
    """A number with as many decimals as the text `like` has, but at most four significant digits."""
    if "e" in like or math.isnan(number):
        return like if math.isnan(number) else f"{number:.2g}"
    digits = 3 - math.floor(math.log10(abs(number))) if number else 0
    places = max(0, min(len(like.partition(".")[2]), digits if "." in like and number else 9))
    return f"{number:,.{places}f}"


def cell_of(row: pd.Series, value: str, columns: dict[str, str]) -> str:
    """A cell of the table."""
    text = row.get(value, "")
    if not columns:
        plain = re.fullmatch(r"-?\d+(\.\d+)?", text)
        return shown(float(text), text) if plain else text.replace("|", "\\|")
    found = statistic(row, value, columns)
    if not found.kind:
        return shown(found.value, found.text) if found.text else ""
    like = found.text or max((row[c] for c in columns.values() if row.get(c)), key=len)
    ends = f"{shown(found.low, like)}, {shown(found.high, like)}"
    return f"{shown(found.value, like)} [{ends}]" if found.text else f"[{ends}]"


def select(rows: pd.DataFrame, options: dict[str, str], values: dict[str, dict[str, str]]) -> pd.DataFrame:
    """The rows of `where`, in the order of `sort` (`-` for the largest first)."""
    for condition in filter(None, options.get("where", "").split(",")):
        column, _, wanted = condition.partition(":")
        expect(column, rows.columns, "a column in where=")
        for one in wanted.split("|"):
            expect(one, rows[column], f"a value of {column} in where=")
        rows = rows[rows[column].isin(wanted.split("|"))]
    if "sort" in options:
        key = options["sort"].removeprefix("-")
        expect(key, values, "a column in sort=")
        order = [statistic(row, key, values[key]).value for _, row in rows.iterrows()]
        order = [-number for number in order] if options["sort"].startswith("-") else order
        rows = rows.iloc[np.argsort(order, kind="stable")]
    return rows


def results_table(results: Results, options: dict[str, str]) -> str:
    """The table in Markdown, and a line with its origin."""
    values = columns_of(results.rows)
    rows = select(results.rows, options, values)
    counts = [column for column in rows if re.fullmatch(r"(.+_)?n", column) and rows[column].nunique() == 1]
    names = options["columns"].split(",") if "columns" in options else [name for name in values if name not in counts]
    labels = dict(pair.partition(":")[::2] for pair in filter(None, options.get("labels", "").split(",")))
    for name in (*names, *labels):
        expect(name, values, f"a column of {results.name}.csv")
    heads = [labels.get(name, name).replace("_", " ") for name in names]
    lines = [heads, ["---"] * len(names)]
    lines += [[cell_of(row, name, values[name]) for name in names] for _, row in rows.iterrows()]
    kinds = {statistic(row, name, values[name]).kind: 0 for name in names for _, row in rows.iterrows() if values[name]}
    notes = [f"Brackets: {' or '.join(filter(None, kinds))}"] if any(kinds) else []
    notes += [f"n = {rows[column].iloc[0]}" for column in counts[:1] if notes and len(counts) == 1]
    head = {key: html.escape(text) for key, text in results.header.items()}
    origin = f"{head['machine']}; {head['date']}, commit {head['commit']}; <code>{head['command']}</code>"
    origin = f"{', '.join(notes)}. {origin}" if notes else origin
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n<small>{origin}</small>"


def draw(results: Results, options: dict[str, str]) -> Figure:
    """The figure of a chart: dots (a row per label) or lines (over x), with intervals, a color per group."""
    values = columns_of(results.rows)
    rows = select(results.rows, options, values)
    kind, value, group = options.get("kind", "dots"), options.get("value", "mean"), options.get("group")
    expect(kind, ("dots", "lines"), "kind=dots or kind=lines")
    across = options.get("label" if kind == "dots" else "x", "")
    for column in (across, value, *([group] if group else [])):
        expect(column, values, f"a column of {results.name}.csv")
    groups = list(dict.fromkeys(rows[group])) if group else [""]
    labels = list(dict.fromkeys(rows[across]))
    height = 0.7 + len(labels) * (0.16 + 0.13 * len(groups)) if kind == "dots" else 3.4
    figure = Figure(figsize=(6.5, height + 0.25 * math.ceil(len(groups) / 3) * bool(group)), layout="constrained")
    axes = figure.add_subplot()
    for at, name in enumerate(groups):
        part = rows[rows[group] == name] if group else rows
        found = [statistic(row, value, values[value]) for _, row in part.iterrows()]
        center = np.array([one.value for one in found])
        ends = np.array([(one.low, one.high) for one in found]).reshape(-1, 2)
        style = {"color": COLORS[at % len(COLORS)], "marker": SHAPES[at % len(SHAPES)], "label": name, "markersize": 5}
        if kind == "dots":
            place = np.array([labels.index(label) for label in part[across]]) + 0.7 * ((at + 0.5) / len(groups) - 0.5)
            axes.hlines(place, ends[:, 0], ends[:, 1], color=style["color"], linewidth=1.5)
            axes.plot(center, place, linestyle="none", **style)
        else:
            place = part[across].astype(float).to_numpy()
            axes.vlines(place, ends[:, 0], ends[:, 1], color=style["color"], linewidth=1.5)
            axes.plot(place, center, linewidth=1.5, **style)
    for axis in options.get("log", ""):
        getattr(axes, f"set_{axis}scale")("log")
        scale = getattr(axes, f"{axis}axis")
        scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
        scale.set_minor_formatter(NullFormatter())
        scale.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,g}" if tick < 10**6 else f"{tick:g}"))
    if "reference" in options:
        (axes.axvline if kind == "dots" else axes.axhline)(
            float(options["reference"]), color=INK, linewidth=0.8, ls="--"
        )
    if kind == "dots":
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
    axes.grid(axis="x" if kind == "dots" else "y", color=INK, alpha=0.15, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    default = ("", value) if kind == "lines" else (value, "")
    axes.set_xlabel(options.get("xlabel", default[0] or across if kind == "lines" else value).replace("_", " "))
    axes.set_ylabel(options.get("ylabel", default[1]).replace("_", " "))
    if group:
        figure.legend(loc="outside upper left", ncols=3, frameon=False)
    return figure


def chart(results: Results, options: dict[str, str]) -> str:
    """The chart as inline SVG, in the page's color and font."""
    salt = "c" + hashlib.sha256(f"{results.name} {sorted(options.items())}".encode()).hexdigest()[:10]
    with mpl.rc_context({**STYLE, "svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9}):
        file = io.StringIO()
        draw(results, options).savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"^.*?<svg ", "", file.getvalue(), flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{salt}-", svg).replace(INK, "currentColor")
    svg = re.sub(r"\bfont-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r'\b(width|height)="[\d.]+pt" ', "", svg, count=2)
    svg = re.sub(r"\s*\n\s*", " ", svg).strip()  # one line, so that it can be indented
    caption = html.escape(options.get("caption", ""))
    label = caption or html.escape(results.header["question"])
    note = f"<figcaption>{caption}</figcaption>" if caption else ""
    style = "width:6.5in;max-width:100%;height:auto"
    return f'<figure><svg role="img" aria-label="{label}" style="{style}" {svg}{note}</figure>'


def replace(marker: re.Match[str]) -> str:
    """The table or chart of a marker, with the marker's indent."""
    name, *words = shlex.split(marker[3])
    options = dict(word.partition("=")[::2] for word in words)
    for option in options:
        expect(option, OPTIONS[marker[2]], f"an option of {marker[2]}")
    text = (results_table if marker[2] == "results" else chart)(read_results(name), options)
    return "\n".join(marker[1] + line if line else "" for line in text.split("\n"))


def on_page_markdown(markdown: str, **options: Any) -> str:
    """Puts the tables and charts into a page."""
    return MARKER.sub(replace, markdown)
