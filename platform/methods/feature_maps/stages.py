"""Stages and recipes of searches for a feature map. Khodak et al. 2020, Algorithm 1, Figures 1 to 3, appendix B.1.

Searches: random search, halving with shared weights, and Ray Tune's successive halving and Hyperband with the feature
dimension as resource. Then: final solve, oracle solves and correlation. Oracle solves measure the accuracy of the best
map of each round. They do not count as solver calls or seconds (note W6).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from ray import tune
from ray.tune.schedulers import HyperBandScheduler

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.durable.replay import ResumedASHA
from archray.platform.engine.settings import fewer
from archray.platform.engine.stage import Context, Stage, WorkStage, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage, run_trials
from archray.platform.methods.feature_maps import config as configs
from archray.platform.methods.feature_maps.config import CorrelatedConfig, FeatureMapConfig
from archray.platform.methods.feature_maps.tables import CORRELATION
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.stages import ACCURACY, final_stage
from archray.platform.models.model_files import write_classifier
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND, PROGRESS, ROUNDS
from archray.platform.run.manifest import digest
from archray.plurals import count
from archray.searchers import RandomSearch, WeightSharingHalving
from archray.seeds import trial_seed
from archray.trainables.data import load_data
from archray.trainables.feature_maps.solve_settings import Bases
from archray.trainables.tune.feature_map_trainable import FeatureMapSettings, FeatureMapTrainable, feature_map_space

READS = ("solve", "full_dimension")  # paths in the configuration on which every solve depends
MAX_DRAWS = 1000  # draws that may repeat a feature map


def sample_candidates(context: Context[FeatureMapConfig], number: int) -> list[str]:
    """The candidates of the run: distinct feature maps, drawn uniformly from the space with the seed of the run.

    Naive-Bayes weights need two classes (note W8). With more classes, maps that use them are skipped.
    """
    run, config = context.run, context.config
    space = feature_map_space(run.space)
    classes = load_data(run.data).num_classes
    rng = np.random.default_rng(context.seed("candidates"))
    candidates: dict[str, None] = {}
    left_out = 0
    for _ in range(MAX_DRAWS + 10 * number):
        if len(candidates) == number:
            break
        candidate = space.encode(space.canonical(space.sample(rng)))
        if classes > 2 and space.configuration(candidate).get("weights") == "naive-bayes":
            left_out += 1
        else:
            candidates[candidate] = None
    if line := fewer(len(candidates), number, config.space):
        context.say(line)
    if left_out:
        context.say(
            f"skipping feature maps with Naive-Bayes weights: they need two classes, and {config.data.name} has "
            f"{classes}"
        )
    return list(candidates)


def solves(number: int, config: FeatureMapConfig) -> str:
    """The amount of work of a stage: `3 solves with 2 000 features`."""
    return f"{count(number, 'solve')} with {count(config.full_dimension, 'feature')}"


def solve_settings(context: Context[FeatureMapConfig], **changes: Any) -> dict[str, Any]:
    """The settings of the run's `FeatureMapTrainable`. changes: fields of `FeatureMapSettings` to override."""
    run, config = context.run, context.config
    fields: dict[str, Any] = {"solve": config.solve, "dimension": config.full_dimension, **changes}
    return FeatureMapSettings(space=run.space, data=run.data, **fields).model_dump(mode="json")


def solve_plan(context: Context[FeatureMapConfig], *, settings: dict[str, Any] | None = None, **plan: Any) -> TrialPlan:
    """A plan of solves. settings: from `solve_settings`. plan: additional fields of `TrialPlan`."""
    plan = {"settings": settings or solve_settings(context), "mode": context.config.mode, **plan}
    return TrialPlan(trainable=FeatureMapTrainable, metric="score", **plan)


def write_found_map(
    context: Context[FeatureMapConfig], folder: Folder, architecture: str, value: float, *, calls: int
) -> None:
    """Writes and prints the best feature map and its validation accuracy."""
    folder.write_json(FOUND, {"architecture": architecture, "value": value, "metric": ACCURACY})
    context.say(
        f"best feature map {architecture}  ({quantity_of(ACCURACY).text(value)}, {count(calls, 'solver call')})"
    )


FINAL_SOLVE_STAGE = final_stage(
    "solve for the best feature map without shared weights",
    reads=READS,
    trials=solve_plan,
    write=write_classifier,
    amount=lambda config: solves(config.final_seeds, config),
)


def _oracle_trials(context: Context[FeatureMapConfig], tuned: Folder) -> TrialPlan | None:
    progress = context.run.table("search", PROGRESS)
    unknown = progress["search_test_accuracy"].isna() & progress["architecture"].notna()
    leaders = list(dict.fromkeys(progress.loc[unknown, "architecture"]))
    if not leaders:
        tuned.parent.write_parquet(PROGRESS, progress)
        return None
    keys = {"architecture": tune.grid_search(leaders), "seed": context.seed("oracle")}
    return solve_plan(context, total=len(leaders), keys=keys)


def _write_oracle(context: Context[FeatureMapConfig], folder: Folder, run: TuneRun) -> None:
    progress = context.run.table("search", PROGRESS)
    accuracies = run.trials.set_index("architecture")["test_accuracy"]
    of_oracle = progress["architecture"].map(accuracies)
    progress["search_test_accuracy"] = progress["search_test_accuracy"].fillna(of_oracle)
    folder.write_parquet(PROGRESS, progress)


ORACLE_STAGE = TuneStage[FeatureMapConfig](
    name="oracle",
    title="solve for the best feature map of every round, for comparison",
    reads=READS,
    depends=file_digests(f"search/{PROGRESS}"),
    plan=_oracle_trials,
    finish=_write_oracle,
)


def _correlate(context: Context[CorrelatedConfig], folder: Folder) -> None:
    options = context.config.correlation
    if options.maps == 0:
        context.say("skipped: correlation.maps is 0")
        return
    maps = sample_candidates(context, options.maps)
    full = context.config.full_dimension
    dimensions = tuple(sorted(set(options.dimensions or (math.ceil(full / 4), math.ceil(full / 2), full))))
    alone = _standalone_accuracies(context, folder, maps, dimensions)
    shared = [_shared_accuracies(context, folder, maps, dimensions, bases) for bases in options.bases]
    folder.write_parquet(CORRELATION, pd.concat(shared).merge(alone, on=["architecture", "dimension"]))


def _standalone_accuracies(
    context: Context[CorrelatedConfig], folder: Folder, maps: list[str], dimensions: tuple[int, ...]
) -> pd.DataFrame:
    """`architecture`, `dimension`, `standalone_accuracy`: the validation accuracy of each map with its own weights."""
    settings = solve_settings(context, rungs=dimensions, evaluate_test=False)
    keys = {"architecture": tune.grid_search(maps), "seed": context.seed("correlation")}
    plan = solve_plan(context, total=len(maps), settings=settings, keys=keys)
    run = run_trials(folder / f"tune-alone-{_digest(context, dimensions)}", plan, context)
    run.write_tables(folder, context.say)
    columns = ["architecture", "dimension", "validation_accuracy"]
    return run.curves[columns].rename(columns={"validation_accuracy": "standalone_accuracy"})


def _shared_accuracies(
    context: Context[CorrelatedConfig], folder: Folder, maps: list[str], dimensions: tuple[int, ...], bases: Bases
) -> pd.DataFrame:
    """`architecture`, `dimension`, `bases`, `shared_accuracy`: the validation accuracy of each map with shared weights.

    Every map is scored on all validation points (note W6).
    """
    scoring = {"bases": bases, "score": "accuracy", "validation": "all"}
    settings = solve_settings(context, solve=context.config.solve.model_copy(update=scoring))
    seed, budgets = context.seed("correlation"), tune.grid_search(list(dimensions))
    keys = {"candidates": maps, "round": 1, "replica": 0, "budget": budgets, "seed": seed}
    plan = solve_plan(context, total=len(dimensions), settings=settings, keys=keys, mode="max")
    run = run_trials(folder / f"tune-{bases}-{_digest(context, dimensions)}", plan, context)
    tables = []
    for result in run.ended:
        metrics = result.metrics or {}
        scores = metrics.get("scores") or [math.nan] * len(maps)
        columns = {"architecture": maps, "dimension": metrics.get("dimension"), "bases": bases}
        tables.append(pd.DataFrame({**columns, "shared_accuracy": scores}))
    return pd.concat(tables, ignore_index=True)


def _digest(context: Context[CorrelatedConfig], dimensions: tuple[int, ...]) -> str:
    return digest({**CORRELATION_STAGE.inputs(context), "dimensions": dimensions})


CORRELATION_STAGE = WorkStage[CorrelatedConfig](
    name="correlation",
    title="compare shared and standalone accuracy",
    reads=(*READS, "correlation"),
    work=_correlate,
    amount=lambda config: count(config.correlation.maps, "feature map") if config.correlation.maps else "none",
)


# The searches and their recipes.


def drawn_maps(context: Context[Any], **plan: Any) -> TrialPlan:
    """A plan of a solve per candidate, in random order. plan: as in `solve_plan`."""
    candidates, seed = sample_candidates(context, context.config.candidates), context.seed("search")
    budget = len(candidates)
    searcher = partial(RandomSearch, candidates, budget=budget, seed=seed)
    return solve_plan(context, total=budget, searcher=searcher, **plan)


def write_best_solve(context: Context[FeatureMapConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the progress and the best map. Raises: ArchrayError if no solve has a score."""
    progress = best_so_far(run.curves, context.config.mode)
    folder.write_parquet(PROGRESS, progress)
    best = progress.iloc[-1] if len(progress) else None
    if best is None or best["architecture"] is None:
        raise ArchrayError(f"none of {count(len(run.trials), 'solve')} reported a score: {run.failures}")
    write_found_map(context, folder, best["architecture"], float(best[ACCURACY]), calls=len(progress))


def best_so_far(solves: pd.DataFrame, mode: str) -> pd.DataFrame:
    """A row per solve in the order of completion, with the best score so far and its test accuracy.

    Args:
        solves: a row per step of every trial; `seconds` is the time of the trial so far.
        mode: whether the smallest (`min`) or the largest (`max`) score is best.

    Returns: `calls` (so far), `seconds` (so far), `architecture` (the best so far), `dimension` (of this solve),
        `candidates` (1), `score`, `validation_accuracy` and `search_test_accuracy` of the best, `final` (False).
    """
    solves = solves.sort_values(["trial_id", "training_iteration"])
    steps = solves.groupby("trial_id")["seconds"].diff().fillna(solves["seconds"])  # of each step
    solves = solves.assign(step_seconds=steps).sort_values(["timestamp", "trial_id"], kind="stable")
    rows: list[dict[str, Any]] = []
    best: dict[Any, Any] = {"architecture": None}
    sign = 1 if mode == "min" else -1
    least, seconds = math.inf, 0.0
    for calls, solve in enumerate(solves.to_dict("records"), start=1):
        seconds += solve["step_seconds"]
        if sign * solve["score"] < least:  # never of a NaN
            best, least = solve, sign * solve["score"]
        rows.append(
            {
                "calls": calls,
                "seconds": seconds,
                "architecture": best["architecture"],
                "dimension": int(solve["dimension"]),
                "candidates": 1,
                "score": best.get("score", math.nan),
                "validation_accuracy": best.get("validation_accuracy", math.nan),
                "search_test_accuracy": best.get("test_accuracy", math.nan),
                "final": False,
            }
        )
    return pd.DataFrame(rows)


def maps_recipe(
    *more: Stage[Any],
    title: str,
    reads: tuple[str, ...],
    plan: Callable[[Context[Any], Folder], TrialPlan],
    amount: Callable[[Any], str],
    finish: Callable[[Context[Any], Folder, TuneRun], None] = write_best_solve,
) -> Recipe[Any]:
    """The recipe of a search for a feature map.

    Args:
        more: stages after the final solve.
        title, reads, plan, amount, finish: arguments of the search stage.
    """
    reads = (*READS, *reads)
    search = TuneStage[Any](
        name="search", title=title, reads=reads, plan=plan, finish=finish, search=True, amount=amount
    )
    return Recipe(
        stages=(search, FINAL_SOLVE_STAGE, *more),
        report_at="archray.platform.methods.feature_maps.report:REPORT",
    )


RANDOM_MAPS_RECIPE = maps_recipe(
    title="solve for every candidate",
    reads=("candidates",),
    plan=lambda context, tuned: drawn_maps(context),
    amount=lambda config: solves(config.candidates, config),
)


def _weight_sharing_trials(context: Context[configs.HalvingConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    searcher = partial(
        WeightSharingHalving,
        sample_candidates(context, config.candidates),
        replicas=config.replicas,
        keep=config.keep,
        budget=config.full_dimension,
        growth=config.growth,
        seed=context.seed("search"),
    )
    return solve_plan(context, total=searcher().expected_trials, searcher=searcher, at_most=config.replicas)


def _write_winner(context: Context[configs.HalvingConfig], folder: Folder, run: TuneRun) -> None:
    trials, searcher = run.trials, run.searcher()
    rounds = searcher.rounds()
    progress = halving_progress(trials, rounds, context.config.mode)
    folder.write_parquet(ROUNDS, rounds)
    folder.write_parquet(PROGRESS, progress)
    best = searcher.best()
    value = trials.loc[trials["candidates"].map(len) == 1, ACCURACY].dropna()  # of the solve with only the winner
    if best is None or value.empty:
        raise ArchrayError(f"halving found no feature map: {searcher.failure or run.failures}")
    write_found_map(context, folder, best["candidate"], float(value.iloc[0]), calls=int(progress["calls"].max()))


def halving_progress(trials: pd.DataFrame, rounds: pd.DataFrame, mode: str) -> pd.DataFrame:
    """A row per round and one for the final solve, with the columns of `best_so_far`.

    Each replica of a round counts as a call, and their seconds add up.

    Args:
        trials: a row per trial.
        rounds: see `WeightSharingHalving.rounds`.
        mode: whether the smallest (`min`) or the largest (`max`) score is best.
    """
    rows = []
    calls, seconds = 0, 0.0
    for number, solved in trials.groupby("round", sort=True):
        calls += len(solved)
        seconds += float(solved["seconds"].sum())
        scored = rounds[(rounds["round"] == number) & rounds["score"].notna()]
        best = None if scored.empty else scored.loc[getattr(scored["score"], f"idx{mode}")()]
        left = len(solved["candidates"].iloc[0])
        rows.append(
            {
                "calls": calls,
                "seconds": seconds,
                "architecture": None if best is None else best["candidate"],
                "dimension": int(solved["dimension"].iloc[0]),
                "candidates": left,
                "score": math.nan if best is None else float(best["score"]),
                "search_test_accuracy": float(solved["test_accuracy"].iloc[0]),  # NaN for a shared solve
                "final": left == 1,
            }
        )
    return pd.DataFrame(rows)


HALVING_RECIPE = maps_recipe(
    ORACLE_STAGE,
    CORRELATION_STAGE,
    title="solve with shared weights, and halve",
    reads=("candidates", "replicas", "keep", "growth"),
    plan=_weight_sharing_trials,
    finish=_write_winner,
    amount=lambda config: (
        f"{count(config.candidates, 'candidate')}; each round keeps a share of {config.keep:g} and takes "
        f"{count(config.replicas, 'solve')}"
    ),
)


RESOURCE = "resource"  # dimension of a solve in units of the lowest rung's dimension, rounded down


def _halving_trials(context: Context[configs.SuccessiveHalvingConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    return drawn_maps(
        context,
        settings=solve_settings(context, rungs=config.dimensions),
        scheduler=lambda: ResumedASHA(
            time_attr=RESOURCE, max_t=config.max_resource, grace_period=1, reduction_factor=config.eta, brackets=1
        ),
    )


def _hyperband_trials(context: Context[configs.HyperbandConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    candidates = sample_candidates(context, len(config.first_rungs))
    root = context.seed("search")
    first_rungs = dict(zip(candidates, config.first_rungs, strict=True))
    seeds = {candidate: trial_seed(root, number) for number, candidate in enumerate(candidates, start=1)}
    return solve_plan(
        context,
        total=len(candidates),
        settings=solve_settings(context, rungs=config.dimensions),
        keys={
            "architecture": tune.grid_search(candidates),
            "first_rung": tune.sample_from(lambda spec: first_rungs[spec["config"]["architecture"]]),
            "seed": tune.sample_from(lambda spec: seeds[spec["config"]["architecture"]]),
        },
        limited=False,
        scheduler=lambda: HyperBandScheduler(
            time_attr=RESOURCE, max_t=config.max_resource, reduction_factor=config.eta
        ),
        resumes=False,
    )


_TITLE = "solve with few features first"
SUCCESSIVE_HALVING = maps_recipe(
    title=_TITLE,
    reads=("candidates", "eta", "rungs"),
    plan=_halving_trials,
    amount=lambda config: count(config.candidates, "candidate"),
)
HYPERBAND = maps_recipe(
    title=_TITLE,
    reads=("eta", "rungs"),
    plan=_hyperband_trials,
    amount=lambda config: count(len(config.first_rungs), "candidate"),
)
