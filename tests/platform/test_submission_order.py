"""Tune runs with archray's default scheduler start the same trials as with Tune's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.schedulers import FIFOScheduler

from archray.platform.engine.trial_plan import SubmissionOrder

CHOICES: list[tuple[Any, Any]] = []  # of archray's scheduler and of Tune's


class Compared(SubmissionOrder):
    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        choice = super().choose_trial_to_run(tune_controller)
        CHOICES.append((choice, FIFOScheduler.choose_trial_to_run(self, tune_controller)))
        return choice


class FailsOnce(tune.Trainable):
    """The first attempt of each second trial fails, so that older trials wait next to newer ones."""

    def setup(self, config: dict[str, Any]) -> None:
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.attempt = Path(new_config["folder"]) / str(new_config["number"])
        return True

    def step(self) -> dict[str, Any]:
        if int(self.attempt.name) % 2 and not self.attempt.exists():
            self.attempt.touch()
            raise RuntimeError("the first attempt")
        return {"score": 1.0, "done": True}


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("at_once", [1, None])
def test_each_choice_equals_that_of_tunes_scheduler(at_once: int | None, tmp_path: Path) -> None:
    CHOICES.clear()
    results = tune.Tuner(
        tune.with_resources(FailsOnce, {"cpu": 1}),
        param_space={"number": tune.grid_search(list(range(6))), "folder": str(tmp_path)},
        tune_config=tune.TuneConfig(
            metric="score", mode="max", scheduler=Compared(), reuse_actors=True, max_concurrent_trials=at_once
        ),
        run_config=tune.RunConfig(
            name=tmp_path.name,
            storage_path=str(tmp_path),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    ).fit()
    assert len(results) == 6 and not results.errors
    assert all(ours is tunes for ours, tunes in CHOICES)
    chosen = {ours.trial_id for ours, _ in CHOICES if ours}
    # If several trials wait, Tune gives a free actor to any of them, also without a choice.
    assert len(chosen) == 6 if at_once else chosen
