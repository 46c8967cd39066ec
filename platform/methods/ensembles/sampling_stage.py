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

from archray.cluster.actor_pool import Outcome, actor_map
from archray.cluster.settings import actor_count
from archray.errors import ArchrayError, RunInterrupted
from archray.files import Folder
from archray.platform.engine.interrupt import INTERRUPT, stop_gracefully
from archray.platform.engine.pool_scoring import device_of
from archray.platform.engine.run_costs import searched_space
from archray.platform.engine.stage import Context, WorkStage
from archray.platform.engine.trial_tables import failure_reasons
from archray.platform.methods.ensembles.ensemble_config import NESBSConfig, SamplingOptions
from archray.platform.methods.ensembles.ensemble_tables import MEMBERS, POSTERIOR, POSTERIOR_LEARNT, SEARCH, SUPERNET
from archray.platform.methods.ensembles.posterior_stage import WEIGHTS, supernet_settings
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND, TRIALS
from archray.platform.run.manifest import digest
from archray.plurals import count
from archray.searchers import NESBSSearch, drive
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.checkpoint import read_weights
from archray.trainables.data import load_images
from archray.trainables.ensembles import CachedEnsembles
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks.supernet import possible_choices
from archray.trainables.tune.scorers import SharedPredictions, arrays_of

METRIC = "shared_loss"
IN_OUR_WORDS = {"loss": METRIC, "accuracy": "shared_accuracy"}  # what the evaluator says of one member
OF_ENSEMBLES = {"validation_loss": METRIC, "validation_accuracy": "shared_accuracy"}  # and of an ensemble


def _depends(context: Context[NESBSConfig]) -> dict[str, Any]:
    learnt = context.config.search.sampler.of_the_posterior
    posterior = context.folder(POSTERIOR_LEARNT).sha256(POSTERIOR) if learnt else None
    return {"weights": context.folder(SUPERNET).sha256(WEIGHTS), "posterior": posterior}


def _search(context: Context[NESBSConfig], folder: Folder) -> None:
    config = context.config
    posterior = _posterior(context)

    def fresh() -> NESBSSearch:
        options = {name: value for name, value in config.search if name != "average"} | {"budget": config.sampled}
        return NESBSSearch(posterior, ensemble_size=config.member_count, seed=context.seed(SEARCH), **options)

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
    trials = _trial_table(drive(searcher, evaluate), config.search)
    folder.write_parquet(TRIALS, trials)
    folder.write_parquet(MEMBERS, pd.DataFrame(ensembles.members()).rename(columns=IN_OUR_WORDS))
    folder.write_parquet("asked.parquet", searcher.questions())
    usable = trials[trials[METRIC].notna()]
    if usable.empty:
        raise ArchrayError(f"none of {count(len(trials), 'ensemble')} has a loss: {failure_reasons(trials)}")
    best = usable.iloc[int(usable[METRIC].argmin())]
    folder.write_json(
        FOUND,
        {
            "members": list(best["members"]),
            "value": float(best[METRIC]),
            "metric": METRIC,
            "shared_accuracy": float(best["shared_accuracy"]),
            "delta": None if math.isnan(best["delta"]) else float(best["delta"]),
            "average": config.search.average,
        },
    )
    context.say(
        f"{count(len(trials), 'ensemble')} evaluated, of {count(len(ensembles.members()), 'architecture')}; the best "
        f"has {quantity_of(METRIC).told(best[METRIC])}"
    )


def _posterior(context: Context[NESBSConfig]) -> Posterior:
    """The posterior that was learnt, or the uniform one over what the supernet can find."""
    run, config = context.run, context.config
    if config.search.sampler.of_the_posterior:
        return Posterior(context.folder(POSTERIOR_LEARNT).read_json(POSTERIOR), searched_space(context))
    known = config.supernet.groups(run.space)
    equal = {
        decision.name: [0.0 if choice in possible_choices(decision, known) else None for choice in decision.choices]
        for decision in get_space(run.space).posterior_decisions
    }
    return Posterior(equal, searched_space(context))  # type: ignore[arg-type]  # None is an impossible choice


def _evaluator(context: Context[NESBSConfig], folder: Folder) -> CachedEnsembles:
    """Predictions of members by actors over the cluster; what is in the folder is not computed again."""
    config, resources = context.config, context.config.resources
    weights = arrays_of(read_weights((context.folder(SUPERNET) / WEIGHTS).uri))
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
            title=context.labels(folder.name).title,
            stop=lambda: INTERRUPT.requested,
        )
        with stop_gracefully(context.console, "the members under way are predicted"), closing(answers):
            yield from answers

    labels = load_images(context.run.data).validation.labels.cpu().numpy()
    trained = config.trained_supernet.model_dump(mode="json")
    data = context.run.manifest["data_checksum"]
    inputs = digest({"data": data, "supernet": trained, "weights": context.folder(SUPERNET).sha256(WEIGHTS)})
    return CachedEnsembles(labels, predict, folder / f"predictions-{inputs}", config.search.average)


def _trial_table(driven: pd.DataFrame, search: SamplingOptions) -> pd.DataFrame:
    """A row per sampled ensemble, in order: `number`, `sampler`, `delta` (NaN for a sampler without), `temperature`,
    `members`, `seed`, and what the evaluator reported: `shared_loss`, `shared_accuracy`, `failure`, ..."""
    table = driven.drop(columns=["trial_id", "value"]).rename(columns=OF_ENSEMBLES)
    table.insert(0, "number", range(len(table)))
    table["sampler"] = search.sampler.name
    table["temperature"] = search.temperature if search.sampler.of_the_posterior else math.nan
    table["delta"] = pd.to_numeric(table["delta"]).astype(float)
    table["failure"] = table["failure"].astype("string")
    return table


SAMPLING_STAGE = WorkStage[NESBSConfig](
    name=SEARCH,
    title="sample ensembles, and evaluate them with the shared weights",
    reads=("trained_supernet", "search", "member_count", "sampled"),
    depends=_depends,
    work=_search,
    amount=lambda config: f"{count(config.sampled, 'suggestion')} of {count(config.member_count, 'architecture')}",
)
