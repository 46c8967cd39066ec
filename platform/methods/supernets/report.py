"""The report of a search by a supernet: headline, training curves, sections, and its listing in the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.report import network_headline, network_sections
from archray.platform.methods.supernets.figures import (
    discretisation_section,
    entropies_section,
    selection_section,
    shared_scores_section,
)
from archray.platform.methods.supernets.tables import (
    FOUND_CELLS,
    ORDER,
    SCORES,
    SELECTED,
    chosen_trials,
    found_cells_section,
    names_of,
    outcomes_of,
)
from archray.platform.quantities import as_float
from archray.platform.report.curves import (
    BASELINE,
    CURVES_HEIGHT,
    FINAL,
    TrainingCurves,
    Trainings,
    of_found_architecture,
)
from archray.platform.report.figures import figure
from archray.platform.report.page import Headline
from archray.platform.report.rounds import Halving
from archray.platform.report.run_sections import Tables
from archray.platform.report.section import Section
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
    cells = run.best.table("search", FOUND_CELLS)
    return network_headline(run, _TABLES, {"Search": count(len(cells), "supernet") if len(cells) else None})


def _of_what_was_chosen(run: Run[Any], curves: pd.DataFrame) -> pd.Series:
    """Which rows are of the chosen architecture, or of a supernet that found it."""
    of_supernets = curves["trial_id"].isin(chosen_trials(run))
    return of_supernets.where(curves["stage"] == "search", of_found_architecture(run, curves))


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
SECTIONS = network_sections(
    found_cells_section,
    entropies_section,
    discretisation_section,
    shared_scores_section,
    rounds_section,
    selection_section,
    curves_section,
    tables=_TABLES,
    names_of=names_of,
    order=ORDER,
)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """What every search seed found, and what became of it: what was chosen first, what failed last."""
    cells, selection = run.table("search", FOUND_CELLS), run.table("selection", SELECTED)
    if cells.empty:
        return ()
    outcomes = outcomes_of(run)
    accuracies = {} if selection.empty else selection.set_index("architecture")["selection_accuracy"].to_dict()
    rows = [
        {
            "outcome": outcomes.get(row["architecture"], ""),
            "selection_accuracy": accuracies.get(row["architecture"]),
            **{name: row[name] for name in ("shared_accuracy", "architecture", "failure")},
        }
        for row in cells.to_dict("records")
    ]
    rows.sort(key=_place)
    return (Listing.of("found by the search seeds, the chosen one first", rows),)


def _place(row: Mapping[str, Any]) -> tuple[int, float, float]:
    """The chosen before what went on to the end, that before what was dropped; then by the accuracies."""
    order = ("chosen", "trained to the end")
    rank = order.index(row["outcome"]) if row["outcome"] in order else len(order)
    selection, shared = (as_float(row[key]) for key in ("selection_accuracy", "shared_accuracy"))
    return rank, -selection if selection == selection else math.inf, -shared if shared == shared else math.inf
