"""Synthetic shared solves for Ray's workers: each score depends only on the config."""

import math
import os
import signal
from typing import Any

from ray import tune

from archray.searchers.testing import hashed_score

CANDIDATES = [{"kernel": kernel, "gamma": 0.1 * step} for kernel in ("gaussian", "laplace") for step in range(4)]


def shared_solve(config: dict[str, Any]) -> dict[str, Any]:
    """Returns noisy scores of the candidates, their mean, and the path of the weights."""
    scores = [
        hashed_score({"candidate": c, "round": config["round"], "replica": config["replica"]})
        for c in config["candidates"]
    ]
    weights = f"mem://{config['round']}/{config['replica']}"
    return {"scores": scores, "score": sum(scores) / len(scores), "weights": weights}


class Misreporting(tune.Trainable):
    """A user's trainable that does not report the results that the searcher needs. `report` is its report."""

    def step(self) -> dict[str, Any]:
        return {"score": 0.5, "done": True, **self.config["report"]}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing to save."""


class Losing(tune.Trainable):
    """Its second replica loses its process in each attempt of round 2, where its first candidate has no score."""

    def step(self) -> dict[str, Any]:
        if self.config["round"] == 2 and self.config["replica"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        result = shared_solve(self.config)
        if self.config["round"] == 2:
            result["scores"][0] = math.nan
        return {**result, "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing to save."""
