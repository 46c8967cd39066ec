"""Do shared weights tell good ensembles from bad ones? Estimated against true error. Shu 2022, Table 5.6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.ensembles.ensemble_tables import estimates, found_members
from archray.platform.report.columns import numbers
from archray.platform.report.figures import FOUND, SURFACE, TRIAL, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.quantity import Quantity, count, whole_number
from archray.platform.report.section import Section, captioned, numeric, paragraphs, table
from archray.platform.run.run import Run
from archray.trainables.ensembles.measures import agreement

_RHO = Quantity("rank correlation", "", 1.0, 2)
_SHARE = Quantity("share", "%", 100.0, 0)
_FEWEST = 3  # points: two always agree or disagree
_NOTE = (
    "Agreement-30% is the share of the truly best 30 % that are also among the best 30 % by estimate; estimates that "
    "know nothing reach the share by chance, which is not 30 % where 30 % are no whole number."
)


@dataclass(frozen=True)
class Agreement:
    """How estimates agree with the truth.

    Args:
        names, estimated, true: (n,) each; the errors are fractions.
        spearman, pearson: NaN of fewer than three points, or where one side is all equal.
        agreement, chance: Agreement-30%, and what it is on average for estimates that know nothing.
    """

    names: tuple[str, ...]
    estimated: np.ndarray
    true: np.ndarray
    spearman: float
    pearson: float
    agreement: float
    chance: float


@figure(height=320)
def estimated_against_true(run: Run[Any], canvas: Figure) -> None:
    """The validation error of each member with shared weights, against its test error trained from scratch."""
    axes = canvas.subplots()
    _draw(axes, member_agreement(run.best), found_members(run.best))
    axes.set(xlabel="validation error with shared weights (%)", ylabel="test error, trained (%)")


def estimated_true_section(run: Run[Any]) -> Section:
    """Estimated against true errors, and how they agree. Fewer than three members that have both are none."""
    members = member_agreement(run.best)
    content = drawing(
        "estimated-true",
        estimated_against_true(run),
        description=f"Estimated against true error: members, Spearman's rho {_RHO.bare(members.spearman)}.",
    )
    title = "Do shared weights tell good ensembles from bad ones?"
    body = captioned(content, _caption(run.best)) + _table(members) + paragraphs([_NOTE])
    return Section("estimated-true", title, body)


def member_agreement(run: Run[Any]) -> Agreement:
    """Of the members with both errors. Raises: NothingToDraw for fewer than three."""
    rows = estimates(run)
    if len(rows):
        rows = rows[rows["estimated"].notna() & rows["true"].notna()]
    if len(rows) < _FEWEST:
        raise NothingToDraw(f"this run has fewer than {_FEWEST} members with errors by shared weights and by training")
    estimated, true = rows["estimated"].to_numpy(float), rows["true"].to_numpy(float)
    measures = agreement(estimated, true)
    values = (float(measures[name]) for name in ("spearman", "pearson", "agreement", "chance"))
    return Agreement(tuple(rows["name"]), estimated, true, *values)


def _draw(axes: Axes, members: Agreement, found: Sequence[str]) -> None:
    x, y = 100 * members.estimated, 100 * members.true
    axes.scatter(x, y, s=30, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, alpha=0.8, clip_on=False, zorder=2)
    own = np.isin(members.names, found)
    axes.scatter(x[own], y[own], s=52, color=FOUND, edgecolor=SURFACE, linewidth=0.8, clip_on=False, zorder=3)
    few_ticks(axes, 4)
    axes.margins(0.08)
    axes.set_title(f"{count(len(x), 'member')}, ρ = {_RHO.bare(members.spearman)}")


def _caption(run: Run[Any]) -> str:
    rows = estimates(run)
    text = (
        "Each point is an architecture: its validation error with the supernet's shared weights, by which ensembles "
        "are chosen, and its test error trained from scratch. ρ is Spearman's rank correlation. Blue: the members of "
        "the found ensemble."
    )
    lost = int((numbers(rows, "estimated") + numbers(rows, "true")).isna().sum())
    if lost:
        text += f" {lost} without both errors {'is' if lost == 1 else 'are'} left out."
    return f"{text} As Table 5.6 of Shu 2022."


def _table(members: Agreement) -> str:
    columns = numeric("Members", "Spearman", "Pearson", "Agreement-30% (%)", "By chance (%)")
    shares = (_SHARE.bare(part) for part in (members.agreement, members.chance))
    row = (whole_number(len(members.names)), _RHO.bare(members.spearman), _RHO.bare(members.pearson), *shares)
    return table(columns, [row], label="Agreement of estimated and true errors")
