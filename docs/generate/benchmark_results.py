"""Tables and charts of pages, from `benchmarks/results/NAME.csv`.

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
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy import stats

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
HEADER = ("question", "command", "machine", "date", "commit")
PART = re.compile(r"(?:(.+)_)?(mean|median|std|n|low|high|q05|q25|q75|q95|min|max)")
SPREADS = {
    ("mean", "std"): "95 % confidence interval of the mean",
    ("low", "high"): "95 % interval",
    ("q05", "q95"): "5th and 95th percentile",
    ("q25", "q75"): "quartiles",
    ("min", "max"): "minimum and maximum",
}
CHART = ("kind", "label", "value", "group", "x", "reference", "xlabel", "ylabel", "log", "caption", "where", "sort")
OPTIONS = {"results": ("columns", "where", "sort", "labels"), "chart": CHART}
INK = "#222222"
COLORS = ("#1F85C9", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A")  # after Okabe and Ito
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
        if row.get(first) and row.get(second) and (second != "std" or float(row.get("n") or 0) > 1):
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
    names = [cell.text for cell in cells[group]] if group else [""] * len(cells)
    groups = list(dict.fromkeys(names))
    places, ticks, size = rows_of([cell.text for cell in cells[across]], names) if dots else ([], {}, 2.7)
    height = 0.7 + size + bool(group) * (0.2 + 0.2 * math.ceil(len(groups) / 3))
    figure = Figure(figsize=(6.5, height), layout="constrained")
    axes = figure.add_subplot()
    for at, name in enumerate(groups):
        kept = [one == name for one in names]
        part = cells[kept]
        center, low, high = (np.array([getattr(cell, end) for cell in part[value]]) for end in ("value", "low", "high"))
        color = COLORS[at % len(COLORS)]
        style = {"color": color, "marker": SHAPES[at % len(SHAPES)], "label": name, "markersize": 5, "linewidth": 1.5}
        if dots:
            place = np.array(places)[kept]
            axes.hlines(place, low, high, color=color, linewidth=1.5)
            axes.plot(center, place, **style | {"linestyle": "none"})
        else:
            place = np.array([cell.value for cell in part[across]])
            axes.vlines(place, low, high, color=color, linewidth=1.5)
            axes.plot(place, center, **style)
    for axis in options.get("log", ""):
        expect(axis, "xy", "log=x, log=y or log=xy")
        getattr(axes, f"set_{axis}scale")("log")
        plain_numbers(getattr(axes, f"{axis}axis"))
    if "reference" in options:
        (axes.axvline if dots else axes.axhline)(float(options["reference"]), color=INK, linewidth=0.8, ls="--")
    if dots:
        axes.set_yticks(list(ticks.values()), list(ticks))
        axes.set_ylim(size, 0)
        axes.tick_params(axis="y", length=0)
    axes.grid(axis="x" if dots else "y", color=INK, alpha=0.15, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(options.get("xlabel", value if dots else across).replace("_", " "))
    axes.set_ylabel(options.get("ylabel", "" if dots else value).replace("_", " "))
    if group:
        figure.legend(loc="outside upper left", ncols=3, frameon=False, title=group.replace("_", " "), alignment="left")
    return figure


def rows_of(labels: list[str], groups: list[str]) -> tuple[list[float], dict[str, float], float]:
    """The height of each dot, of each label, and of the axes, in inches: a label takes the room of its groups."""
    order = {name: at for at, name in enumerate(dict.fromkeys(groups))}
    places, ticks, top = [0.0] * len(labels), {}, 0.0
    for label in dict.fromkeys(labels):
        rows = sorted((row for row, one in enumerate(labels) if one == label), key=lambda row: order[groups[row]])
        for at, row in enumerate(rows):
            places[row] = top + 0.2 + 0.14 * at
        ticks[label] = top + 0.2 + 0.07 * (len(rows) - 1)
        top += 0.14 + 0.14 * len(rows)
    return places, ticks, top + 0.12


def plain_numbers(axis: Axis) -> None:
    """Puts plain numbers on a logarithmic axis: at 1, 2 and 5 of each decade, or at 1 only if there are several."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def options_of(kind: str, words: str) -> tuple[str, dict[str, str]]:
    """Returns the name of a file of results, and the options of a marker. Raises: ValueError for an unknown option."""
    lexer = shlex.shlex(words, posix=True)
    lexer.whitespace_split, lexer.quotes, lexer.commenters = True, '"', ""
    name, *pairs = lexer
    options = dict(pair.partition("=")[::2] for pair in pairs)
    for option in options:
        expect(option, OPTIONS[kind], f"an option of {kind}")
    return name, options


def results_of(name: str, options: dict[str, str]) -> str:
    """Returns the table of a file in Markdown. Raises: ValueError for an unknown file, column or option."""
    header, cells = read_results(name)
    return table(header, select(cells, options), options)


def chart_of(name: str, options: dict[str, str]) -> tuple[str, str, Callable[[], str]]:
    """Returns the caption of a chart, a digest of its data and options, and the function that draws it as SVG.

    Raises: ValueError as `results_of`.
    """
    header, cells = read_results(name)
    cells = select(cells, options)
    digest = hashlib.sha256(f"{header['question']} {cells.to_json()} {sorted(options.items())}".encode()).hexdigest()
    return options.get("caption") or header["question"], digest, partial(_svg, cells, options, digest)


def _svg(cells: pd.DataFrame, options: dict[str, str], digest: str) -> str:
    """The chart as an SVG file, with the digest of its data in its metadata; white, so that any background is fine."""
    style = {**STYLE, "svg.fonttype": "none", "svg.hashsalt": digest, "font.size": 9, "font.family": "sans-serif"}
    with mpl.rc_context(style | {"font.sans-serif": ["Arial", "Helvetica", "DejaVu Sans"]}):
        file = io.StringIO()
        draw(cells, options).savefig(file, format="svg", facecolor="white", metadata={"Date": None, "Title": digest})
    return re.sub(r"\s*\n\s*", " ", re.sub(r"<!--.*?-->", "", file.getvalue())).strip() + "\n"
