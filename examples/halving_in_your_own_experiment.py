"""Use WeightSharingHalving in your own Tune experiment, with your candidates, model and trainable.

    python examples/halving_in_your_own_experiment.py [folder]

Here a candidate is a nonlinearity and a scale of random features. The shared weights belong to one ridge regression on
scikit-learn's digits, where a random candidate computes the features of each image. The example uses only the searcher
of archray. It suggests `{"round", "candidates", "replica", "budget", "seed", "warm_start"}`. A trial reports one score
per candidate, in the same order, and their mean.

With a folder, the example resumes there if it was killed. If it has finished, it prints the results again.
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
TRAINING = 1200  # training images, of 1797; the others are for validation


def shared_solve(config: dict[str, Any]) -> None:
    """Your trainable: one regression that all candidates share, and a score of each candidate."""
    candidates, d, rng = config["candidates"], config["budget"], np.random.default_rng(config["seed"])
    images, labels = load_digits(return_X_y=True)
    projected, offset = images @ rng.standard_normal((64, d)), rng.uniform(0, 2 * np.pi, d)  # (n, d), (d,)

    def features(candidate: dict[str, Any], rows: Any) -> np.ndarray:
        return SHAPES[candidate["shape"]](candidate["scale"] * projected[rows] + offset)

    assigned = rng.integers(len(candidates), size=TRAINING)  # a random candidate for each training image
    x = np.stack([features(candidates[c], row) for row, c in enumerate(assigned)])  # (n, d)
    weights = np.linalg.solve(x.T @ x + 0.5 * np.eye(d), x.T @ np.eye(10)[labels[:TRAINING]])  # (d, classes)
    rest = slice(TRAINING, None)
    scores = [float(np.mean((features(c, rest) @ weights).argmax(1) == labels[rest])) for c in candidates]
    tune.report({"scores": scores, "shared_accuracy": float(np.mean(scores))})


def main(folder: Path, budget: int = 512) -> dict[str, Any]:
    """Starts or resumes the search in `folder`, and returns the best candidate."""
    searcher = WeightSharingHalving(
        CANDIDATES,
        replicas=2,  # concurrent trials of a round; their scores are averaged
        budget=budget,  # budget of the last round; here, the number of random features
        growth=2**0.5,  # ratio of the budgets of two successive rounds
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
                num_samples=-1,  # the searcher ends the search
                max_concurrent_trials=2,  # default: one trial at a time
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=run.name,
                storage_path=str(folder),
                failure_config=tune.FailureConfig(max_failures=2),  # then the round continues without the trial
                verbose=0,
            ),
        )
    tuner.fit()
    searcher.restore_from_dir(str(run))  # loads the results of this and earlier sessions
    rounds = searcher.rounds().groupby("round")
    print(rounds.agg(candidates=("candidate", "size"), features=("budget", "first"), best_accuracy=("score", "max")))
    best = searcher.best()
    assert best is not None, searcher.failure
    print(f"best: {best['candidate']} with a validation accuracy of {best['value']:.3f}")
    return best


if __name__ == "__main__":
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(scratch))
