"""WeightSharingHalving alone, in a Tune experiment of your own: your candidates, your model, your trainable.

    python examples/halving_in_your_own_experiment.py [folder]

A candidate here is a nonlinearity and a scale of random features; the shared weights are those of one ridge
regression on scikit-learn's digits, in which a candidate drawn for each image makes its features. Nothing of archray
is used but the searcher. It suggests `{"round", "candidates", "replica", "budget", "seed", "warm_start"}`, and needs
back one score per candidate, in their order, and their mean.

Given a folder, it continues there after it was killed; once it has finished, it shows again what it found.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import tune
from sklearn.datasets import load_digits

from archray.searchers import WeightSharingHalving

SHAPES = {"cosine": np.cos, "relu": lambda x: np.maximum(x, 0), "step": np.sign, "tanh": np.tanh}
CANDIDATES = [
    {"shape": shape, "scale": round(scale, 4)} for shape in SHAPES for scale in np.geomspace(0.003, 3, 16).tolist()
]
TRAINING = 1200  # of 1797 images; the others are for validation


def shared_solve(config: dict[str, Any]) -> None:
    """Your trainable: one regression shared by all candidates, which scores each of them."""
    candidates, d, rng = config["candidates"], config["budget"], np.random.default_rng(config["seed"])
    images, labels = load_digits(return_X_y=True)
    projected, offset = images @ rng.standard_normal((64, d)), rng.uniform(0, 2 * np.pi, d)  # (n, d), (d,)

    def features(candidate: dict[str, Any], rows: Any) -> np.ndarray:
        return SHAPES[candidate["shape"]](candidate["scale"] * projected[rows] + offset)

    own = rng.integers(len(candidates), size=TRAINING)  # each training image gets a candidate
    x = np.stack([features(candidates[c], row) for row, c in enumerate(own)])  # (n, d)
    weights = np.linalg.solve(x.T @ x + 0.5 * np.eye(d), x.T @ np.eye(10)[labels[:TRAINING]])  # (d, classes)
    rest = slice(TRAINING, None)
    scores = [float(np.mean((features(c, rest) @ weights).argmax(1) == labels[rest])) for c in candidates]
    tune.report({"scores": scores, "shared_accuracy": float(np.mean(scores))})


def main(folder: Path, budget: int = 512) -> dict[str, Any]:
    """Begins the search in `folder`, or continues it, and returns the best candidate."""
    searcher = WeightSharingHalving(
        CANDIDATES,
        replicas=2,  # solves of a round, side by side; their scores are averaged
        budget=budget,  # of the last round; here, the number of random features
        growth=2**0.5,  # how much more each round has than the one before; 1: all the same
        metric="shared_accuracy",
        mode="max",
        seed=0,
    )
    run = folder / "digits"
    if tune.Tuner.can_restore(run):
        tuner = tune.Tuner.restore(str(run), trainable=shared_solve)
    else:
        tuner = tune.Tuner(
            shared_solve,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=-1,  # the searcher says when it is finished
                max_concurrent_trials=2,  # without it one trial runs at a time
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=run.name,
                storage_path=str(folder),
                failure_config=tune.FailureConfig(max_failures=2),  # then the round goes on without the trial
                verbose=0,
            ),
        )
    tuner.fit()
    searcher.restore_from_dir(str(run))  # what it knows, of this session and of those before
    rounds = searcher.rounds().groupby("round")
    print(rounds.agg(candidates=("candidate", "size"), features=("budget", "first"), best_accuracy=("score", "max")))
    best = searcher.best()
    assert best is not None, searcher.failure
    print(f"best: {best['candidate']} with a validation accuracy of {best['value']:.3f}")
    return best


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(scratch))
