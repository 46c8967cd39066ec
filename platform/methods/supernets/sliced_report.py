"""What a search with a sliced supernet shows: its report, and in the terminal what was evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archray.platform.methods.found_networks import list_trials
from archray.platform.methods.supernets.search_seeds import FOUND_CELLS, SCORES, SELECTED, names_of
from archray.platform.methods.supernets.selection_curves import selection_section
from archray.platform.methods.supernets.shared_score_plot import shared_scores_section
from archray.platform.methods.supernets.supernet_report import curves_section
from archray.platform.report.cell import cell_section
from archray.platform.report.comparison import accuracy_cards, accuracy_lead, comparison_section
from archray.platform.report.cost_sections import cost_sections
from archray.platform.report.page import Headline, MakeSection, network_size
from archray.platform.report.run_sections import Tables, failed, failures_section, manifest_section, repeats_section
from archray.platform.report.short_names import names_section
from archray.platform.run.layout import TRIALS
from archray.platform.run.listing import Listing
from archray.platform.run.run import Run
from archray.plurals import count

_TABLES: Tables = {
    "supernet": ("supernet", TRIALS),
    "evaluation with shared weights": ("search", SCORES),
    "selection": ("selection", SELECTED),
    "final training": ("final", TRIALS),
    "random architectures": ("baseline", TRIALS),
}
SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    comparison_section,
    repeats_section,
    shared_scores_section,
    selection_section,
    curves_section,
    *cost_sections(names_of),
    names_section(names_of, "architectures", "in the order of their accuracy with shared weights"),
    failures_section(_TABLES),
    manifest_section,
)


def headline(run: Run[Any]) -> Headline:
    """What was found, and its test accuracy; of repeats, of the best."""
    best = run.best
    scores = best.table("search", SCORES)
    return Headline(
        thing="architecture",
        lead=accuracy_lead(run),
        names=() if best.architecture is None else (best.architecture,),
        cards=accuracy_cards(run),
        facts={
            "Search": f"{count(len(scores), 'network')} evaluated with shared weights" if len(scores) else None,
            "Supernet": run.config.supernet,
            "Network": network_size(best.table("final", TRIALS)),
            "Failures": failed(run, _TABLES),
        },
    )


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The candidates: the best with shared weights."""
    found = run.table("search", FOUND_CELLS)
    return list_trials(found, "the best with shared weights", "shared_accuracy", (run.architecture,))
