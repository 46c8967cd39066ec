"""DropWorst: the trials that continue, on a real Tuner, undisturbed and restored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from archray_test_schedule import Climb
from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, RunConfig, TuneConfig, Tuner
from ray.tune.error import TuneError

from archray.errors import InvalidInput
from archray.searchers.drop_worst import DropWorst
from archray.searchers.testing.tuner import copy_to_storage, fit

STEPS, AT = 4, 2


def tuner(folder: Path, values: list[float | None], *, keep: int, mode: str = "max", **more: Any) -> Tuner:
    return Tuner(
        tune.with_resources(Climb, {"cpu": 1}),
        param_space={
            "value": tune.grid_search(values),
            "steps": STEPS,
            "log": str(folder / "log.txt"),
            "fails": more.get("fails", {}),
        },
        tune_config=TuneConfig(
            metric="value",
            mode=mode,
            reuse_actors=True,
            scheduler=DropWorst(trials=len(values), keep=keep, at=AT, time_attr="epoch"),
        ),
        run_config=RunConfig(
            name="run",
            storage_path=str(folder),
            verbose=0,
            callbacks=more.get("callbacks"),
            failure_config=FailureConfig(max_failures=0),
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1),
        ),
    )


def steps(folder: Path) -> Counter[str]:
    """Returns the number of steps of each value over all attempts."""
    return Counter(line.split()[0] for line in (folder / "log.txt").read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "kept"), [("max", {"0.9", "0.7"}), ("min", {"0.1", "0.2"})])
def test_the_best_trials_continue(ray_session, tmp_path, mode, kept):
    results = fit(tuner(tmp_path, [0.2, 0.9, 0.1, 0.7, None], keep=2, mode=mode))
    assert len(results) == 5 and not results.errors
    taken = steps(tmp_path)
    assert {value for value, count in taken.items() if count == STEPS} == kept
    assert {count for value, count in taken.items() if value not in kept} == {AT}


@pytest.mark.slow
def test_a_trial_that_failed_before_does_not_count(ray_session, tmp_path):
    results = fit(tuner(tmp_path, [0.9, 0.5, 0.1], keep=1, fails={"0.9": 1}))
    assert len(results.errors) == 1
    assert steps(tmp_path) == {"0.9": 1, "0.5": STEPS, "0.1": AT}


class Interruption(tune.Callback):
    """Stops the experiment with an exception after `after` reports of `epoch`, once."""

    def __init__(self, mark: Path, epoch: int, after: int) -> None:
        self.mark, self.epoch, self.after = mark, epoch, after
        self.seen = 0

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.seen += trial.last_result["epoch"] == self.epoch
        if self.seen == self.after and not self.mark.exists():
            self.mark.touch()
            copy_to_storage(trial)
            raise RuntimeError("interrupted on purpose")


@pytest.mark.slow
@pytest.mark.parametrize(("epoch", "after"), [(AT, 1), (AT + 1, 1)])
def test_a_restored_scheduler_decides_the_same(ray_session, tmp_path, epoch, after):
    """Interrupted while trials wait, and after the decision."""
    callbacks = [Interruption(tmp_path / "mark", epoch, after)]
    with pytest.raises(TuneError, match="on purpose"):
        fit(tuner(tmp_path, [0.2, 0.9, 0.1, 0.7], keep=2, callbacks=callbacks))
    restored = Tuner.restore(str(tmp_path / "run"), trainable=tune.with_resources(Climb, {"cpu": 1}))
    results = fit(restored)
    assert len(results) == 4 and not results.errors
    reached = {r.config["value"]: r.metrics["epoch"] for r in (results[n] for n in range(4))}
    assert reached == {0.2: AT, 0.9: STEPS, 0.1: AT, 0.7: STEPS}


@pytest.mark.parametrize(
    ("wrong", "arguments"),
    [({"keep": 0}, "between 1 and 4"), ({"keep": 5}, "between 1 and 4"), ({"at": 0}, "1 or more")],
)
def test_wrong_numbers_raise_an_error(wrong, arguments):
    with pytest.raises(InvalidInput, match=arguments):
        DropWorst(**{"trials": 4, "keep": 2, "at": 2, **wrong})


def test_it_needs_a_metric_and_a_mode():
    with pytest.raises(InvalidInput, match="metric and mode"):
        DropWorst(trials=2, keep=1, at=1).set_search_properties("value", None)
