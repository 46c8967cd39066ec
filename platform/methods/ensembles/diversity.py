"""Single-model error against diversity, a point per ensemble. Shu 2022, Table 5.5 and Figure 5.4 (note E8)."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.ensembles.sampled_table import looks
from archray.platform.report.plot import INK, SURFACE, Size, plot
from archray.platform.report.quantity import Quantity, count, finite_values, whole_number
from archray.platform.report.section import Column, Section, figure, paragraphs, table
from archray.platform.report.view import RunView, failures, numbers

_ATE, _PPD, _TEST = Quantity("ATE", "%", 100.0, 2), Quantity("PPD", "%", 100.0, 2), Quantity.of("test_error")
_OTHERS = (
    ("nll", Quantity("NLL", "", 1.0, 3)),
    ("ece", Quantity("ECE", "%", 100.0, 2)),
)
_MARKERS = "oDs^vP"
_MEASURES = (
    "ATE is the average test error of an ensemble's members, PPD the share of test points on which two of them "
    "predict different classes, averaged over the pairs."
)


def diversity_section(view: RunView) -> Section | None:
    """Each method's ATE over its PPD, and the table of means. Nothing without an ensemble that has both."""
    frame = trained_ensembles(view)
    if frame.empty or not (frame["ate"].notna() & frame["ppd"].notna()).any():
        return None
    title, told = "Good members or different ones?", _table(view, frame)
    if len(frame) == 1:  # a point by itself shows nothing
        return Section("diversity", title, paragraphs([_MEASURES]) + told)
    styles = looks(frame["method"].unique())

    def draw(canvas: Figure, narrow: bool) -> None:
        axes = canvas.subplots()
        for place, (method, rows) in enumerate(frame.groupby("method", sort=False)):
            x, y = rows["ppd"] * _PPD.factor, rows["ate"] * _ATE.factor
            colour, marker = styles[str(method)][0], _MARKERS[place % len(_MARKERS)]
            axes.scatter(x, y, s=36, color=colour, marker=marker, alpha=0.45, linewidth=0)
            if not math.isfinite(x.mean() + y.mean()):
                continue
            axes.scatter(
                x.mean(), y.mean(), s=90, color=colour, marker=marker, edgecolor=SURFACE, zorder=3, label=str(method)
            )
            if len(rows) > 1:
                axes.errorbar(x.mean(), y.mean(), y.std(), x.std(), color=colour, linewidth=1.2, zorder=2)
        axes.margins(0.15)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("predictive disagreement, PPD (%)", color=INK)
        axes.set_ylabel("mean error of a member, ATE (%)" if not narrow else "ATE (%)")
        canvas.legend(loc="outside upper left", ncols=2 if narrow else 4, markerscale=0.8)

    drawing = plot(
        "diversity",
        draw,
        description=f"Mean error of a member against disagreement, of {count(frame['method'].nunique(), 'method')}.",
        wide=Size(760, 380),
        narrow=Size(350, 330 + 12 * frame["method"].nunique()),
    )
    return Section("diversity", title, figure(drawing, _caption(frame)) + told)


def trained_ensembles(view: RunView) -> pd.DataFrame:
    """The rows of `diversity` that did not fail, numbers as floats."""
    frame = view.diversity[failures(view.diversity).isna()]
    if frame.empty or "method" not in frame:
        return pd.DataFrame()
    names = ("members", "ate", "ppd", "test_error", *(name for name, _ in _OTHERS))
    return frame.assign(method=frame["method"].astype(str), **{name: numbers(frame, name) for name in names})


def _caption(frame: pd.DataFrame) -> str:
    text = f"{_MEASURES} Low and to the right is best: members that are good, and err in different places"
    several = bool((frame.groupby("method").size() > 1).any())
    text += ". Faint marks are repeats, bars one standard deviation." if several else "."
    return f"{text} As Table 5.5 and Figure 5.4 of Shu 2022."


def _table(view: RunView, frame: pd.DataFrame) -> str:
    several = bool((frame.groupby("method").size() > 1).any())
    others = [(name, quantity) for name, quantity in _OTHERS if frame[name].notna().any()]
    columns = [Column("Method"), Column("Members", "number")]
    columns += [Column("Repeats", "number")] if several else []
    shown = [("ate", _ATE), ("ppd", _PPD), ("test_error", _TEST), *others]
    columns += [Column(quantity.heading, "number") for _, quantity in shown]
    groups = [(str(method), rows) for method, rows in frame.groupby("method", sort=False)]
    rows = [
        (
            method,
            whole_number(np.median(told) if (told := finite_values(own["members"])).size else math.nan),
            *([len(own)] if several else []),
            *(quantity.spread(own[name]).removesuffix(f" {quantity.unit}") for name, quantity in shown),
        )
        for method, own in groups
    ]
    marked = next((place for place, (method, _) in enumerate(groups) if method == view.method), None)
    return table(columns, rows, label="Members and diversity by method", marked=marked)
