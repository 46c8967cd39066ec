"""Stages of searches for an ensemble: supernet, posterior, and evaluation of ensembles with shared weights.

Shu 2022, section 5.2.1 (a uniform path in each step), Eq. 5.4 and Algorithm 5.1, lines 4 to 7.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import ray
from ray import tune

from archray.cluster.actor_pool import Outcome
from archray.errors import ArchrayError, RunInterrupted
from archray.files import Folder
from archray.platform.durable.interrupt import INTERRUPT, stop_gracefully
from archray.platform.engine.run_costs import searched_space
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import failure_reasons
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.ensembles import final, pool
from archray.platform.methods.ensembles.config import NESBSConfig, SamplingOptions
from archray.platform.methods.ensembles.tables import MEMBERS, POSTERIOR, POSTERIOR_LEARNT, SEARCH, SUPERNET
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.stages import COMPARISON_STAGE, training_amount
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import CURVES, FOUND, TRIALS
from archray.platform.run.manifest import digest
from archray.plurals import count
from archray.searchers import NESBSSearch, drive
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.checkpoint import read_state, read_weights, write_weights
from archray.trainables.data import load_images
from archray.trainables.ensembles.evaluator import CachedEnsembles
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks.supernet import possible_choices
from archray.trainables.tune.scorers import SharedPredictions, arrays_of
from archray.trainables.tune.settings import PosteriorSettings, SupernetSettings
from archray.trainables.tune.supernet_trainable import PosteriorTrainable, SupernetTrainable

WEIGHTS = "weights.pt"
MIXTURE = "mixture_accuracy"


def _single_trial(context: Context[NESBSConfig], stage: str, **plan: Any) -> TrialPlan:
    """The plan of one trial with the seed of the stage. plan: fields of `TrialPlan`; a larger metric is better."""
    return TrialPlan(mode="max", total=1, keys={"seed": tune.grid_search([context.seed(stage)])}, at_most=1, **plan)


def supernet_settings(context: Context[NESBSConfig]) -> dict[str, Any]:
    """The settings of the run's `SupernetTrainable`, with space and data from the run's folder."""
    run, options = context.run, dict(context.config.trained_supernet)
    return SupernetSettings(**options, space=run.space, data=run.data).model_dump(mode="json")


def _write_trained(context: Context[NESBSConfig], folder: Folder, run: TuneRun) -> None:
    for name, table in ((TRIALS, run.trials), (CURVES, run.curves)):  # without the columns whose cells contain tables
        folder.write_parquet(name, table.drop(columns=["updates", "posterior"], errors="ignore"))
    [result] = run.ended
    checkpoint = run.checkpoint(result)
    if checkpoint is None:
        raise ArchrayError(f"training the supernet failed: {run.failures}")
    metrics = result.metrics or {}
    with checkpoint.as_directory() as place:
        state = read_state(Path(place))["trainer"]["supernet"]
    write_weights(folder.uri, WEIGHTS, state)
    updates = pd.DataFrame(json.loads(metrics["updates"]))
    folder.write_parquet("updates.parquet", updates)
    if metrics.get("posterior") is not None:  # the best-response posterior, learned with the weights
        folder.write_json(POSTERIOR, json.loads(metrics["posterior"]))
    context.say(
        f"{quantity_of(MIXTURE).text(metrics[MIXTURE])} of random paths; {updates['updates'].min()} to "
        f"{updates['updates'].max()} updates per operation"
    )


SUPERNET_STAGE = TuneStage[NESBSConfig](
    name=SUPERNET,
    title="train a supernet on random paths",
    reads=("trained_supernet",),
    plan=lambda context, tuned: _single_trial(
        context,
        SUPERNET,
        trainable=SupernetTrainable,
        settings=supernet_settings(context),
        metric=MIXTURE,
        reads_checkpoints=True,
    ),
    finish=_write_trained,
    amount=lambda config: training_amount(1, config.supernet.training, "supernet"),
)


def _posterior_trial(context: Context[NESBSConfig], tuned: Folder) -> TrialPlan | None:
    run, config = context.run, context.config
    if config.best_response:
        tuned.parent.write_json(POSTERIOR, context.folder(SUPERNET).read_json(POSTERIOR))
        context.say("skipped: the posterior was learned with the supernet")
        return None
    settings = PosteriorSettings(
        **dict(config.posterior),
        space=run.space,
        data=run.data,
        supernet=config.supernet,
        weights=(context.folder(SUPERNET) / WEIGHTS).uri,
    ).model_dump(mode="json")
    return _single_trial(context, POSTERIOR_LEARNT, trainable=PosteriorTrainable, settings=settings, metric="elbo")


def _write_posterior(context: Context[NESBSConfig], folder: Folder, run: TuneRun) -> None:
    [result] = run.ended
    metrics = result.metrics or {}
    if metrics.get("posterior") is None:
        raise ArchrayError(f"learning the posterior failed: {run.failures}")
    folder.write_parquet(CURVES, entropy_curves(context.run.space, run.epochs))
    folder.write_json(POSTERIOR, Posterior(json.loads(metrics["posterior"]), context.run.space).to_dict())
    context.say(
        f"{quantity_of('elbo').text(metrics['elbo'])} at scale {metrics['scale']:g}, KL {metrics['kl']:.4f}, mean "
        f"entropy per decision {metrics['entropy']:.4f} nats"
    )


def entropy_curves(space: str, results: pd.DataFrame) -> pd.DataFrame:
    """A row per epoch and decision with two or more choices: `epoch`, `decision`, `entropy` (nats); and `elbo`, `kl`,
    `expected_loss` (nats) and `scale`, which are equal in all rows of an epoch."""
    decisions = get_space(space).posterior_decisions
    rows = [
        {
            **{name: epoch[name] for name in ("epoch", "elbo", "kl", "expected_loss", "scale")},
            "decision": decision.name,
            "entropy": entropy,
        }
        for epoch in results.drop_duplicates("epoch", keep="last").sort_values("epoch").to_dict("records")
        for decision, entropy in zip(decisions, epoch["entropies"], strict=True)
        if len(decision.choices) > 1
    ]
    return pd.DataFrame(rows)


POSTERIOR_STAGE = TuneStage[NESBSConfig](
    name=POSTERIOR_LEARNT,
    title="learn a posterior over architectures with the supernet's weights",
    reads=("trained_supernet", "posterior", "best_response"),
    depends=file_digests(f"{SUPERNET}/{WEIGHTS}"),
    plan=_posterior_trial,
    finish=_write_posterior,
    amount=lambda config: (
        "none: learned with the supernet" if config.best_response else count(config.posterior.epochs, "epoch")
    ),
)


METRIC = "shared_loss"
IN_OUR_WORDS = {"loss": METRIC, "accuracy": "shared_accuracy"}  # columns of the evaluator for a single member
OF_ENSEMBLES = {"validation_loss": METRIC, "validation_accuracy": "shared_accuracy"}  # and for an ensemble


def _depends(context: Context[NESBSConfig]) -> dict[str, Any]:
    learned = context.config.search.sampler.of_the_posterior
    posterior = context.folder(POSTERIOR_LEARNT).sha256(POSTERIOR) if learned else None
    return {"weights": context.folder(SUPERNET).sha256(WEIGHTS), "posterior": posterior}


def _search(context: Context[NESBSConfig], folder: Folder) -> None:
    config = context.config
    posterior = _posterior(context)

    def fresh() -> NESBSSearch:
        options = {name: value for name, value in config.search if name != "average"} | {"budget": config.sampled}
        return NESBSSearch(posterior, ensemble_size=config.member_count, seed=context.seed(SEARCH), **options)

    ensembles = _evaluator(context, folder)
    if not fresh().depends_on_results:  # all members are known in advance, and the whole cluster predicts with them
        planned = drive(fresh(), lambda suggested: 0.0)
        ensembles.add(member for members in planned["members"] for member in members)

    def evaluate(suggested: dict[str, Any]) -> dict[str, Any]:
        try:
            return ensembles(suggested)
        except RunInterrupted as stopped:  # which `drive` would record as the failure of a trial
            raise KeyboardInterrupt(str(stopped)) from stopped

    searcher = fresh()
    trials = _trial_table(drive(searcher, evaluate), config.search)
    folder.write_parquet(TRIALS, trials)
    folder.write_parquet(MEMBERS, pd.DataFrame(ensembles.members()).rename(columns=IN_OUR_WORDS))
    folder.write_parquet("suggestions.parquet", searcher.questions())
    usable = trials[trials[METRIC].notna()]
    if usable.empty:
        raise ArchrayError(f"none of {count(len(trials), 'ensemble')} has a finite loss: {failure_reasons(trials)}")
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
    evaluated = count(len(ensembles.members()), "architecture")
    if len(best["members"]) > 1:
        evaluated = f"{count(len(trials), 'ensemble')} of {evaluated}"
    context.say(f"evaluated {evaluated}; the best has {quantity_of(METRIC).text(best[METRIC])}")


def _posterior(context: Context[NESBSConfig]) -> Posterior:
    """The learned posterior, or the uniform distribution over the architectures that the supernet can find."""
    run, config = context.run, context.config
    if config.search.sampler.of_the_posterior:
        return Posterior(context.folder(POSTERIOR_LEARNT).read_json(POSTERIOR), searched_space(context))
    groups = config.supernet.groups(run.space)
    equal = {
        decision.name: [0.0 if choice in possible_choices(decision, groups) else None for choice in decision.choices]
        for decision in get_space(run.space).posterior_decisions
    }
    return Posterior(equal, searched_space(context))  # type: ignore[arg-type]  # None marks an impossible choice


def _evaluator(context: Context[NESBSConfig], folder: Folder) -> CachedEnsembles:
    """Predictions of members by actors over the cluster; predictions in the folder are reused."""
    config, resources = context.config, context.config.resources
    weights = arrays_of(read_weights((context.folder(SUPERNET) / WEIGHTS).uri))
    kwargs = {"settings": supernet_settings(context), "weights": ray.put(weights)}
    options = {"title": context.labels(folder.name).title, "stop": lambda: INTERRUPT.requested}

    def predict(members: Sequence[str]) -> Iterator[list[Outcome]]:
        answers = final.map_over_cluster(SharedPredictions, members, kwargs, resources, **options)
        with stop_gracefully(context.console, "the predictions in progress have finished"), closing(answers):
            yield from answers

    labels = load_images(context.run.data).validation.labels.cpu().numpy()
    trained = config.trained_supernet.model_dump(mode="json")
    data = context.run.manifest["data_checksum"]
    inputs = digest({"data": data, "supernet": trained, "weights": context.folder(SUPERNET).sha256(WEIGHTS)})
    return CachedEnsembles(labels, predict, folder / f"predictions-{inputs}", config.search.average)


def _trial_table(driven: pd.DataFrame, search: SamplingOptions) -> pd.DataFrame:
    """A row per sampled ensemble, in order: `number`, `sampler`, `delta` (NaN if the sampler has no delta),
    `temperature`, `members`, `seed`, and the results `shared_loss`, `shared_accuracy`, `failure`, ..."""
    table = driven.drop(columns=["trial_id", "value"]).rename(columns=OF_ENSEMBLES)
    table.insert(0, "number", range(len(table)))
    table["sampler"] = search.sampler.name
    table["temperature"] = search.temperature if search.sampler.of_the_posterior else math.nan
    table["delta"] = pd.to_numeric(table["delta"]).astype(float)
    table["failure"] = table["failure"].astype("string")
    return table


SAMPLING_STAGE = WorkStage[NESBSConfig](
    name=SEARCH,
    title="sample ensembles, and evaluate them with shared weights",
    reads=("trained_supernet", "search", "member_count", "sampled"),
    depends=_depends,
    work=_search,
    amount=lambda config: f"{count(config.sampled, 'evaluation')} of {count(config.member_count, 'architecture')}",
)


_recipe = partial(Recipe[Any], report_at="archray.platform.methods.ensembles.report:REPORT")
_ENSEMBLE = (final.FINAL_ENSEMBLE_STAGE, COMPARISON_STAGE)
_ONE_ARCHITECTURE = (pool.SMALL_POOL_STAGE, pool.ONE_ARCHITECTURE_STAGE)

NESBS = _recipe(stages=(SUPERNET_STAGE, POSTERIOR_STAGE, SAMPLING_STAGE, *_ENSEMBLE))
URS = _recipe(stages=(SUPERNET_STAGE, SAMPLING_STAGE, *_ENSEMBLE))
DEEP_ENSEMBLE = _recipe(stages=(*_ONE_ARCHITECTURE, *_ENSEMBLE))
SNAPSHOT = _recipe(stages=(*_ONE_ARCHITECTURE, final.SNAPSHOT_STAGE, COMPARISON_STAGE))
MC_DROPPATH = _recipe(stages=(*_ONE_ARCHITECTURE, final.DROP_PATH_STAGE, COMPARISON_STAGE))
NES_RS = _recipe(stages=(pool.DRAWN_POOL_STAGE, pool.MEMBER_SELECTION_STAGE, *_ENSEMBLE))
NES_RE = _recipe(stages=(pool.EVOLVED_POOL_STAGE, pool.MEMBER_SELECTION_STAGE, *_ENSEMBLE))
