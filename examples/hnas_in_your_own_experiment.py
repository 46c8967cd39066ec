"""Use HNASSearch in your own Tune experiment, with your space, metrics and trainable.

    python examples/hnas_in_your_own_experiment.py

Here the space is the width and the depth of a scikit-learn perceptron for scikit-learn's digits. The example uses only
the searcher of archray. It needs a table with a training-free metric and a condition number per architecture, and
suggests the next architecture to train, as `{"architecture", "mu", "nu", "seed"}`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray
from ray import tune
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from archray.searchers import HNASSearch

WIDTHS, DEPTHS = (4, 8, 12, 16, 24, 32, 48, 64), (1, 2, 3, 4, 5)


def hidden_layers(architecture: str) -> tuple[int, ...]:
    """`"16x3"` -> `(16, 16, 16)`."""
    width, depth = architecture.split("x")
    return (int(width),) * int(depth)


def score(architecture: str, images: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """Returns a row of the pool, from the last hidden layer of an untrained network on 48 images.

    With a linear output layer on the last hidden layer h, the neural tangent kernel of the output layer is h h^T.
    """
    hidden = images
    for width in hidden_layers(architecture):
        weights = rng.standard_normal((hidden.shape[1], width)) * np.sqrt(2 / hidden.shape[1])
        hidden = np.maximum(hidden @ weights, 0)
    kernel = hidden @ hidden.T / len(images) + 1e-3 * np.eye(len(images))  # narrow layers do not have full rank
    eigenvalues = np.linalg.eigvalsh(kernel)
    return {
        "architecture": architecture,
        "trace": float(np.sqrt(eigenvalues.sum() / len(images))),
        "kappa": float(eigenvalues[-1] / eigenvalues[0]),
    }


class Perceptron(tune.Trainable):
    """Your trainable. It reads `config["architecture"]` and reports the metric."""

    def setup(self, config: dict[str, Any]) -> None:
        images, labels = load_digits(return_X_y=True)
        self.x, self.x_validation, self.y, self.y_validation = train_test_split(
            images / 16, labels, test_size=0.3, random_state=0
        )
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Reuses a worker for the next trial, which is by far the fastest way to run many short trials."""
        self.epochs = new_config["epochs"]
        self.network = MLPClassifier(
            hidden_layer_sizes=hidden_layers(new_config["architecture"]),
            learning_rate_init=0.01,
            random_state=new_config["seed"],
        )
        return True

    def step(self) -> dict[str, Any]:
        self.network.partial_fit(self.x, self.y, classes=np.arange(10))
        accuracy = float(self.network.score(self.x_validation, self.y_validation))
        return {"accuracy": accuracy, "done": self.iteration + 1 >= self.epochs}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Saves nothing, since a trial takes a second."""

    def load_checkpoint(self, checkpoint: str | None) -> None:
        """Loads nothing."""


def main(folder: Path, budget: int = 8, epochs: int = 5) -> dict[str, Any]:
    """Scores the pool, searches it, and returns the best configuration."""
    rng = np.random.default_rng(0)
    images = load_digits().data[:48] / 16
    pool = folder / "pool.parquet"
    rows = [score(f"{width}x{depth}", images, rng) for width in WIDTHS for depth in DEPTHS]
    pd.DataFrame(rows).to_parquet(pool)

    searcher = HNASSearch(pool, proxy="trace", budget=budget, metric="accuracy", mode="max", seed=0)
    tune.Tuner(
        Perceptron,
        param_space={"epochs": epochs},  # merged with the suggested config
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,  # the searcher's budget ends the search
            max_concurrent_trials=2,  # default: one trial at a time
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(name="digits", storage_path=str(folder), verbose=0),
    ).fit()
    print(searcher.questions()[["architecture", "mu", "nu", "value", "repeat"]].to_string(index=False))
    best = searcher.best()
    assert best is not None
    print(f"best: {best['architecture']} with validation accuracy {best['value']:.3f}")
    return best


if __name__ == "__main__":
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch))
