"""Stage 3 of NESBS: ensembles sampled, and evaluated with the shared weights. Shu 2022, Algorithm 5.1, lines 4 to 7.

A search that was killed begins again, and ends as an undisturbed one: what is suggested follows from the seed and the
losses told, and the losses from predictions that are read back from `predictions-*/`, where each lies as soon as it is
computed. So nothing is predicted twice, and the sampling takes a fraction of a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pandas as pd
import ray

from archray.cluster.actors import Outcome, actor_map
from archray.cluster.resources import actor_count
from archray.errors import ArchrayError, RunInterrupted
from archray.files import Folder
from archray.platform.engine.interrupt import INTERRUPT, stop_gracefully
from archray.platform.engine.shards import device_of
from archray.platform.engine.stage import Context, Stage
from archray.platform.methods.ensembles.ensemble_config import NESBSConfig, nesbs_config
from archray.platform.methods.ensembles.posterior_stage import POSTERIOR
from archray.platform.methods.ensembles.posterior_stage import STAGE as POSTERIOR_STAGE
from archray.platform.methods.ensembles.supernet_stage import STAGE as SUPERNET
from archray.platform.methods.ensembles.supernet_stage import WEIGHTS, supernet_inputs, supernet_settings
from archray.platform.methods.training_stages import failure_reasons
from archray.platform.run.run import digest
from archray.searchers import NESBSSearch, drive
from archray.searchers.nesbs.posterior import Posterior
from archray.seeds import stage_seed
from archray.trainables.data import load_images
from archray.trainables.ensembles import CachedEnsembles
from archray.trainables.spaces import get_space, posterior_decisions
from archray.trainables.supernets import read_weights
from archray.trainables.supernets.networks import groups
from archray.trainables.supernets.networks.group import NONE
from archray.trainables.tune.shared_predictions import SharedPredictions
from archray.trainables.tune.supernet_scorer import arrays_of

STAGE, TRIALS, MEMBERS = "search", "trials.parquet", "members.parquet"
METRIC = "validation_loss"


def _search_inputs(context: Context) -> dict[str, Any]:
    config = nesbs_config(context.run)
    uniform = config.search.sampler == "uniform"
    return {
        **_prediction_inputs(context),
        "posterior": None if uniform else context.folder(POSTERIOR_STAGE).sha256(POSTERIOR),
        "search": config.search.model_dump(mode="json"),
        "sampled_size": config.sampled_size,
        "sampled": config.sampled,
        "seed": config.seed,
    }


def _prediction_inputs(context: Context) -> dict[str, Any]:
    """What the predictions of members depend on."""
    return {**supernet_inputs(context), "weights": context.folder(SUPERNET).sha256(WEIGHTS)}


def _search(context: Context, folder: Folder) -> None:
    config = nesbs_config(context.run)
    posterior = _posterior(context)

    def fresh() -> NESBSSearch:
        seed = stage_seed(config.seed, STAGE)
        options = config.search.searcher_options() | {"budget": config.sampled}
        return NESBSSearch(posterior, ensemble_size=config.sampled_size, seed=seed, **options)

    ensembles = _evaluator(context, folder)
    if not fresh().depends_on_results:  # all members are known at once, and are predicted over the whole cluster
        planned = drive(fresh(), lambda suggested: 0.0)
        ensembles.add(member for members in planned["members"] for member in members)

    def evaluate(suggested: dict[str, Any]) -> dict[str, Any]:
        try:
            return ensembles(suggested)
        except RunInterrupted as stopped:  # which `drive` would take for the failure of a trial
            raise KeyboardInterrupt(str(stopped)) from stopped

    searcher = fresh()
    trials = _trial_table(drive(searcher, evaluate), config)
    folder.write_parquet(TRIALS, trials)
    folder.write_parquet(MEMBERS, pd.DataFrame(ensembles.members()))
    folder.write_parquet("asked.parquet", searcher.asked())
    usable = trials[trials[METRIC].notna()]
    if usable.empty:
        raise ArchrayError(f"none of the {len(trials)} ensembles has a loss: {failure_reasons(trials)}")
    best = usable.iloc[int(usable[METRIC].argmin())]
    folder.write_json(
        "architecture.json",
        {
            "members": list(best["members"]),
            "value": float(best[METRIC]),
            "metric": METRIC,
            "validation_accuracy": 1 - float(best["validation_error"]),
            "delta": None if math.isnan(best["delta"]) else float(best["delta"]),
            "average": config.search.average,
        },
    )
    context.console.print(
        f"    best of {len(trials)}: {METRIC} {best[METRIC]:.4f}, of {len(ensembles.members())} members with shared "
        "weights",
        soft_wrap=True,
    )


def _posterior(context: Context) -> Posterior:
    """The posterior that was learnt, or the uniform one over what the supernet can find."""
    run, config = context.run, nesbs_config(context.run)
    if config.search.sampler != "uniform":
        return Posterior(context.folder(POSTERIOR_STAGE).read_json(POSTERIOR), run.space)
    options = config.supernet
    known = groups(run.space, partial_channels=options.partial_channels, none=options.none)
    none = any(NONE in group.operations for group in known)
    equal = {
        decision.name: [0.0 if none or choice != NONE else None for choice in decision.choices]
        for decision in posterior_decisions(get_space(run.space))
    }
    return Posterior(equal, run.space)  # type: ignore[arg-type]  # None is an impossible choice


def _evaluator(context: Context, folder: Folder) -> CachedEnsembles:
    """Predictions of members by actors over the cluster; what is in the folder is not computed again."""
    config, resources = nesbs_config(context.run), context.run.config.resources
    weights = arrays_of(read_weights(f"{context.folder(SUPERNET).uri}/{WEIGHTS}"))
    kwargs = {"settings": supernet_settings(context), "weights": ray.put(weights), "device": device_of(resources)}

    def predict(members: Sequence[str]) -> Iterator[list[Outcome]]:
        answers = actor_map(
            SharedPredictions,
            members,
            worker_kwargs=kwargs,
            num_actors=min(len(members), actor_count(resources)),
            chunk_size=1,
            num_cpus=resources.cpus_per_trial,
            num_gpus=resources.gpus(),
            stop=lambda: INTERRUPT.requested,
        )
        with stop_gracefully(context.console, "the members under way are predicted"), closing(answers):
            yield from answers

    labels = load_images(context.run.data).validation.labels.cpu().numpy()
    kept = folder / f"predictions-{digest(_prediction_inputs(context))}"
    return CachedEnsembles(labels, predict, kept, config.search.average)


def _trial_table(driven: pd.DataFrame, config: NESBSConfig) -> pd.DataFrame:
    """A row per sampled ensemble, in order: see `RunView.ensembles`; `seed`, and what the evaluator reported."""
    search = config.search
    told = driven.drop(columns=["trial_id", "value"])
    told.insert(0, "number", range(len(told)))
    told["sampler"] = search.sampler
    told["temperature"] = search.temperature if search.sampler != "uniform" else math.nan
    told["delta"] = pd.to_numeric(told["delta"]).astype(float)
    told["failure"] = told["failure"].astype("string")
    return told


def search_stage() -> Stage:
    return Stage(STAGE, "sample ensembles, and evaluate them with the shared weights", _search_inputs, _search)
