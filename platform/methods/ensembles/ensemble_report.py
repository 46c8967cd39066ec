"""What a search for an ensemble shows: its report, and its members and what was sampled as listings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from archray.platform.methods.ensembles.attack_section import attack_section
from archray.platform.methods.ensembles.attack_tables import measured_attacks
from archray.platform.methods.ensembles.ensemble_members import (
    delta_effect_section,
    estimated_true_section,
    member_cells_section,
)
from archray.platform.methods.ensembles.ensemble_result import TEST, diversity_section, ensemble_result_section
from archray.platform.methods.ensembles.ensemble_tables import (
    ENSEMBLE,
    METRICS,
    SEARCH,
    SUPERNET,
    found_members,
    names_of,
    sampled_ensembles,
    trained_models,
)
from archray.platform.methods.ensembles.posterior_curves import posterior_section
from archray.platform.methods.ensembles.sampled_ensembles import ensemble_delta_section, ensembles_section
from archray.platform.methods.found_networks import list_trials
from archray.platform.quantities import Spread, points_between
from archray.platform.report.cost_sections import cost_sections
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, OWN_SCHEDULE, TrainingCurves, Trainings
from archray.platform.report.figures import FOUND, figure
from archray.platform.report.measured import Measured, headline_cards, measured_networks, over_repeats
from archray.platform.report.page import Headline, MakeSection, network_size
from archray.platform.report.run_sections import Tables, failed, failures_section, manifest_section
from archray.platform.report.section import Section
from archray.platform.report.short_names import names_section
from archray.platform.run.layout import TRIALS
from archray.platform.run.listing import Listing
from archray.platform.run.run import Run
from archray.plurals import count

_TABLES: Tables = {
    "training the pool": ("pool", TRIALS),
    "evaluating ensembles": (SEARCH, TRIALS),
    "final training": ("final", TRIALS),
    "random architectures": ("baseline", TRIALS),
}

HEADLINES = ("test_accuracy",)
MEASURES = ("test_nll", "ece", "ppd")  # of the ensemble


def measured(run: Run[Any]) -> Measured:
    """The test accuracy of the ensemble and of its members alone, and its other measures; random architectures."""
    models = trained_models(run)
    spreads = {**measured_networks(run), **measured_attacks(run)}
    if models.empty:
        return spreads
    members = models["test_accuracy"].iloc[1:]
    known = {key: Spread.of(models[key].iloc[:1], "") for key in MEASURES}
    known["test_accuracy"] = Spread.of(models["test_accuracy"].iloc[:1], models["kind"].iloc[0])
    known["members_test_accuracy"] = Spread.of(members if len(members) > 1 else (), "member")
    return spreads | {key: spread for key, spread in known.items() if spread}


def headline_of_sampled(run: Run[Any]) -> Headline:
    """As `headline_of_pooled`, and how many ensembles were sampled."""
    sampled = sampled_ensembles(run)
    return _headline(run, {"Search": count(len(sampled), "ensemble") if len(sampled) else None})


def headline_of_pooled(run: Run[Any]) -> Headline:
    """The test accuracy of the ensemble beside those of its members; of repeats, of the best."""
    return _headline(run, {})


def _headline(run: Run[Any], facts: dict[str, str | None]) -> Headline:
    best = run.best
    members, models = found_members(best), trained_models(best)
    thing = "architecture" if len(members) == 1 else "ensemble"
    facts = {**facts, "Network": network_size(best.table("final", TRIALS)), "Failures": failed(run, _TABLES)}
    if not members:
        return Headline(thing, "The run found no ensemble; the failures below say why.", facts=facts)
    what = f"ensemble of {count(len(members), 'architecture')}" if len(members) > 1 else "architecture"
    spreads = over_repeats(run, measured)
    if models.empty or "test_accuracy" not in spreads:
        lead = f"The search chose the {what} below. There is no test accuracy: it was not trained in full."
        return Headline(thing, lead, members, facts=facts)
    own, alone = float(models["test_accuracy"].iloc[0]), models["test_accuracy"].iloc[1:].astype(float)
    chose = f"Of {count(len(run.repeats), 'repeat')}, the best on validation" if len(run.repeats) > 1 else "The search"
    lead = f"{chose} chose the {what} below; trained in full, it has a test accuracy of {TEST.show(own)}"
    gap = own - alone.max()
    lead += f", {points_between(gap)} its best member." if len(alone) > 1 and math.isfinite(gap) else "."
    shown = {key: spread for key, spread in spreads.items() if key.endswith("test_accuracy")}
    return Headline(thing, lead, members, headline_cards(shown, HEADLINES), facts)


# Training curves

_CURVES = TrainingCurves(
    stages=(
        Trainings(
            SUPERNET, "supernet", "of supernets", word="of the supernet", in_full=False, accuracy="mixture_accuracy"
        ),
        Trainings("pool", "pool", "of the pool", in_full=False),
        Trainings("final", "final", "of the ensemble's members in full", colour=FOUND),
        BASELINE,
    ),
    of_both=OWN_SCHEDULE,
    names_of=names_of,
)


@figure(height=CURVES_HEIGHT)
def ensemble_training_curves(run: Run[Any], canvas: Figure) -> None:
    """The training curves of the supernet or the pool, of the members and of random architectures, by epoch."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    return _CURVES.section(run, ensemble_training_curves(run))


_TRAINED: tuple[MakeSection, ...] = (
    ensemble_result_section,
    attack_section,
    member_cells_section,
    diversity_section,
)
_NAMES = names_section(names_of, "architectures", "in the order of their accuracy alone, where it is known")
_ENDING: tuple[MakeSection, ...] = (
    curves_section,
    *cost_sections(names_of),
    _NAMES,
    failures_section(_TABLES),
    manifest_section,
)
SAMPLED_SECTIONS: Sequence[MakeSection] = (
    *_TRAINED,
    posterior_section,
    delta_effect_section,
    ensembles_section,
    ensemble_delta_section,
    estimated_true_section,
    *_ENDING,
)
POOLED_SECTIONS: Sequence[MakeSection] = (*_TRAINED, *_ENDING)


# The terminal


def _list_members(run: Run[Any]) -> list[Listing]:
    """The members of the trained ensemble; nothing before it is trained, and of one."""
    members = (run.document("final", ENSEMBLE) or {"members": ()})["members"]
    if len(members) < 2:
        return []
    rows = [{"test_accuracy": m["test_accuracy"], "architecture": m.get("architecture")} for m in members]
    return [Listing.of("members of the ensemble, each alone", rows)]


def list_sampled(run: Run[Any]) -> Sequence[Listing]:
    """The members of the trained ensemble, and the ensembles that were sampled, best first."""
    trials, loss = run.table(SEARCH, TRIALS), METRICS[0]
    if loss not in trials:
        return _list_members(run)
    rows = [
        {
            "shared_loss": row[loss],
            "shared_accuracy": row["shared_accuracy"],
            "delta": row["delta"],
            "members": list(row["members"]),
            "failure": row["failure"],
        }
        for row in trials.sort_values(loss).to_dict("records")
    ]
    size = run.config.member_count
    several = f"of {count(size, 'member')} each"
    return [*_list_members(run), Listing.of(f"ensembles sampled, {several}, best first", rows)]


def list_pooled(run: Run[Any]) -> Sequence[Listing]:
    """The members of the trained ensemble, and the pool, best first."""
    chosen = (run.found or {"members": ()})["members"]
    return [*_list_members(run), *list_trials(run.table("pool", TRIALS), "the pool", "validation_accuracy", chosen)]
