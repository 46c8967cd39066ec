"""Searches with a supernet that trains random paths: random search and halving with shared weights.

Random search (Li and Talwalkar 2019, section 3.2) trains a uniformly drawn path in each step, scores random
architectures with the weights, and selects the best. The paper scores on a mini-batch first, and only the best of these
on all validation data; archray scores all of them on all validation data, with actors over the cluster.

Halving (Khodak et al. 2020, Algorithm 1) trains the supernet on the paths of the remaining candidates in each round,
starting from the weights of the last round, and scores the candidates with these weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import ray
import torch
from rich.console import Console

from archray.cluster.metrics import RunLabels
from archray.cluster.settings import ResourceSettings, actor_count
from archray.errors import ArchrayError, InvalidInput
from archray.files import Folder
from archray.platform.engine.pool_scoring import count_failures, device_of, score_in_shards
from archray.platform.engine.run_costs import searched_space
from archray.platform.engine.settings import fewer, within
from archray.platform.engine.stage import Context, Work
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import reasons
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.stages import training_amount
from archray.platform.methods.supernets import stages
from archray.platform.methods.supernets.config import RandomSearchWSConfig, SupernetHalvingConfig
from archray.platform.methods.supernets.stages import METRIC, READS, supernet_recipe, supernet_settings
from archray.platform.methods.supernets.tables import SCORES
from archray.platform.run.layout import ROUNDS
from archray.plurals import count
from archray.searchers import WeightSharingHalving
from archray.seeds import stream_seed
from archray.trainables.spaces import ConstrainedSpace, Space, get_space
from archray.trainables.supernets.networks import discretize
from archray.trainables.tune import scorers
from archray.trainables.tune.settings import SupernetOptions
from archray.trainables.tune.supernet_trainable import SupernetTrainable

GROUP = 8  # architectures per pass over the validation data: small, as a killed driver loses the groups in flight
REPEATS = 1000  # consecutive draws without a new architecture after which the space counts as exhausted
TYPES = {**dict.fromkeys(scorers.SCORES, "float64"), "failure": "string"}


def draw_architectures(space: Space | str, options: SupernetOptions, number: int, seed: int) -> list[str]:
    """Draws distinct architectures uniformly from the architectures that the supernet can find, or all if it has fewer.

    Each is the discretization of independent uniform weights. Operations that the supernet does not have (`none`) are
    not drawn, as no step trained such a path. Isomorphic architectures are distinct, as their shared weights differ.

    Args:
        space: the space; with constraints, only architectures that meet them are drawn.
        options: options of the supernet.
        number: number of architectures.
        seed: seed of the draws.

    Raises: InvalidInput if no architecture meets the constraints.
    """
    meets = space.meets if isinstance(space, ConstrainedSpace) else lambda architecture: True
    space = get_space(space.unconstrained if isinstance(space, ConstrainedSpace) else space)
    parameters = options.groups(space)
    generator = torch.Generator().manual_seed(seed)
    architectures: dict[str, None] = {}
    repeats = 0
    while len(architectures) < within(number, space) and repeats < REPEATS:
        weights = {group.name: torch.rand(group.shape, generator=generator) for group in parameters}
        architecture = discretize(space, weights)
        if architecture not in architectures and meets(space.decode(architecture)):
            architectures[architecture] = None
            repeats = 0
        else:
            repeats += 1
    if not architectures:
        raise InvalidInput(
            f"expected an architecture of {space.name} that meets the constraints, got none in {REPEATS} draws. Relax "
            "the constraint"
        )
    return list(architectures)


def _drawn(context: Context[Any], number: int, seed: int) -> list[str]:
    """Draws architectures of the run, and prints a line if there are fewer."""
    drawn = draw_architectures(searched_space(context), context.config.supernet, number, seed)
    if line := fewer(len(drawn), number, context.config.space):
        context.say(line)
    return drawn


def score_with_shared_weights(
    folder: Folder,
    architectures: Sequence[str],
    *,
    settings: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    resources: ResourceSettings,
    console: Console,
    labels: RunLabels | None = None,
) -> pd.DataFrame:
    """Scores architectures with shared weights, on actors over the cluster.

    A second call with the same folder resumes (see `score_in_shards`). Each set of weights needs its own folder.

    Args:
        folder: folder of the shards.
        architectures: the architectures.
        settings: fields of `SupernetSettings`.
        weights: weights of the supernet by name.
        resources: resources of the actors.
        console: console for the progress.
        labels: labels of the actors' metrics.

    Returns: A row for each architecture, in order: `architecture`, `shared_loss`, `shared_accuracy`, `failure`.

    Raises: WorkerFailed if the weights do not fit the supernet; RunInterrupted.
    """
    table = score_in_shards(
        folder,
        architectures,
        worker=scorers.SupernetScorer,
        worker_kwargs={"settings": dict(settings), "weights": ray.put(weights), "device": device_of(resources)},
        types=TYPES,
        resources=resources,
        console=console,
        group=max(1, min(GROUP, math.ceil(len(architectures) / actor_count(resources)))),
        labels=labels,
    )
    console.print(f"    scored {count(len(table), 'architecture')}, {count_failures(table)} failed")
    return table


# Random search.

MIXTURE = "mixture_accuracy"  # accuracy of random paths during training


def _write_best(context: Context[RandomSearchWSConfig], folder: Folder, run: TuneRun) -> None:
    """Scores random architectures with the weights of every finished trial, and selects the best of each trial."""
    stages.write_entropies(context, folder, run)
    config, trials = context.config, run.trials.assign(failure=reasons(run.trials))
    results = {first.trial_id: last for first, last in zip(run.results, run.ended, strict=True)}
    cells: list[dict[str, Any]] = []
    tables: list[pd.DataFrame] = []
    for trial in trials.to_dict("records"):
        key = {"trial_id": trial["trial_id"], "seed": trial["seed"]}
        best = {"architecture": None, METRIC: math.nan, "failure": trial["failure"]}
        if pd.isna(trial["failure"]):
            checkpoint = results[trial["trial_id"]].checkpoint
            assert checkpoint is not None  # a trial without a failure has saved its last epoch
            with checkpoint.as_directory() as place:
                weights = scorers.trained_weights(place)
            samples = stream_seed(context.seed("samples"), trial["seed"])  # architectures differ between trials
            scores = score_with_shared_weights(
                folder / f"scores-{trial['trial_id']}",
                _drawn(context, config.samples, samples),
                settings=supernet_settings(context),
                weights=weights,
                resources=config.resources,
                console=context.console,
                labels=context.labels(folder.name),
            )
            tables.append(scores.assign(**key))
            best = best_of(scores)
        cells.append({**key, MIXTURE: trial.get(MIXTURE, math.nan), **best})
    if tables:
        folder.write_parquet(SCORES, pd.concat(tables, ignore_index=True))
    stages.write_found(context, folder, pd.DataFrame(cells))


def best_of(scores: pd.DataFrame) -> dict[str, Any]:
    """The architecture with the highest accuracy, among equals the one with the lowest loss.

    Args:
        scores: `architecture`, `shared_loss`, `shared_accuracy`, `failure`.

    Returns: `architecture`, `shared_accuracy` and `failure`.
    """
    usable = scores.dropna(subset=[METRIC]).sort_values([METRIC, "shared_loss"], ascending=[False, True])
    if usable.empty:
        reasons = "; ".join(sorted(set(scores["failure"].dropna())))
        return {"architecture": None, METRIC: math.nan, "failure": f"no architecture has a score: {reasons}"}
    best = usable.iloc[0]
    return {"architecture": best["architecture"], METRIC: float(best[METRIC]), "failure": None}


def _supernets_and_samples(config: RandomSearchWSConfig) -> Work:
    work = stages.supernets_amount(config)
    scored = count(within(config.samples, config.space), "scored architecture")
    return replace(work, text=f"{work}, then {scored} per supernet")


RS_WS_RECIPE = supernet_recipe(
    TuneStage(
        name="search",
        title="train supernets on random paths, and score random architectures with them",
        reads=(*READS, "samples"),
        plan=lambda context, tuned: stages.supernet_trials(context, metric=MIXTURE, reads_checkpoints=True),
        finish=_write_best,
        search=True,
        amount=_supernets_and_samples,
    ),
)


# Halving.


def _halving_trials(context: Context[SupernetHalvingConfig], tuned: Folder) -> TrialPlan:
    config, seed = context.config, context.seed("candidates")
    candidates = _drawn(context, config.candidates, seed)
    searcher = partial(
        WeightSharingHalving,
        candidates,
        replicas=config.replicas,
        keep=config.keep,
        budget=config.supernet.training.epochs,
        growth=config.growth,
        seed=context.seed("search"),
    )
    return TrialPlan(
        trainable=SupernetTrainable,
        settings=supernet_settings(context, score=config.score, weights_dir=(tuned / "weights").uri),
        metric="score",
        mode=config.mode,
        total=searcher().expected_trials,
        searcher=searcher,
        at_most=config.replicas,
    )


def _write_winner(context: Context[SupernetHalvingConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the last candidate, with the results of the last trial, which trained and scored only that candidate.

    Raises: ArchrayError if no candidate is left.
    """
    searcher: WeightSharingHalving = run.searcher()
    folder.write_parquet(ROUNDS, searcher.rounds())
    trials, best = run.trials, searcher.best()
    if best is None or searcher.failure is not None:
        raise ArchrayError(f"halving found no architecture: {searcher.failure or run.failures}")
    last = trials[trials["round"] == best["round"]]
    if len(last["candidates"].iloc[0]) > 1:
        raise ArchrayError(
            f"halving stopped after round {best['round']} with more than one candidate left; raise time_budget_s"
        )
    trial = last.iloc[0]
    winner = {
        "trial_id": trial["trial_id"],
        "seed": trial["seed"],
        "architecture": best["candidate"],
        "shared_accuracy": trial["shared_accuracy"],
        "mixture_accuracy": math.nan,
        "failure": None,
    }
    stages.write_found(context, folder, pd.DataFrame([winner]))


HALVING_RECIPE = supernet_recipe(
    TuneStage(
        name="search",
        title="train a supernet on the remaining candidates, and halve them",
        reads=(*READS, "candidates", "replicas", "keep", "growth", "score"),
        plan=_halving_trials,
        finish=_write_winner,
        search=True,
        amount=lambda config: (
            f"{count(within(config.candidates, config.space), 'candidate')}; each round keeps a share of "
            f"{config.keep:g}. The first round trains "
            f"{training_amount(config.replicas, config.supernet.training, 'supernet')}"
        ),
    ),
)
