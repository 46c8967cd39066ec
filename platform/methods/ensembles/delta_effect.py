"""What delta does in this run: how different the members of each sampled ensemble are, and how good. Shu 2022, 5.3.4.

A higher delta drives SVGD's particles apart, so that the members decoded from them differ in more decisions; what it
costs is that particles leave the modes of the posterior, and members alone get worse.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.ensembles.ensemble_tables import MEMBERS, SEARCH, chosen_ensemble, sampled_ensembles
from archray.platform.report.figures import FOUND, SURFACE, TRIAL, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.quantity import Quantity, count
from archray.platform.report.section import Section, captioned
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space

_PANELS = {
    "difference": Quantity("decisions that two members differ in", "%", 100.0, 1),
    "error": Quantity("mean error of a member", "%", 100.0, 2),
}


@figure(height=250)
def ensembles_delta_effect(run: Run[Any], canvas: Figure) -> None:
    """How far the members of each sampled ensemble differ, and how good they are alone, against delta."""
    members = member_measures(run)
    chosen = chosen_ensemble(run, members)
    for axes, (name, quantity) in zip(canvas.subplots(1, len(_PANELS)), _PANELS.items(), strict=True):
        x, y = members["delta"], members[name] * quantity.factor
        means = y.groupby(x).mean()
        axes.plot(means.index, means, color=TRIAL, linewidth=1.4, alpha=0.8)
        axes.scatter(x, y, s=26, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, zorder=3)
        if chosen is not None:
            axes.scatter(x[chosen], y[chosen], s=70, color=FOUND, edgecolor=SURFACE, zorder=4)
        few_ticks(axes, 5)
        axes.margins(0.08)
        axes.set_title(quantity.label)
        axes.set(xlabel="δ", ylabel=quantity.unit)


def delta_effect_section(run: Run[Any]) -> Section:
    """Difference and quality of the members of each ensemble by the delta it was sampled at."""
    members = member_measures(run)
    content = drawing(
        "delta-effect",
        ensembles_delta_effect(run),
        description=f"Difference and error of the members of {count(len(members), 'ensemble')} against delta.",
    )
    text = (
        "What δ does in this run. Left: the share of the space's decisions in which two members of a sampled ensemble "
        "differ, averaged over the pairs. Right: the validation error of its members alone, with shared weights. At "
        "δ = 0 the sampler is SVGD; a higher δ drives particles apart, below −1 they attract each other. A dot is one "
        "ensemble, a line goes through the means of one δ."
    )
    text += " Blue: the chosen ensemble." if chosen_ensemble(run, members) is not None else ""
    return Section("delta-effect", "What delta does", captioned(content, text))


def member_measures(run: Run[Any]) -> pd.DataFrame:
    """The ensembles that were sampled at a delta, with `difference` and `error`, fractions.

    Raises: NothingToDraw if there is none of two members or more.
    """
    sampled = sampled_ensembles(run)
    if len(sampled):
        sampled = sampled[sampled["delta"].notna() & (sampled["members"].map(len) > 1)]
    if sampled.empty:
        raise NothingToDraw("this run sampled no ensemble at a delta; choose --sampler svgd-rd")
    space = get_space(run.best.space)
    alone = run.pooled(SEARCH, MEMBERS)
    errors = dict(zip(alone["architecture"], alone["error"], strict=True)) if len(alone) else {}

    def difference(members: tuple[str, ...]) -> float:
        pairs = itertools.combinations([space.decode(member) for member in members], 2)
        return float(np.mean([[a != b for a, b in zip(*pair, strict=True)] for pair in pairs]))

    return sampled.assign(
        difference=sampled["members"].map(difference),
        error=sampled["members"].map(
            lambda members: float(np.mean([errors.get(member, np.nan) for member in members]))
        ),
    )
