"""NASI: search at initialization, comparisons of trace norms, then the selection and final stages of GAEA.

Shu 2022, chapter 6; section 6.6.2 for the scores of a table's architectures.
"""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
from ray import tune

from archray.files import Folder
from archray.platform.engine.pool_scoring import column_types, count_failures, device_of, score_in_shards
from archray.platform.engine.run_costs import measured_bounds, run_costs
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import reasons
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.nasi.config import (
    AGREEMENT,
    IN_TABLE,
    METRICS,
    REWARD,
    TABLE,
    NASIConfig,
    TableValues,
    settings_of,
)
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.stages import BASELINE_STAGE, FINAL_STAGE
from archray.platform.methods.supernets.stages import SELECTION_STAGE, bounds_of, write_found
from archray.platform.methods.supernets.tables import FOUND_CELLS
from archray.plurals import count
from archray.seeds import first_seeds
from archray.trainables.proxies import ProxySettings
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.table_space import canonical_string
from archray.trainables.tune import nasi_trainable
from archray.trainables.tune.scorers import PoolScorer
from archray.trainables.tune.settings import NASISettings


def _score(context: Context[NASIConfig], folder: Folder) -> None:
    """Scores a sample of the table, and the rows that the search selected, also with other constants."""
    config, run = context.config, context.run
    if config.agreement_table is None:
        context.say("skipped: agreement_table is not set")
        folder.write_parquet(IN_TABLE, pd.DataFrame())
        return
    space, seed = get_space(run.space), context.seed("table")
    table = TableValues.read(config.agreement_table, space)
    rng = np.random.default_rng(seed)
    size = min(config.agreement_rows, len(table.values))
    sample = rng.choice(list(table.values), size, replace=False).tolist()
    selections = _selections(run.table("search", FOUND_CELLS), space)
    proxy = ProxySettings(
        metrics=METRICS, batch_size=config.nasi.batch_size, seed=seed, augment=False, network=config.nasi.network
    )
    scores = score_in_shards(
        folder,
        list(dict.fromkeys([*sample, *(name for name in selections if name in table.values)])),
        worker=PoolScorer,
        worker_kwargs={
            "space": run.space,
            "data": nasi_trainable.scored_batch(NASISettings.model_validate(settings_of(run)), seed),
            "proxy": proxy.model_dump(mode="json"),
            "device": device_of(config.resources),
        },
        types=column_types(proxy),
        resources=config.resources,
        console=context.console,
        labels=context.labels(folder.name),
    )
    names = scores["architecture"]
    folder.write_parquet(IN_TABLE, scores.assign(result=names.map(table.values), drawn=names.isin(sample)))
    folder.write_json(TABLE, table.described())
    context.say(
        f"scored {count(len(scores), 'architecture')} of {table.location}, {count_failures(scores)} with failed metrics"
    )


def _selections(cells: pd.DataFrame, space: Space) -> list[str]:
    """Returns the canonical forms of the architectures of all seeds, and of the selections by other constants."""
    columns = [cells["architecture"]] if "architecture" in cells else []
    if "constants" in cells:
        of_seeds = cells["constants"].dropna().map(json.loads)
        columns += [pd.Series([row["architecture"] for row in rows], dtype=object) for rows in of_seeds]
    names = pd.concat(columns).dropna().unique() if columns else []
    return [canonical_string(space, name) for name in names]


TABLE_STAGE = WorkStage[NASIConfig](
    name="table",
    title="compare metrics with the accuracies of a table",
    reads=("nasi", "agreement_table", "agreement_rows"),
    depends=file_digests(f"search/{FOUND_CELLS}"),
    work=_score,
    without_data=lambda config: config.starts_without_data,
    amount=lambda config: (
        f"{count(config.agreement_rows, 'architecture')} of {config.agreement_table}, without training"
        if config.agreement_table is not None
        else "none"
    ),
)


def _amount(config: NASIConfig) -> str:
    nasi = config.nasi
    text = f"{count(config.search_seeds, 'search', 'searches')} of {count(nasi.steps, 'step')}, without training"
    if nasi.without_data:
        text += f"; no data set: {nasi.drawn_words}"
    return text


def _searches(context: Context[NASIConfig], tuned: Folder) -> TrialPlan:
    if context.config.nasi.without_data:
        context.say(f"no data set needed: {context.config.nasi.drawn_words}")
    seeds = first_seeds(context.seed("search"), context.config.search_seeds)
    bounds: dict[str, Any] = {}
    if context.config.constraints and not measured_bounds(context):
        costs = run_costs(context)
        shape = (costs.in_channels, costs.image_size, costs.num_classes)
        bounds = {"bounds": bounds_of(context), "bounded_images": shape}
    return TrialPlan(
        trainable=nasi_trainable.NASITrainable,
        settings=settings_of(context.run, **bounds),
        metric="reward",
        mode="max",
        total=len(seeds),
        keys={"seed": tune.grid_search(seeds)},
    )


def _write_found(context: Context[NASIConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the architecture of each seed; `nu` is the constraint in the last step."""
    trials = run.trials
    names = ("found_trace", REWARD, "nu", "distribution", "samples", "constants")
    columns = {name: trials.get(name, math.nan) for name in names}
    cells = trials[["trial_id", "seed"]].assign(
        architecture=trials.get("architecture"), **columns, failure=reasons(trials)
    )
    write_found(context, folder, cells, REWARD)


def _agreement_settings(context: Context[NASIConfig]) -> nasi_trainable.NASIAgreementSettings:
    return nasi_trainable.NASIAgreementSettings(**settings_of(context.run), architectures=context.config.agreement)


def _comparison(context: Context[NASIConfig], tuned: Folder) -> TrialPlan | None:
    if not context.config.agreement:
        context.say("skipped: agreement is 0")
        tuned.parent.write_parquet(AGREEMENT, pd.DataFrame())
        return None
    return TrialPlan(
        trainable=nasi_trainable.NASIAgreementTrainable,
        settings=_agreement_settings(context).model_dump(mode="json"),
        metric="batch",
        mode="max",
        total=1,
        keys={"seed": context.seed("agreement")},
    )


def _write_agreement(context: Context[NASIConfig], folder: Folder, run: TuneRun) -> None:
    columns = ["seed", *nasi_trainable.trace_columns(_agreement_settings(context)), "failure"]
    folder.write_parquet(AGREEMENT, run.curves.reindex(columns=columns))


RECIPE = Recipe(
    stages=(
        TuneStage[NASIConfig](
            name="search",
            title="search at initialization by the trace norm of the neural tangent kernel",
            reads=("nasi", "search_seeds"),
            plan=_searches,
            finish=_write_found,
            search=True,
            without_data=lambda config: config.starts_without_data,
            amount=_amount,
        ),
        TuneStage[NASIConfig](
            name="agreement",
            title="compare approximations of the trace norm, also with random labels and inputs",
            reads=("nasi", "agreement"),
            plan=_comparison,
            finish=_write_agreement,
            without_data=lambda config: config.starts_without_data,
            amount=lambda config: count(config.agreement, "random architecture") if config.agreement else "none",
        ),
        TABLE_STAGE,
        SELECTION_STAGE,
        FINAL_STAGE,
        BASELINE_STAGE,
    ),
    report_at="archray.platform.methods.nasi.report:REPORT",
)
