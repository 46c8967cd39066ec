"""Experiments of `DurableTuner`; as a program, the driver of one that kills itself: NAME FOLDER ADDRESS RESULTS."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

import archray
from archray.cluster.connect import connect
from archray.cluster.settings import ClusterSettings
from archray.searchers import LocalSearch, RandomSearch, RegularizedEvolution

STEPS = 3
TRIALS = 6
DOMAINS = {"x": tune.uniform(0, 1), "y": tune.choice([1, 2, 3])}


class Layer:
    """An object that JSON cannot represent."""

    def __init__(self, size: int) -> None:
        self.size = size


def log_step(config: dict[str, Any], step: int) -> None:
    with open(config["log"], "a") as file:
        file.write(json.dumps([config["x"], step]) + "\n")


def loss_of(config: dict[str, Any], step: int) -> float:
    size = config["layer"].size if "layer" in config else 0
    return (config["x"] - 0.3) ** 2 + config.get("y", 0) + size + 1 / step


def function(config: dict[str, Any]) -> None:
    """A trainable without checkpoints, which logs its steps."""
    for step in range(1, STEPS + 1):
        log_step(config, step)
        tune.report({"loss": loss_of(config, step), "nested": {"step": step}})


class Class(tune.Trainable):
    """A trainable with checkpoints, which logs its steps."""

    steps = 0

    def step(self) -> dict[str, Any]:
        self.steps += 1
        log_step(self.config, self.steps)
        loss = loss_of(self.config, self.steps)
        return {"loss": loss, "nested": {"step": self.steps}, "done": self.steps == STEPS}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "steps").write_text(str(self.steps))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.steps = int((Path(checkpoint) / "steps").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.steps = 0
        return True


def optuna() -> Searcher:
    from optuna.samplers import TPESampler
    from ray.tune.search.optuna import OptunaSearch

    return OptunaSearch(sampler=TPESampler(seed=0, n_startup_trials=2))


def hyperopt() -> Searcher:
    from ray.tune.search.hyperopt import HyperOptSearch

    return HyperOptSearch(random_state_seed=0, n_initial_points=2)


def mine(kind: type[Searcher], **options: Any) -> Searcher:
    return kind(**{"space": DOMAINS, "budget": TRIALS, "metric": "loss", "mode": "min", "seed": 0, **options})


SEARCHES: dict[str, Callable[[], Searcher]] = {
    "evolution": lambda: mine(RegularizedEvolution, population=3, sample_size=2),
    "random-search": lambda: mine(RandomSearch),
    "local-search": lambda: mine(LocalSearch, space={"x": tune.choice([0.1, 0.3, 0.6]), "y": DOMAINS["y"]}),
    "optuna": optuna,
    "hyperopt": hyperopt,
    "batches": lambda: ConcurrencyLimiter(optuna(), 2, batch=True),
}
SPACES: dict[str, dict[str, Any]] = {
    "grid": {"x": tune.grid_search([0.0, 0.25, 0.5]), "y": tune.grid_search([1, 2])},
    "asha": {"x": tune.grid_search([0.3, 1.3, 2.3, 3.3, 4.3, 5.3])},
    "random": {**DOMAINS, "layer": tune.choice([Layer(1), Layer(2)])},
}
FUNCTIONS = ("grid", "optuna", "batches", "evolution")


def experiment(name: str, folder: Path, *callbacks: tune.Callback) -> dict[str, Any]:
    """Returns the arguments of an experiment, one trial at a time. It logs its steps in `steps` next to its folder."""
    searcher = SEARCHES[name]() if name in SEARCHES else None
    is_mine = isinstance(searcher, RegularizedEvolution | RandomSearch | LocalSearch)
    space = {**({} if is_mine else SPACES.get(name, DOMAINS)), "log": str(folder.parent / "steps")}
    samples = -1 if is_mine else 1 if name in ("grid", "asha") else TRIALS
    asha = ASHAScheduler(max_t=STEPS, grace_period=1, reduction_factor=3) if name == "asha" else None
    # Tune does not accept `checkpoint_at_end` for functions.
    checkpoints = tune.CheckpointConfig(num_to_keep=2, checkpoint_frequency=0 if name in FUNCTIONS else 1)
    return {
        "trainable": function if name in FUNCTIONS else Class,
        "param_space": space,
        "tune_config": tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=samples,
            search_alg=searcher,
            scheduler=asha,
            max_concurrent_trials=None if isinstance(searcher, ConcurrencyLimiter) else 1,
            reuse_actors=True,
        ),
        "run_config": tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent),
            verbose=0,
            callbacks=list(callbacks),
            checkpoint_config=checkpoints,
        ),
    }


class Kill(tune.Callback):
    """Kills the driver when it receives a result."""

    def __init__(self, results: int) -> None:
        self.left = results

    def __reduce__(self) -> Any:
        return tune.Callback, ()  # for the restored experiment

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    experiment_name, place, gcs_address, number = sys.argv[1:]
    with connect(ClusterSettings(address=gcs_address)):
        np.random.seed(0)  # noqa: NPY002  # Tune's generator
        archray.DurableTuner(**experiment(experiment_name, Path(place), Kill(int(number)))).fit()
