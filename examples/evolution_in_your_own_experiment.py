"""Tune your own dict of Tune domains with RegularizedEvolution and ASHA.

    python examples/evolution_in_your_own_experiment.py

The dict contains width, depth, activation, learning rate and regularization of a scikit-learn perceptron for
scikit-learn's digits. ASHA (Li et al. 2020) stops the worst trials after 1, 3 or 9 epochs. Evolution learns from the
last value of a stopped trial.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from archray.searchers import RegularizedEvolution

DOMAINS = {
    "width": tune.choice([4, 8, 16, 32, 64]),
    "depth": tune.randint(1, 4),
    "activation": tune.choice(["relu", "tanh", "logistic"]),
    "learning_rate": tune.loguniform(1e-4, 0.3),
    "alpha": tune.loguniform(1e-6, 1e-1),
}


class Perceptron(tune.Trainable):
    """Your trainable. An iteration is an epoch, so a scheduler can stop a trial after any epoch."""

    def setup(self, config: dict[str, Any]) -> None:
        images, labels = load_digits(return_X_y=True)
        self.x, self.x_validation, self.y, self.y_validation = train_test_split(
            images / 16, labels, test_size=0.3, random_state=0
        )
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Reuses a worker for the next trial, which is by far the fastest way to run many short trials."""
        self.network = MLPClassifier(
            hidden_layer_sizes=(new_config["width"],) * new_config["depth"],
            activation=new_config["activation"],
            learning_rate_init=new_config["learning_rate"],
            alpha=new_config["alpha"],
            random_state=new_config["seed"],
        )
        return True

    def step(self) -> dict[str, Any]:
        self.network.partial_fit(self.x, self.y, classes=np.arange(10))
        return {"accuracy": float(self.network.score(self.x_validation, self.y_validation))}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Saves nothing, since a trial takes a second."""

    def load_checkpoint(self, checkpoint: str | None) -> None:
        """Loads nothing."""


def main(folder: Path, budget: int = 30, epochs: int = 9) -> dict[str, Any]:
    """Runs the search and returns the best configuration."""
    searcher = RegularizedEvolution(
        DOMAINS, budget=budget, population=max(2, budget // 4), sample_size=2, metric="accuracy", mode="max", seed=0
    )
    results = tune.Tuner(
        Perceptron,
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=ASHAScheduler(metric="accuracy", mode="max", max_t=epochs, grace_period=1, reduction_factor=3),
            num_samples=-1,  # the searcher's budget ends the search
            max_concurrent_trials=2,  # default: one trial at a time
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(name="digits", storage_path=str(folder.resolve()), verbose=0),
    ).fit()
    trained = [result.metrics["training_iteration"] for result in results if result.metrics]
    print(
        f"{len(trained)} trials, {sum(n < epochs for n in trained)} stopped early: {sum(trained)} of "
        f"{epochs * len(trained)} epochs"
    )
    best = searcher.best()
    assert best is not None
    print(
        f"best: {best['depth']} x {best['width']} {best['activation']}, learning rate {best['learning_rate']:.2g}, "
        f"with validation accuracy {best['value']:.3f}"
    )
    return best


if __name__ == "__main__":
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch))
