"""Use NESBSSearch in your own Tune experiment, with your posterior, models and trainable.

    python examples/nesbs_in_your_own_experiment.py [folder]

Here the space is the width, the nonlinearity and the inputs (a half of the image) of a scikit-learn perceptron for
scikit-learn's digits. The example uses only the searcher of archray. It takes log-probabilities per decision as a dict
and suggests `{"members", "delta", "seed"}`. A trial reports the validation loss of the ensemble of these members.

With a folder, Tune's results are kept there.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import tune
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from archray.searchers import NESBSSearch

CHOICES = {
    "width": (4, 8, 16, 32),
    "activation": ("relu", "tanh", "logistic"),
    "half": ("left", "right", "top", "bottom", "all"),
}
PIXELS = np.arange(64).reshape(8, 8)
HALVES = {"left": PIXELS[:, :4], "right": PIXELS[:, 4:], "top": PIXELS[:4], "bottom": PIXELS[4:], "all": PIXELS}
CLASSES = np.arange(10)


def data() -> Any:
    """Returns training and validation images and labels."""
    images, labels = load_digits(return_X_y=True)
    return train_test_split(images / 16, labels, test_size=0.4, random_state=0)


def predict(choice: dict[str, int], epochs: int, seed: int) -> np.ndarray:
    """Trains one member; returns its probabilities for the validation images, (points, classes)."""
    x, x_validation, y, _ = data()
    width, activation, half = (CHOICES[name][number] for name, number in choice.items())
    pixels = HALVES[half].ravel()
    network = MLPClassifier((width,), activation=activation, learning_rate_init=0.01, random_state=seed)
    for _ in range(epochs):
        network.partial_fit(x[:, pixels], y, classes=CLASSES)
    return network.predict_proba(x_validation[:, pixels])


def loss(probabilities: np.ndarray) -> float:
    """Returns the negative log-likelihood of the validation labels."""
    labels = data()[3]
    return float(-np.log(probabilities[np.arange(len(labels)), labels] + 1e-12).mean())


def log_posterior(epochs: int) -> dict[str, list[float]]:
    """Returns log-probabilities per decision: -5 times the loss of each choice, with first choices elsewhere.

    Your log-probabilities may come from a supernet's architecture parameters, earlier experiments, or a guess.
    """
    return {
        decision: [
            -5 * loss(predict({name: n if name == decision else 0 for name in CHOICES}, epochs, seed=0))
            for n in range(len(choices))
        ]
        for decision, choices in CHOICES.items()
    }


class Ensemble(tune.Trainable):
    """Your trainable. It reads `config["members"]` and reports the metric."""

    def setup(self, config: dict[str, Any]) -> None:
        """Does nothing, since `step` reads `self.config`."""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Reuses a worker for the next trial, which is by far the fastest way to run many short trials."""
        return True

    def step(self) -> dict[str, Any]:
        choices = [json.loads(member) for member in self.config["members"]]
        epochs, seed = self.config["epochs"], self.config["seed"]
        members = [predict(choice, epochs, seed + number) for number, choice in enumerate(choices)]
        return {
            "validation_loss": loss(np.mean(members, axis=0)),  # loss of the averaged probabilities
            "single_loss": float(np.mean([loss(member) for member in members])),
            "done": True,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Saves nothing, since a trial takes a second."""

    def load_checkpoint(self, checkpoint: str | None) -> None:
        """Loads nothing."""


def main(folder: Path, budget: int = 5, epochs: int = 10) -> dict[str, Any]:
    """Computes a posterior, searches for the best ensemble, and returns its configuration."""
    searcher = NESBSSearch(
        log_posterior(epochs),
        ensemble_size=3,
        sampler="svgd-rd",  # or "mc": independent draws
        delta="grid",  # or "bo", or a number: the diversity of the members
        delta_range=(-0.5, 1.0),
        budget=budget,
        metric="validation_loss",
        mode="min",
        seed=0,
    )
    results = tune.Tuner(
        Ensemble,
        param_space={"epochs": epochs},  # merged with the suggested config
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            num_samples=-1,  # the searcher's budget ends the search
            max_concurrent_trials=2,  # default: one trial at a time
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(name="digits", storage_path=str(folder.resolve()), verbose=0),
    ).fit()
    columns = ["config/delta", "validation_loss", "single_loss"]
    print(results.get_dataframe()[columns].sort_values("validation_loss").to_string(index=False))
    best = searcher.best()
    assert best is not None
    for member in best["members"]:
        print({name: CHOICES[name][number] for name, number in json.loads(member).items()})
    print(f"best: delta {best['delta']:g} with validation loss {best['value']:.3f}")
    return best


if __name__ == "__main__":
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch))
