"""Use RankSurrogateSearch with your own CSV and your own trainable.

    python examples/several_metrics_in_your_own_experiment.py

The CSV has a row per architecture (here perceptrons of up to four layers) and any metrics that need no training. Here
these are the number of parameters, the depth and, with random weights, the norm of a gradient and the share of nonzero
units. None of them has to predict the accuracy: the search weights them by the results of training runs, and also
learns from the tokens of the architectures (`64-16-4-0`).
"""

from __future__ import annotations

import itertools
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

from archray.searchers import RankSurrogateSearch

WIDTHS = (0, 4, 16, 64)  # widths of each of four layers; 0: no layer


def layers(architecture: str) -> tuple[int, ...]:
    """`"64-0-16-4"` -> `(64, 16, 4)`."""
    return tuple(width for width in map(int, architecture.split("-")) if width)


def row(architecture: str, images: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """Returns a row of the CSV: the metrics of an untrained network."""
    widths = (images.shape[1], *layers(architecture), 10)
    weights = [rng.standard_normal(shape) * np.sqrt(2 / shape[0]) for shape in itertools.pairwise(widths)]
    hidden = [images]
    for matrix in weights:
        hidden.append(np.maximum(hidden[-1] @ matrix, 0))
    gradient = hidden[-2].T @ (hidden[-1] - hidden[-1].mean())
    sizes = sum(matrix.size for matrix in weights)
    return {
        "architecture": architecture,
        "parameters": sizes,
        "depth": len(weights),
        "gradient_norm": float(np.linalg.norm(gradient)),
        "alive": float(np.mean([np.mean(layer > 0) for layer in hidden[1:]])),
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
            hidden_layer_sizes=layers(new_config["architecture"]),
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


def main(folder: Path, budget: int = 12, epochs: int = 5) -> dict[str, Any]:
    """Writes the CSV, searches it, and returns the best configuration."""
    rng, images = np.random.default_rng(0), load_digits().data[:48] / 16
    names = ["-".join(map(str, widths)) for widths in itertools.product(WIDTHS, repeat=4) if any(widths)]
    table = folder / "perceptrons.csv"
    pd.DataFrame([row(name, images, rng) for name in names]).to_csv(table, index=False)

    searcher = RankSurrogateSearch(table, budget=budget, metric="accuracy", mode="max", seed=0)
    tune.Tuner(
        Perceptron,
        param_space={"epochs": epochs},  # merged with the suggested config
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,  # the searcher's budget ends the search
            max_concurrent_trials=2,  # default: one trial at a time
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(name="perceptrons", storage_path=str(folder), verbose=0),
    ).fit()
    print(searcher.history()[["number", "architecture", "value"]].to_string(index=False))
    for metric, weight in searcher.trust().items():
        print(f"weight of {metric}: {weight:+.2f}")
    best = searcher.best()
    assert best is not None
    print(f"best: {best['architecture']} with validation accuracy {best['value']:.3f}")
    return best


if __name__ == "__main__":
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch))
