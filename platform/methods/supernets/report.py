"""The report of a supernet search: headline, training curves, sections, and the listing for the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.recipe import Report
from archray.platform.methods.report import list_trials, network_headline, network_sections
from archray.platform.methods.supernets import figures, tables
from archray.platform.quantities import as_float, quantity_of
from archray.platform.report import curves
from archray.platform.report.figures import figure
from archray.platform.report.measures import measured_networks
from archray.platform.report.page import Headline
from archray.platform.report.rounds import Halving
from archray.platform.report.run_sections import Tables
from archray.platform.report.section import Column, Section, failures, numbers, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import ROUNDS, TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

_text = texts_of(__package__)
_SHARED, _MIXTURE = quantity_of("shared_accuracy"), quantity_of("mixture_accuracy")
_TABLES: Tables = {
    "supernets of the search": ("search", tables.FOUND_CELLS),
    "scoring with shared weights": ("search", tables.SCORES),
    "rounds of halving": ("search", ROUNDS),
    "selection": ("selection", tables.SELECTED),
    "final training": ("final", TRIALS),
    "comparison": ("baseline", TRIALS),
}


def headline(run: Run[Any]) -> Headline:
    """The selected architecture and its test accuracy; for repeats, of the best run."""
    cells = run.best.table("search", tables.FOUND_CELLS)
    return network_headline(run, _TABLES, {"Search": count(len(cells), "supernet") if len(cells) else None})


def found_cells_section(run: Run[Any]) -> Section | None:
    """A row per search seed. None for a run without a supernet."""
    names, run = tables.names_of(run), run.best
    cells = run.table("search", tables.FOUND_CELLS)
    if cells.empty:
        return None
    cells = cells.assign(failure=failures(cells), order=numbers(cells, "shared_accuracy"))
    # Rows without a value come last.
    cells = cells.sort_values("order", ascending=False, kind="stable", ignore_index=True)
    mixture, value = numbers(cells, "mixture_accuracy"), numbers(cells, "shared_accuracy")
    mixed = bool(mixture.notna().any())
    columns = [Column("Architecture", "name"), Column("Shared weights (%)", "number", "descending")]
    columns += [*numeric(*(["Mixture (%)"] if mixed else [])), Column("Outcome"), *numeric("Seed")]
    outcomes = tables.outcomes_of(run)
    rows = []
    for i, row in enumerate(cells.to_dict("records")):
        name = row["architecture"] if isinstance(row["architecture"], str) else None
        accuracies = [_SHARED.bare(value[i]), *([_MIXTURE.bare(mixture[i])] if mixed else [])]
        outcome = row["failure"] or outcomes.get(name, "")
        rows.append((names.of(name), *accuracies, outcome, tables.seed_words(row["seed"])))
    marked = cells.index[(cells["architecture"] == run.architecture) & cells["failure"].isna()]
    seeds = table(
        columns,
        rows,
        label="Results by search seed",
        marked=int(marked[0]) if len(marked) else None,
        faint=frozenset(cells.index[cells["failure"].notna()]),
    )
    architectures = cells.loc[cells["failure"].isna(), "architecture"].dropna()
    text = _text(
        "found_cells",
        searches=len(cells),
        failures=int(cells["failure"].notna().sum()),
        architectures=len(architectures),
        distinct=architectures.nunique(),
        mixed=mixed,
    )
    return Section("found-cells", "Results by search seed", paragraphs([text]) + seeds)


def _of_chosen(run: Run[Any], rows: pd.DataFrame) -> pd.Series:
    """Whether rows of curves belong to the selected architecture, or to a supernet that found it."""
    of_supernets = rows["trial_id"].isin(tables.chosen_trials(run))
    return of_supernets.where(rows["stage"] == "search", curves.of_found_architecture(run, rows))


_MIXTURES: dict[str, Any] = {"word": "of a supernet", "in_full": False, "accuracy": "mixture_accuracy"}
_CURVES = curves.TrainingCurves(
    stages=(
        curves.StageCurves("supernet", "supernet", "of a supernet", in_full=False, accuracy="largest_accuracy"),
        curves.StageCurves("search", "search", "of supernets", **_MIXTURES),
        curves.StageCurves("selection", "selection", "in the selection"),
        curves.FINAL,
        curves.BASELINE,
    ),
    found=_of_chosen,
    others="other supernets",
    names_of=tables.names_of,
    of_search=(
        "A supernet contains all architectures of the space, which share its weights. Its accuracy is the accuracy of "
        "the mixture, not of a standalone architecture. Blue: the supernet that found the selected architecture."
    ),
)


@figure(height=curves.CURVES_HEIGHT)
def supernet_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of a supernet search: supernets, selection, final training, random baseline."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    return _CURVES.section(run, supernet_training_curves(run))


rounds_section = Halving("Architecture", "supernet", "Epochs", tables.names_of).section
SECTIONS = network_sections(
    found_cells_section,
    figures.entropies_section,
    figures.discretization_section,
    figures.shared_scores_section,
    rounds_section,
    figures.selection_section,
    curves_section,
    tables=_TABLES,
    names_of=tables.names_of,
    order=tables.ORDER,
)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The architecture and outcome of every search seed: the selected one first, failures last."""
    cells, selection = run.table("search", tables.FOUND_CELLS), run.table("selection", tables.SELECTED)
    if cells.empty:
        return ()
    outcomes = tables.outcomes_of(run)
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
    return (Listing.of("architectures by search seed, selected one first", rows),)


def _place(row: Mapping[str, Any]) -> tuple[int, float, float]:
    """Sort key: chosen, trained to the end, dropped; then by accuracy."""
    order = ("chosen", "trained to the end")
    rank = order.index(row["outcome"]) if row["outcome"] in order else len(order)
    selection, shared = (as_float(row[key]) for key in ("selection_accuracy", "shared_accuracy"))
    return rank, -selection if selection == selection else math.inf, -shared if shared == shared else math.inf


REPORT = Report[Any](
    measured=measured_networks,
    headline=headline,
    sections=SECTIONS,
    listings=listings,
)


# Searches with a sliced supernet.

_SLICED_TABLES: Tables = {
    "supernet": ("supernet", TRIALS),
    "evaluation with shared weights": ("search", tables.SCORES),
    "selection": ("selection", tables.SELECTED),
    "final training": ("final", TRIALS),
    "comparison": ("baseline", TRIALS),
}


def _sliced_headline(run: Run[Any]) -> Headline:
    scores = run.best.table("search", tables.SCORES)
    search = f"{count(len(scores), 'network')} evaluated with shared weights" if len(scores) else None
    return network_headline(run, _SLICED_TABLES, {"Search": search, "Supernet": run.config.supernet})


def _candidates(run: Run[Any]) -> Sequence[Listing]:
    """The best architectures by shared weights."""
    cells = run.table("search", tables.FOUND_CELLS)
    return list_trials(cells, "candidates by shared weights", "shared_accuracy", (run.architecture,))


SLICED_REPORT = Report[Any](
    measured=measured_networks,
    headline=_sliced_headline,
    sections=network_sections(
        figures.shared_scores_section,
        figures.selection_section,
        curves_section,
        tables=_SLICED_TABLES,
        names_of=tables.names_of,
        order=tables.ORDER,
    ),
    listings=_candidates,
)
