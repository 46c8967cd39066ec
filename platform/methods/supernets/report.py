"""What a search by a supernet shows: its report, and the architectures that were found in the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.supernets.figures import (
    discretisation_section,
    entropies_section,
    selection_section,
    shared_scores_section,
)
from archray.platform.methods.supernets.tables import (
    FOUND_CELLS,
    SCORES,
    SELECTED,
    chosen_trials,
    fates,
    found_cells_section,
    names_of,
)
from archray.platform.quantities import as_float
from archray.platform.report.cell import cell_section
from archray.platform.report.cost_sections import cost_sections
from archray.platform.report.curves import (
    BASELINE,
    CURVES_HEIGHT,
    FINAL,
    TrainingCurves,
    Trainings,
    of_found_architecture,
)
from archray.platform.report.figures import figure
from archray.platform.report.page import Headline, MakeSection, network_size
from archray.platform.report.rounds import Halving
from archray.platform.report.run_sections import (
    Tables,
    accuracy_cards,
    accuracy_lead,
    comparison_section,
    failed,
    failures_section,
    manifest_section,
    repeats_section,
)
from archray.platform.report.section import Section, names_section
from archray.platform.run.layout import ROUNDS, TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

_TABLES: Tables = {
    "supernets of the search": ("search", FOUND_CELLS),
    "scoring with shared weights": ("search", SCORES),
    "rounds of halving": ("search", ROUNDS),
    "selection": ("selection", SELECTED),
    "final training": ("final", TRIALS),
    "random architectures": ("baseline", TRIALS),
}


def headline(run: Run[Any]) -> Headline:
    """What was chosen of what the search seeds found, and its test accuracy; of repeats, of the best."""
    best = run.best
    cells = best.table("search", FOUND_CELLS)
    return Headline(
        thing="architecture",
        lead=accuracy_lead(run),
        names=() if best.architecture is None else (best.architecture,),
        cards=accuracy_cards(run),
        facts={
            "Search": count(len(cells), "supernet") if len(cells) else None,
            "Network": network_size(best.table("final", TRIALS)),
            "Failures": failed(run, _TABLES),
        },
    )


# Training curves


def _of_what_was_chosen(run: Run[Any], curves: pd.DataFrame) -> pd.Series:
    """Which rows are of the chosen architecture, or of a supernet that found it."""
    own = curves["trial_id"].isin(chosen_trials(run))
    return own.where(curves["stage"] == "search", of_found_architecture(run, curves))


_CURVES = TrainingCurves(
    stages=(
        Trainings("supernet", "supernet", "of a supernet", in_full=False, accuracy="largest_accuracy"),
        Trainings("search", "search", "of supernets", word="of a supernet", in_full=False, accuracy="mixture_accuracy"),
        Trainings("selection", "selection", "in the selection"),
        FINAL,
        BASELINE,
    ),
    found=_of_what_was_chosen,
    others="other supernets",
    names_of=names_of,
    of_search=(
        "A supernet holds all architectures of the space, which share its weights; its accuracy is that of its "
        "mixture, not of one architecture trained alone, and blue is the supernet that found what was chosen."
    ),
)


@figure(height=CURVES_HEIGHT)
def supernet_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of supernets, of the selection, of final trainings and of random architectures."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    return _CURVES.section(run, supernet_training_curves(run))


rounds_section = Halving("Architecture", "supernet", "Epochs", names_of).section
SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    comparison_section,
    repeats_section,
    found_cells_section,
    entropies_section,
    discretisation_section,
    shared_scores_section,
    rounds_section,
    selection_section,
    curves_section,
    *cost_sections(names_of),
    names_section(names_of, "architectures", "in the order of their accuracy with shared weights"),
    failures_section(_TABLES),
    manifest_section,
)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """What every search seed found, and what became of it: what was chosen first, what failed last."""
    cells = run.table("search", FOUND_CELLS)
    if cells.empty:
        return ()
    selected, known, chosen = run.table("selection", SELECTED), fates(run), run.architecture
    trained = {} if selected.empty else selected.set_index("architecture")["selection_accuracy"].to_dict()
    rows = []
    for row in cells.to_dict("records"):
        name = row["architecture"]
        outcome = "chosen" if name is not None and name == chosen else known.get(name, "")
        accuracies = {"selection_accuracy": trained.get(name), "shared_accuracy": row["shared_accuracy"]}
        rows.append({"outcome": outcome, **accuracies, "architecture": name, "failure": row["failure"]})
    rows.sort(key=_place)
    return (Listing.of("found by the search seeds, the chosen one first", rows),)


def _place(row: Mapping[str, Any]) -> tuple[int, float, float]:
    """The chosen before what went on to the end, that before what was dropped; then by the accuracies."""
    order = ("chosen", "trained to the end")
    rank = order.index(row["outcome"]) if row["outcome"] in order else len(order)
    selection, shared = (as_float(row[key]) for key in ("selection_accuracy", "shared_accuracy"))
    return rank, -selection if selection == selection else math.inf, -shared if shared == shared else math.inf
