"""Run a Ray Tune experiment that continues after a kill. Repeat the command to resume it.

    python examples/durable_experiment.py experiments/digits
    # kill it at any moment: kill -9, a reboot, a lost node
    python examples/durable_experiment.py experiments/digits

The experiment tunes a scikit-learn perceptron for scikit-learn's digits. Any searcher and any trainable of Ray Tune can
take the place of these.
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
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import archray

DOMAINS = {"width": tune.choice([4, 8, 16, 32]), "learning_rate": tune.loguniform(1e-4, 0.3)}


def train(config: dict[str, Any]) -> None:
    """Your trainable: a function, as here, or a class. With checkpoints, an unfinished trial also resumes."""
    images, labels = load_digits(return_X_y=True)
    x, x_validation, y, y_validation = train_test_split(images / 16, labels, test_size=0.3, random_state=0)
    network = MLPClassifier((config["width"],), learning_rate_init=config["learning_rate"], random_state=0)
    for _ in range(5):
        network.partial_fit(x, y, classes=np.arange(10))
        tune.report({"accuracy": float(network.score(x_validation, y_validation))})


def main(folder: Path, trials: int = 8) -> tune.ResultGrid:
    """Runs or resumes the experiment in `folder`, and returns its results."""
    if archray.DurableTuner.can_restore(folder):
        tuner = archray.DurableTuner.restore(folder, train)
    else:
        tuner = archray.DurableTuner(
            train,
            param_space=DOMAINS,
            tune_config=tune.TuneConfig(
                metric="accuracy", mode="max", num_samples=trials, max_concurrent_trials=2, reuse_actors=True
            ),
            run_config=tune.RunConfig(name=folder.name, storage_path=str(folder.resolve().parent), verbose=0),
        )
    results = tuner.fit()
    best = results.get_best_result()
    assert best.metrics is not None and best.config is not None
    print(
        f"{len(results)} trials; best: width {best.config['width']}, learning rate "
        f"{best.config['learning_rate']:.2g}, with validation accuracy {best.metrics['accuracy']:.3f}"
    )
    return results


if __name__ == "__main__":
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else f"{scratch}/digits"))
