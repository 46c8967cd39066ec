"""The members of ensembles: what they decided, what delta does to them, whether shared weights told how good they are.

A higher delta drives SVGD's particles apart, so that the members decoded from them differ in more decisions; what it
costs is that particles leave the modes of the posterior, and members alone get worse (Shu 2022, 5.3.4). With shared
weights against trained: Table 5.6.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.ensembles.ensemble_tables import (
    MEMBERS,
    SEARCH,
    chosen_ensemble,
    estimates,
    found_members,
    names_of,
    sampled_ensembles,
    sampled_texts,
)
from archray.platform.quantities import Quantity, quantity_of, whole_number
from archray.platform.report.cell_graph import cell_drawing, cell_edges, cell_legend, is_graph, node_count
from archray.platform.report.decisions import Decided, decided
from archray.platform.report.figures import FOUND, SURFACE, TRIAL, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import (
    Column,
    Section,
    captioned,
    escape,
    folded,
    linked,
    numeric,
    paragraphs,
    table,
)
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.ensembles import agreement
from archray.trainables.spaces import get_space

_DRAWN = 5  # members whose cells are drawn; the table has all
_FEWEST = 3  # points: two always agree or disagree
_MEASURES = {
    "difference": Quantity("decisions that two members differ in", "%", 100.0, 1),
    "shared_accuracy": quantity_of("shared_accuracy"),
}
_AGREE = ("shared_accuracy", "test_accuracy")
_RHO = Quantity("rank correlation", "", 1.0, 2)
_SHARE = Quantity("share", "%", 100.0, 0)


def member_cells_section(run: Run[Any]) -> Section | None:
    """A cell per member, or the table of decisions alone. Nothing for fewer than two members."""
    space, strings = get_space(run.best.space), found_members(run.best)
    members, names = [decided(space, member) for member in strings], names_of(run).all_of(strings)
    if len(members) < 2:
        return None
    whole, text = _table(members, names), _sentence(members)
    if not all(map(is_graph, members)):
        return Section("members", "The members", paragraphs([text]) + whole)
    cells, nodes = [cell_edges(decisions) for decisions in members[:_DRAWN]], node_count(members[0])
    drawings = "".join(
        f"<h3>{escape(f'Member {number}')}, {linked(names[number - 1])}</h3>{cell_drawing(edges, nodes)}"
        for number, edges in enumerate(cells, 1)
    )
    drawings += cell_legend(cells, nodes)
    caption = f"{text} Circles are feature maps, from the cell's input to its output; “none” is not drawn."
    if len(members) > _DRAWN:
        caption += f" The first {_DRAWN} of {len(members)} are drawn."
    return Section("members", "The members", captioned(drawings, caption) + folded("The members as a table", whole))


def common_decisions(members: Sequence[Sequence[Decided]]) -> int:
    """How many decisions are the same in all members."""
    return sum(len({decision.choice for decision in row}) == 1 for row in zip(*members, strict=True))


def _sentence(members: Sequence[Sequence[Decided]]) -> str:
    same, total = common_decisions(members), len(members[0])
    if same == total:
        return f"All {count(len(members), 'member')} are one architecture."
    return f"The {count(len(members), 'member')} agree in {same} of {count(total, 'decision')}."


def _table(members: Sequence[Sequence[Decided]], names: Sequence[object]) -> str:
    columns = (Column("Decision", "code"), *(Column(f"{number}: {name}") for number, name in enumerate(names, 1)))
    rows = [(row[0].name, *(decision.choice for decision in row)) for row in zip(*members, strict=True)]
    same = frozenset(place for place, row in enumerate(rows) if len(set(row[1:])) == 1)
    return table(columns, rows, label="The decisions of each member", faint=same)


# What delta does


@figure(height=250)
def ensembles_delta_effect(run: Run[Any], canvas: Figure) -> None:
    """How far the members of each sampled ensemble differ, and how good they are alone, against delta."""
    members, names = member_measures(run), names_of(run)
    chosen = chosen_ensemble(run, members)
    for axes, (name, quantity) in zip(canvas.subplots(1, len(_MEASURES)), _MEASURES.items(), strict=True):
        x, y = members["delta"], members[name] * quantity.factor
        means = y.groupby(x).mean()
        axes.plot(means.index, means, color=TRIAL, linewidth=1.4, alpha=0.8)
        axes.scatter(x, y, s=26, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, zorder=3)
        if chosen is not None:
            axes.scatter(x[chosen], y[chosen], s=70, color=FOUND, edgecolor=SURFACE, zorder=4)
        few_ticks(axes, 5)
        axes.margins(0.08)
        tell_points(axes, x, y, sampled_texts(members, names))
        axes.set_title(quantity.label)
        axes.set(xlabel="δ", ylabel=quantity.unit)


def delta_effect_section(run: Run[Any]) -> Section:
    """Difference and quality of the members of each ensemble by the delta it was sampled at."""
    members = member_measures(run)
    content = drawing(
        "delta-effect",
        ensembles_delta_effect(run),
        description=f"Difference and accuracy of the members of {count(len(members), 'ensemble')} against delta.",
    )
    text = (
        "What δ does in this run. Left: the share of the space's decisions in which two members of a sampled ensemble "
        "differ, averaged over the pairs. Right: the validation accuracy of its members alone, with shared weights. At "
        "δ = 0 the sampler is SVGD; a higher δ drives particles apart, below −1 they attract each other. A dot is one "
        "ensemble, a line goes through the means of one δ."
    )
    text += " Blue: the chosen ensemble." if chosen_ensemble(run, members) is not None else ""
    return Section("delta-effect", "What delta does", captioned(content, text))


def member_measures(run: Run[Any]) -> pd.DataFrame:
    """The ensembles that were sampled at a delta, with `difference` and, the mean of the members, `shared_accuracy`.

    Raises: NothingToDraw if there is none of two members or more.
    """
    sampled = sampled_ensembles(run)
    if len(sampled):
        sampled = sampled[sampled["delta"].notna() & (sampled["members"].map(len) > 1)]
    if sampled.empty:
        raise NothingToDraw("this run sampled no ensemble at a delta; choose --sampler svgd-rd")
    space = get_space(run.best.space)
    alone = run.pooled(SEARCH, MEMBERS)
    accuracies = dict(zip(alone["architecture"], alone["shared_accuracy"], strict=True)) if len(alone) else {}

    def difference(members: tuple[str, ...]) -> float:
        pairs = itertools.combinations([space.decode(member) for member in members], 2)
        return float(np.mean([[a != b for a, b in zip(*pair, strict=True)] for pair in pairs]))

    return sampled.assign(
        difference=sampled["members"].map(difference),
        shared_accuracy=sampled["members"].map(
            lambda members: float(np.mean([accuracies.get(member, np.nan) for member in members]))
        ),
    )


# With shared weights, and trained


@figure(height=320)
def estimated_against_true(run: Run[Any], canvas: Figure) -> None:
    """The validation accuracy of each member with shared weights, against its test accuracy trained from scratch."""
    axes, names = canvas.subplots(), names_of(run)
    members, measures = member_agreement(run.best)
    x, y = (members[quantity] * quantity_of(quantity).factor for quantity in _AGREE)
    axes.scatter(x, y, s=30, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, alpha=0.8, clip_on=False, zorder=2)
    own = members["name"].isin(found_members(run.best))
    axes.scatter(x[own], y[own], s=52, color=FOUND, edgecolor=SURFACE, linewidth=0.8, clip_on=False, zorder=3)
    rows = zip(names.all_of(members["name"]), x, y, strict=True)
    tell_points(axes, x, y, [f"{name}\nshared weights {one:.2f} %, trained {other:.2f} %" for name, one, other in rows])
    few_ticks(axes, 4)
    axes.margins(0.08)
    axes.set_title(f"{count(len(x), 'member')}, ρ = {_RHO.bare(measures['spearman'])}")
    axes.set(**{f"{side}label": quantity_of(key).axis for side, key in zip("xy", _AGREE, strict=True)})


def estimated_true_section(run: Run[Any]) -> Section:
    """Both accuracies of the members, and how they agree. Fewer than three members that have both are none."""
    members, measures = member_agreement(run.best)
    content = drawing(
        "estimated-true",
        estimated_against_true(run),
        description=f"Members, with shared weights and trained: Spearman's rho {_RHO.bare(measures['spearman'])}.",
    )
    caption = (
        "Each point is an architecture: its validation accuracy with the supernet's shared weights, by which ensembles "
        "are chosen, and its test accuracy trained from scratch. ρ is Spearman's rank correlation. Blue: the members "
        "of the found ensemble."
    )
    if lost := len(estimates(run.best)) - len(members):
        caption += f" {lost} without both accuracies {'is' if lost == 1 else 'are'} left out."
    columns = numeric("Members", "Spearman", "Pearson", "Agreement-30% (%)", "By chance (%)")
    shares = (_SHARE.bare(measures[name]) for name in ("agreement", "chance"))
    row = (whole_number(len(members)), *(_RHO.bare(measures[name]) for name in ("spearman", "pearson")), *shares)
    note = (
        "Agreement-30% is the share of the truly best 30 % that are also among the best 30 % by estimate; estimates "
        "that know nothing reach the share by chance, which is not 30 % where 30 % are no whole number."
    )
    return Section(
        "estimated-true",
        "Do shared weights tell good ensembles from bad ones?",
        captioned(content, f"{caption} As Table 5.6 of Shu 2022.")
        + table(columns, [row], label="Agreement of accuracies with shared weights and trained")
        + paragraphs([note]),
    )


def member_agreement(run: Run[Any]) -> tuple[pd.DataFrame, dict[str, float | int]]:
    """The rows of `estimates` with both, and their `agreement`. Raises: NothingToDraw for fewer than three."""
    rows = estimates(run).dropna()
    if len(rows) < _FEWEST:
        raise NothingToDraw(
            f"this run has fewer than {_FEWEST} members with accuracies by shared weights and by training"
        )
    return rows, agreement(rows[_AGREE[0]], rows[_AGREE[1]])
