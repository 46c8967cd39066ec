"""What NASI does: searches at initialisation, and GAEA's stages after them. Shu 2022 (thesis), chapter 6."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from ray import tune

from archray.files import Folder
from archray.platform.engine.run_costs import run_costs
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import reasons
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.supernets.drop_selection import SELECTION_STAGE
from archray.platform.methods.supernets.nasi_config import NASIConfig, settings_of
from archray.platform.methods.supernets.nasi_report import SECTIONS, headline, listings
from archray.platform.methods.supernets.nasi_table_stage import TABLE_STAGE
from archray.platform.methods.supernets.nasi_tables import AGREEMENT, REWARD
from archray.platform.methods.supernets.supernet_search import bounds_of, measured_bounds, write_found
from archray.platform.methods.training_stages import BASELINE_STAGE, FINAL_STAGE
from archray.platform.report.measured import measured_networks
from archray.plurals import count
from archray.seeds import first_seeds
from archray.trainables.tune.nasi_trainable import (
    NASIAgreementSettings,
    NASIAgreementTrainable,
    NASITrainable,
    trace_columns,
)


def _amount(config: NASIConfig) -> str:
    nasi = config.nasi
    text = f"{count(config.search_seeds, 'search', 'searches')} of {count(nasi.steps, 'step')}, nothing is trained"
    if nasi.without_data:
        text += f"; no data: {nasi.drawn_words}"
    return text


def _searches(context: Context[NASIConfig], tuned: Folder) -> TrialPlan:
    if context.config.nasi.without_data:
        context.say(f"no data set is opened: {context.config.nasi.drawn_words}")
    seeds = first_seeds(context.seed("search"), context.config.search_seeds)
    bounds: dict[str, Any] = {}
    if context.config.constraints and not measured_bounds(context):
        costs = run_costs(context)
        shape = (costs.in_channels, costs.image_size, costs.num_classes)
        bounds = {"bounds": bounds_of(context), "bounded_images": shape}
    return TrialPlan(
        trainable=NASITrainable,
        settings=settings_of(context.run, **bounds),
        metric="reward",
        mode="max",
        total=len(seeds),
        keys={"seed": tune.grid_search(seeds)},
    )


def _write_found(context: Context[NASIConfig], folder: Folder, run: TuneRun) -> None:
    """What each seed found; `nu` is the constraint of its last step."""
    trials = run.trials
    names = ("found_trace", REWARD, "nu", "distribution", "samples", "constants")
    columns = {name: trials.get(name, math.nan) for name in names}
    found = trials[["trial_id", "seed"]].assign(
        architecture=trials.get("architecture"), **columns, failure=reasons(trials)
    )
    write_found(context, folder, found, REWARD)


def _agreement_settings(context: Context[NASIConfig]) -> NASIAgreementSettings:
    return NASIAgreementSettings(**settings_of(context.run), architectures=context.config.agreement)


def _comparison(context: Context[NASIConfig], tuned: Folder) -> TrialPlan | None:
    if not context.config.agreement:
        context.say("not asked for (agreement)")
        tuned.parent.write_parquet(AGREEMENT, pd.DataFrame())
        return None
    return TrialPlan(
        trainable=NASIAgreementTrainable,
        settings=_agreement_settings(context).model_dump(mode="json"),
        metric="batch",
        mode="max",
        total=1,
        keys={"seed": context.seed("agreement")},
    )


def _write_agreement(context: Context[NASIConfig], folder: Folder, run: TuneRun) -> None:
    columns = ["seed", *trace_columns(_agreement_settings(context)), "failure"]
    folder.write_parquet(AGREEMENT, run.curves.reindex(columns=columns))


RECIPE = Recipe(
    stages=(
        TuneStage[NASIConfig](
            name="search",
            title="search at initialisation, by the trace norm of the neural tangent kernel",
            reads=("nasi", "search_seeds"),
            plan=_searches,
            finish=_write_found,
            search=True,
            without_data=lambda config: config.begins_without_data,
            amount=_amount,
        ),
        TuneStage[NASIConfig](
            name="agreement",
            title="compare approximations of the trace norm, with random labels and inputs too",
            reads=("nasi", "agreement"),
            plan=_comparison,
            finish=_write_agreement,
            without_data=lambda config: config.begins_without_data,
            amount=lambda config: count(config.agreement, "random architecture") if config.agreement else "none",
        ),
        TABLE_STAGE,
        SELECTION_STAGE,
        FINAL_STAGE,
        BASELINE_STAGE,
    ),
    measured=measured_networks,
    training=("selection", "final"),  # a trial of the search trains nothing
    headline=headline,
    sections=SECTIONS,
    listings=listings,
)
