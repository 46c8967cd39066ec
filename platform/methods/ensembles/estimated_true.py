"""Do shared weights tell good ensembles from bad ones? Estimated against true error. Shu 2022, Table 5.6."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from archray.platform.report.plot import FOUND, SURFACE, TRIAL, Size, plot
from archray.platform.report.quantity import MISSING, signed, whole_number
from archray.platform.report.section import Column, Section, figure, paragraphs, table
from archray.platform.report.view import RunView, numbers
from archray.trainables.ensembles.estimates import agreement

_FEWEST = 3  # points: two always agree or disagree
_NOTE = (
    "Agreement-30% is the share of the truly best 30 % that are also among the best 30 % by estimate; estimates that "
    "know nothing reach the share by chance, which is not 30 % where 30 % are no whole number."
)


@dataclass(frozen=True)
class Agreement:
    """How estimates agree with the truth, of members or of the ensembles of one size.

    Args:
        kind: `members`, `ensembles`, or `ensembles of 3`.
        names, estimated, true: (n,) each; the errors are fractions.
        spearman, pearson: NaN of fewer than three points, or where one side is all equal.
        agreement, chance: Agreement-30%, and what it is on average for estimates that know nothing.
    """

    kind: str
    names: tuple[str, ...]
    estimated: np.ndarray
    true: np.ndarray
    spearman: float
    pearson: float
    agreement: float
    chance: float


def estimated_true_section(view: RunView) -> Section | None:
    """A panel per kind and size, and the table. Nothing for fewer than three points of all."""
    told = agreements(view.estimated_true)
    if not told:
        return None

    def draw(canvas: Figure, narrow: bool) -> None:
        columns = 1 if narrow else min(len(told), 3)
        grid = canvas.subplots(-(-len(told) // columns), columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(told):
                axes.set_visible(False)
                continue
            _draw_panel(axes, told[place], view.members)
        canvas.supxlabel("validation error with shared weights (%)", fontsize=12)
        canvas.supylabel("test error, trained (%)", fontsize=12)

    rows = -(-len(told) // 3)
    drawing = plot(
        "estimated-true",
        draw,
        description="Estimated against true error: "
        + ", ".join(f"{each.kind}, Spearman's rho {_words(each.spearman)}" for each in told)
        + ".",
        wide=Size(760, 50 + 260 * rows),
        narrow=Size(350, 40 + 240 * len(told)),
    )
    title = "Do shared weights tell good ensembles from bad ones?"
    body = figure(drawing, _caption(view, told)) + _table(told) + paragraphs([_NOTE])
    return Section("estimated-true", title, body)


def agreements(frame: pd.DataFrame) -> list[Agreement]:
    """Members first, then ensembles by size; only rows with both errors, and only three or more of a kind."""
    if "kind" not in frame:
        return []
    names = frame["name"].astype(str) if "name" in frame else ""
    known = frame.assign(name=names, **{name: numbers(frame, name) for name in ("estimated", "true", "size")})
    known = known[known["estimated"].notna() & known["true"].notna()]
    made = []
    for kind, size in [("member", None), ("ensemble", None), *_sizes(known)]:
        rows = known[known["kind"] == kind]
        if kind == "ensemble":
            rows = rows[rows["size"].isna()] if size is None else rows[rows["size"] == size]
        if len(rows) < _FEWEST:
            continue
        estimated, true = rows["estimated"].to_numpy(), rows["true"].to_numpy()
        told = agreement(estimated, true)
        made.append(
            Agreement(
                f"{kind}s" if size is None else f"ensembles of {size:.0f}",
                tuple(rows["name"]),
                estimated,
                true,
                told["spearman"],
                told["pearson"],
                told["agreement"],
                told["chance"],
            )
        )
    return made


def _sizes(told: pd.DataFrame) -> list[tuple[str, float]]:
    return [
        ("ensemble", float(size)) for size in sorted(told.loc[told["kind"] == "ensemble", "size"].dropna().unique())
    ]


def _draw_panel(axes: Axes, each: Agreement, members: Sequence[str]) -> None:
    x, y = 100 * each.estimated, 100 * each.true
    axes.scatter(x, y, s=30, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, alpha=0.8, clip_on=False, zorder=2)
    own = np.isin(each.names, members)
    axes.scatter(x[own], y[own], s=52, color=FOUND, edgecolor=SURFACE, linewidth=0.8, clip_on=False, zorder=3)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.margins(0.08)
    axes.set_title(f"{len(x)} {each.kind}\nρ = {_words(each.spearman)}")


def _words(value: float) -> str:
    return signed(f"{value:.2f}") if math.isfinite(value) else MISSING


def _caption(view: RunView, told: list[Agreement]) -> str:
    text = (
        "Each point is an architecture, or an ensemble: its validation error with the supernet's shared weights, by "
        "which ensembles are chosen, and its test error trained from scratch. ρ is Spearman's rank correlation."
    )
    if any(set(each.names) & set(view.members) for each in told):
        text += " Blue: the members of the found ensemble."
    if any(each.kind.startswith("ensembles") for each in told):
        text += " Ensembles of the same members are not independent of each other."
    lost = int((numbers(view.estimated_true, "estimated") + numbers(view.estimated_true, "true")).isna().sum())
    if lost:
        text += f" {lost} without both errors {'is' if lost == 1 else 'are'} left out."
    return f"{text} As Table 5.6 of Shu 2022."


def _table(told: list[Agreement]) -> str:
    columns = (
        Column("Of"),
        Column("Number", "number"),
        Column("Spearman", "number"),
        Column("Pearson", "number"),
        Column("Agreement-30% (%)", "number"),
        Column("By chance (%)", "number"),
    )
    rows = [
        (
            each.kind,
            whole_number(len(each.names)),
            _words(each.spearman),
            _words(each.pearson),
            *(f"{100 * part:.0f}" if math.isfinite(part) else MISSING for part in (each.agreement, each.chance)),
        )
        for each in told
    ]
    return table(columns, rows, label="Agreement of estimated and true errors")
