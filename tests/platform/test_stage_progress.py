"""The progress of a stage, read from its files while it runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from archray.files import Folder
from archray.platform.run.layout import SCORING
from archray.platform.run.stage_progress import stage_progress
from archray.platform.run.trial_log import LOG
from archray.platform.watch import WIDTH, sparkline


@pytest.fixture
def stage(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "search").create()


def write_log(stage: Folder, accuracies: dict[str, list[float]], ends: str, earlier: int = 0, **plan: Any) -> None:
    """Writes the log of a Tune run that started at 1000 s, whose trials report every 10 s.

    Args:
        accuracies: values of each trial by its id.
        ends: for each trial, `e` if it has ended, `f` if it failed, `r` if it runs.
        earlier: number of trials that an earlier session trained.
    """
    content = {"metric": "validation_accuracy", "mode": "max", "total": 4, **plan}
    lines: list[dict[str, Any]] = [{"event": "session", "time": 0.0, "plan": content}] if earlier else []
    for number, (trial, values) in enumerate(accuracies.items()):
        if number == earlier:
            lines.append({"event": "session", "time": 1000.0, "plan": content})
        config = {"architecture": f"arch {trial}"}
        lines += [{"event": event, "trial": trial, "config": config, "time": 1000.0 + number}
                  for event in ("suggested", "started")]  # fmt: skip
        for epoch, value in enumerate(values, start=1):
            result = {"validation_accuracy": value, "epoch": epoch, "epochs": 2, "timestamp": 1000 + 10 * epoch}
            lines.append({"event": "result", "trial": trial, "result": result})
        if ends[number] != "r":
            lines.append({"event": "ended", "trial": trial, "error": ends[number] == "f"})
    (stage / "tune-a").write_bytes(LOG, "".join(json.dumps(line) + "\n" for line in lines).encode())


def test_the_trials_of_a_tune_run_are_counted(stage: Folder) -> None:
    write_log(stage, {"1": [0.2, 0.4], "2": [0.1], "3": [], "4": [0.6, 0.5]}, "erfe")
    progress = stage_progress(stage)
    assert progress is not None and (progress.done, progress.failed, progress.total) == (3, 1, 4)
    assert progress.best is not None and progress.best.config == {"architecture": "arch 4"}
    assert [trial.trial_id for trial in progress.ended] == ["1", "4"]
    [running] = [trial for trial in progress.trials if trial.status == "running"]
    assert (running.trial_id, running.epoch, running.epochs, running.values) == ("2", 1, 2, [0.1])
    assert progress.seconds_left == pytest.approx(0.5 / (3.5 / 20)), "half a trial is left, at 3.5 in 20 s"


def test_work_of_an_earlier_process_does_not_count_for_the_rate(stage: Folder) -> None:
    write_log(stage, {"1": [0.2, 0.4], "2": [0.1]}, "er", earlier=1)
    progress = stage_progress(stage)
    assert progress is not None and progress.seconds_left == pytest.approx(2.5 / (0.5 / 20))


def test_the_trials_of_a_smaller_budget_count_as_done(stage: Folder) -> None:
    """After `resume --budget 5` of a search with 3 trials, its Tune run has 2."""
    write_log(stage, {"4": [0.2, 0.4], "5": [0.1]}, "er", total=5, before=3)
    progress = stage_progress(stage)
    assert progress is not None and (progress.done, progress.total) == (4, 5)
    assert progress.seconds_left == pytest.approx(0.5 / (1.5 / 20))


def test_nan_is_ignored_and_the_lowest_loss_is_the_best(stage: Folder) -> None:
    write_log(stage, {"1": [math.nan], "2": [0.3], "3": [0.2]}, "eee", mode="min")
    progress = stage_progress(stage)
    assert progress is not None and progress.best is not None and progress.best.trial_id == "3"
    assert progress.trials[0].value is None and len(progress.ended) == 2


def test_progress_of_scoring_and_the_stage_started_last(stage: Folder) -> None:
    assert stage_progress(stage) is None
    stage.write_json(SCORING, {"started": 10.0, "done": 30, "failed": 2, "total": 50, "rate": 4.0})
    progress = stage_progress(stage)
    assert progress is not None
    assert (progress.unit, progress.done, progress.failed, progress.seconds_left) == ("architecture", 30, 2, 5.0)
    assert progress.best is None
    write_log(stage, {"1": [0.1]}, "r")
    later = stage_progress(stage)
    assert later is not None and later.unit == "trial"
    (stage / "scores-a").write_json(SCORING, {"started": 2000.0, "done": 0, "failed": 0, "total": 50, "rate": None})
    last = stage_progress(stage)
    assert last is not None and last.unit == "architecture" and last.seconds_left is None


def test_curves_are_drawn_as_text() -> None:
    assert sparkline([0.0, None, 0.5, 1.0]) == "▁ ▅█"
    assert sparkline([0.5, 0.5]) == "▄▄" and sparkline([]) == "" and sparkline([None]) == ""
    assert sparkline([0.5], [0.0, 0.5]) == "█"
    assert len(sparkline([float(n) for n in range(100)])) == WIDTH
