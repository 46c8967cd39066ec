"""Stages that families share: a scored pool, final training, networks for comparison, plans of short training runs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ray import tune
from ray.tune import Result

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.pool_scoring import POOL, score_pool
from archray.platform.engine.run_costs import (
    feasible_candidates,
    feasible_rows,
    has_costs,
    image_sizes,
    joint_space,
    with_costs,
    with_decisions,
)
from archray.platform.engine.settings import all_forms, candidates, distinct, fewer
from archray.platform.engine.stage import Context, Work, WorkStage, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.config import FinalConfig, PooledConfig, TrainedSearchConfig
from archray.platform.quantities import as_float, quantity_of
from archray.platform.run.layout import CURVES, FOUND, LARGEST, MODEL, TRIALS
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers import ArchraySearcher, RandomSearch
from archray.seeds import first_seeds, named_rng
from archray.trainables.spaces import get_space
from archray.trainables.training_settings import SGDSettings, TrainingSettings


def _score(context: Context[PooledConfig], folder: Folder) -> None:
    config, run = context.config, context.run
    if (source := config.pool.table) is not None:
        table = pd.read_csv(source) if source.endswith(".csv") else pd.read_parquet(source)
        context.say(f"read {count(len(table), 'architecture')} from {source}")
        folder.write_parquet(POOL, feasible_rows(context, with_costs(context, table)))
        return
    metrics = tuple(config.metrics_of(run).values())
    seed = context.seed("pool")
    sample = feasible_candidates(context, config.pool.size, seed)
    if sample is None:
        sample = candidates(run.space, config.pool.size, seed)
        if line := fewer(len(sample), config.pool.size, config.space):
            context.say(line)
    score_pool(
        folder,
        sample,
        space=run.space,
        data=run.data,
        proxy=config.scored.model_copy(update={"metrics": metrics}),
        resources=config.resources,
        console=context.console,
        chunk=config.pool.chunk,
        labels=context.labels(folder.name),
    )
    if has_costs(context):
        folder.write_parquet(POOL, with_costs(context, folder.read_parquet(POOL)))


def _amount(config: PooledConfig) -> str | Work:
    pool = config.pool
    if pool.table is not None:
        return f"none: scores are read from {pool.table}"
    if pool.size is None or pool.size >= get_space(config.space).size:
        return "all canonical architectures of the space"
    return Work(count(pool.size, "architecture"), pool.size, config.scored)


POOL_STAGE = WorkStage[PooledConfig](
    name="pool",
    title="score architectures without training",
    reads=("scored", "pool.size", "pool.table"),
    work=_score,
    amount=_amount,
)


ACCURACY = "validation_accuracy"


def training_amount(number: int, training: SGDSettings, one: str = "training run") -> Work:
    """Returns the amount of work of a stage: `8 training runs of 4 epochs`. one: the noun to count."""
    text = f"{count(number, one)} of {count(training.epochs, 'epoch')}" if number else "none"
    return Work(text, number, training, training.epochs)


def best_result(results: Sequence[Result]) -> Result | None:
    """The trial with the best validation accuracy, the first among equals; None if all trials failed."""
    usable = [result for result in results if result.checkpoint and not math.isnan(_accuracy(result))]
    return max(usable, key=_accuracy, default=None)


def _accuracy(result: Result) -> float:
    """The validation accuracy of a trial; NaN for a failed trial."""
    metrics = result.metrics or {}
    failed = result.error is not None or metrics.get("failure") is not None
    return math.nan if failed else as_float(metrics.get(ACCURACY))


def _write_network(folder: Folder, place: Path, run: Run[Any]) -> None:
    from archray.platform.models.model_files import write_network  # torch and scikit-learn

    write_network(folder, place, run)


Write = Callable[[Folder, Path, Run[Any]], None]  # writes a model into a folder, from the folder of a checkpoint


def write_model(folder: Folder, result: Result, run: Run[Any], write: Write = _write_network) -> None:
    """Writes the model of a trial, by default a network."""
    assert result.checkpoint is not None  # a result of `best_result`
    with result.checkpoint.as_directory() as place:
        write(folder, Path(place), run)


def final_stage(
    title: str,
    *,
    reads: Sequence[str],
    trials: Callable[..., TrialPlan],
    amount: Callable[[Any], str | Work],
    write: Write = _write_network,
) -> TuneStage[FinalConfig]:
    """The stage that trains the best architecture with each final seed.

    It writes the network with the best validation accuracy to `model/`.

    Args:
        title: title of the stage.
        reads: paths in the configuration on which a training run depends, besides the architecture.
        trials: function that makes the plan from the context, `total` and `keys`.
        amount: function that describes the amount of work.
        write: function that writes the model, by default a network.
    """

    def plan(context: Context[FinalConfig], tuned: Folder) -> TrialPlan:
        seeds = first_seeds(context.seed("final"), context.config.final_seeds)
        keys = {"architecture": context.run.architecture, "seed": tune.grid_search(seeds)}
        return trials(context, total=len(seeds), keys=keys, reads_checkpoints=True)

    def finish(context: Context[FinalConfig], folder: Folder, run: TuneRun) -> None:
        best = best_result(run.ended)
        if best is None:
            raise ArchrayError(f"the final training of {context.run.architecture} failed: {run.failures}")
        write_model(folder / MODEL, best, context.run, write)

    return TuneStage(
        name="final",
        title=title,
        reads=(*reads, "final_seeds"),
        depends=lambda context: {"architecture": context.run.architecture},
        plan=plan,
        finish=finish,
        amount=amount,
    )


def training_plan(
    context: Context[TrainedSearchConfig],
    training: TrainingSettings,
    *,
    test: bool,
    trainable: type[tune.Trainable] | None = None,
    settings: dict[str, Any] | None = None,
    **plan: Any,
) -> TrialPlan:
    """A plan of standalone training runs.

    Args:
        context: context of the stage.
        training: settings of the training.
        test: whether the last epoch evaluates on the test split.
        trainable: class of the trials; None: `StandaloneTrainable`.
        settings: additional settings of `trainable`, besides the settings of `StandaloneTrainable`.
        plan: additional fields of `TrialPlan`.
    """
    from archray.trainables.tune.standalone_trainable import StandaloneSettings, StandaloneTrainable  # torch

    run, weights = context.run, context.config.network.weights
    if weights is not None:
        context.say(f"every network starts from the weights in {weights}")
    standalone = StandaloneSettings(
        space=run.space,
        data=run.data,
        network=context.config.network,
        training=training,
        evaluate_test="last" if test else "never",
        decided=tuple(context.config.training_decisions),
    )
    return TrialPlan(
        trainable=trainable or StandaloneTrainable,
        settings=standalone.model_dump(mode="json") | (settings or {}),
        metric=ACCURACY,
        mode="max",
        **plan,
    )


def final_trials(context: Context[TrainedSearchConfig], **plan: Any) -> TrialPlan:
    """A plan of full training runs with the settings `final` of the configuration."""
    from archray.trainables.tune.parallel_trainable import ParallelTrainable  # torch

    workers = context.config.resources.train_workers
    trainable = None if workers == 1 else ParallelTrainable
    return training_plan(context, context.config.final, test=True, trainable=trainable, workers=workers, **plan)


def decision_inputs(context: Context[Any]) -> dict[str, Any]:
    """The inputs of a stage that draws training decisions; empty without them."""
    decisions = context.config.training_decisions
    return {"decide": dict(decisions)} if decisions else {}


def _random_trials(
    context: Context[TrainedSearchConfig], tuned: Folder, first: Sequence[str] = (), **plan: Any
) -> TrialPlan | None:
    """A plan that trains the architectures `first`, and as many random ones as the configuration says."""
    if context.config.baseline == 0:
        context.say("skipped: baseline is 0")
        return None
    seed, space = context.seed("baseline"), joint_space(context)
    total = distinct(len(first) + context.config.baseline, get_space(space))
    points = [{"architecture": name} for name in first]

    def searcher() -> RandomSearch:
        return RandomSearch(space, budget=total, seed=seed, points_to_evaluate=points)

    return final_trials(context, total=total, searcher=searcher, **plan)


FINAL_STAGE = final_stage(
    "train the best architecture",
    reads=("network", "final"),
    trials=final_trials,
    amount=lambda config: training_amount(config.final_seeds, config.final),
)
COMPARISON_STAGE = TuneStage[TrainedSearchConfig](
    name="baseline",
    title="train random architectures for comparison",
    reads=("network", "final", "baseline"),
    depends=decision_inputs,
    plan=_random_trials,
    amount=lambda config: training_amount(config.baseline, config.final),
)


# The comparison of a search for one network, with the largest network and random ones. A network with a better
# validation accuracy is the result of the run, see `Run.result`. The result of other searches is no such network: an
# ensemble, a Pareto front, a row of a table.

CANDIDATES = 50  # without sizes in a pool, the largest of as many architectures is trained


def small_space(config: TrainedSearchConfig, space: str) -> list[str] | None:
    """All architectures of a space, with training decisions, if the comparison can train the whole space; else None.

    The stage `final` trains one of them. Constraints are not considered.
    """
    whole = with_decisions(get_space(space), config.training_decisions)
    return all_forms(whole, config.baseline + 1) if config.baseline else None


def _comparison_inputs(context: Context[TrainedSearchConfig]) -> Mapping[str, Any]:
    whole = small_space(context.config, context.run.space) is not None
    pool = context.folder("pool").exists(POOL)
    return (
        decision_inputs(context)
        | ({"architecture": context.run.architecture} if whole else {})
        | (file_digests(f"pool/{POOL}")(context) if pool else {})
    )


def _comparison(context: Context[TrainedSearchConfig], tuned: Folder) -> TrialPlan | None:
    folder = tuned.parent
    _remove_choice(folder)
    if small_space(context.config, context.run.space) is None:
        largest = _largest(context) if context.config.baseline else None
        if largest is not None:
            folder.write_json(LARGEST, largest)
        first = [] if largest is None else [largest["architecture"]]
        return _random_trials(context, tuned, first, reads_checkpoints=True)
    space = get_space(joint_space(context))
    found = space.encode(space.canonical(space.decode(str(context.run.architecture))))
    forms = all_forms(space, context.config.baseline + 1) or []
    words = f"{count(len(forms), 'architecture')}{' that meet the constraints' if context.config.constraints else ''}"
    context.say(f"the space has {words}, so all are trained, and the best by validation accuracy is the result")
    if (largest := _largest_of(context, forms)) is not None:
        folder.write_json(LARGEST, largest)
    others = [name for name in forms if name != found]
    if not others:
        return None
    keys = {"architecture": tune.grid_search(others), "seed": first_seeds(context.seed("final"), 1)[0]}
    return final_trials(context, total=len(others), keys=keys, reads_checkpoints=True)


def _largest(context: Context[TrainedSearchConfig]) -> dict[str, Any] | None:
    """The largest architecture of the scored pool or, without a pool, of CANDIDATES random ones; None if all fail."""
    pool = context.run.table("pool", POOL)
    if pool.empty:
        space, rng = get_space(joint_space(context)), named_rng(context.seed("baseline"), "largest")
        drawn = (space.encode(space.canonical(space.sample(rng))) for _ in range(CANDIDATES))
        return _largest_of(context, list(dict.fromkeys(drawn)))
    if "parameters" not in pool:
        return _largest_of(context, pool["architecture"][:CANDIDATES].tolist())
    return _row_of_largest(pool)


def _largest_of(context: Context[TrainedSearchConfig], names: Sequence[str]) -> dict[str, Any] | None:
    from archray.trainables.costs import NetworkCosts  # torch

    images: dict[str, Any] = image_sizes(context)
    costs = NetworkCosts(context.run.space, ("parameters",), network=context.config.network, **images)
    sizes = costs.frame([context.config.parts(name)[0] for name in names])
    return _row_of_largest(sizes.assign(architecture=names))


def _row_of_largest(sizes: pd.DataFrame) -> dict[str, Any] | None:
    """The content of LARGEST; None if no architecture has a size."""
    parameters = sizes["parameters"].to_numpy(dtype=float)
    if np.isnan(parameters).all():
        return None
    row = int(np.nanargmax(parameters))
    return {"architecture": str(sizes["architecture"].iloc[row]), "of": len(sizes)}


def _remove_choice(folder: Folder) -> None:
    """Removes the files of a comparison with other settings."""
    for name in (FOUND, LARGEST, TRIALS, CURVES):
        if folder.exists(name):
            folder.delete(name)
    if MODEL in folder.folders():
        (folder / MODEL).remove()


def _write_best(context: Context[TrainedSearchConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the best network of the comparison, which is the result if it is better than the found network."""
    best = best_result(run.ended)
    if best is None:
        return
    write_model(folder / MODEL, best, context.run)
    name = str((best.config or {})["architecture"])
    document = {"architecture": name, "value": _accuracy(best), "metric": "final_accuracy"}
    if training := context.config.parts(name)[1]:
        document["training"] = training
    largest = context.run.document("baseline", LARGEST) or {}
    origin = "largest" if name == largest.get("architecture") else "random"
    folder.write_json(FOUND, {**document, "origin": origin if run.plan.searcher else "space"})
    result = context.run.result or {}
    value = quantity_of("final_accuracy").text(result["final_accuracy"])
    place = "instead of the found architecture" if "found" in result else "the architecture that the search found"
    context.say(f"the result is {result['architecture']}, {place}: it has the best {value}")


def _comparison_amount(config: TrainedSearchConfig) -> Work:
    whole = small_space(config, config.space)
    number = len(whole) - 1 if whole is not None else config.baseline + 1 if config.baseline else 0
    work = training_amount(number, config.final)
    words = f"the largest and {count(config.baseline, 'random architecture')}"
    words = words if whole is None else "all other architectures of the space"
    return replace(work, text=f"{words}, {work.text}") if number else work


BASELINE_STAGE = replace(
    COMPARISON_STAGE,
    title="train networks for comparison",
    depends=_comparison_inputs,
    plan=_comparison,
    finish=_write_best,
    amount=_comparison_amount,
)


SEARCHER = "searcher.json"  # the state of the searcher when the search ended


def search_plan(context: Context[Any], tuned: Folder, make: Callable[[], Any], **plan: Any) -> TrialPlan:
    """A plan of the short training runs that a searcher suggests. An extended run continues from its smaller budget.

    Args:
        context: context of the stage.
        tuned: Tune's folder in the folder of the stage.
        make: function that makes the searcher. The searcher then receives the trials of the smaller budget, if any.
        plan: additional fields of `TrialPlan`.
    """
    config, stage = context.config, tuned.parent
    smaller: dict[str, Any] | None = stage.read_json(SEARCHER) if stage.exists(SEARCHER) else None

    def searcher() -> Any:
        searcher = make()
        if smaller is not None and isinstance(searcher, ArchraySearcher):
            searcher.set_state(smaller)
        return searcher

    return training_plan(
        context,
        config.train,
        test=False,
        total=config.search.budget,
        before=0 if smaller is None else len(smaller["ledger"]["records"]),
        searcher=searcher,
        **plan,
    )


def write_state(folder: Folder, run: TuneRun) -> None:
    """Writes the state from which `search_plan` continues; nothing for a searcher of Ray Tune."""
    searcher = run.searcher()
    if isinstance(searcher, ArchraySearcher):
        folder.write_json(SEARCHER, searcher.get_state())
