"""The progress of a stage, read from its files while it runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from archray.files import Folder
from archray.platform.run.layout import PLAN, RESULTS, SCORING, STARTED
from archray.platform.run.stage_progress import stage_progress
from archray.platform.run.tune_snapshot import write_snapshot
from archray.platform.watch import WIDTH, sparkline


@pytest.fixture
def stage(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "search").create()


def write_tune_run(stage: Folder, accuracies: dict[str, list[float]], statuses: dict[str, str], **plan: Any) -> Path:
    """Writes a Tune run that started at 1000 s with a result every 10 s, and returns the folder of the results."""
    folder = stage / "tune-a"
    content = {"started": 1000.0, "metric": "validation_accuracy", "mode": "max", "total": 4, "before": 0}
    folder.write_json(PLAN, content | {"done_before": 0} | plan)
    for number, (trial, values) in enumerate(accuracies.items()):
        started = {"trial_id": trial, "config": {"architecture": f"arch {trial}"}, "started": 1000.0 + number}
        (folder / STARTED).write_json(f"{trial}.json", started)
        lines = [
            {
                "trial_id": trial,
                "validation_accuracy": value,
                "epoch": epoch,
                "epochs": 2,
                "timestamp": 1000 + 10 * epoch,
            }
            for epoch, value in enumerate(values, start=1)
        ]
        (folder / RESULTS).write_bytes(f"{trial}.jsonl", "\n".join(map(json.dumps, lines)).encode())
    state = {"trial_data": [[json.dumps({"trial_id": t, "status": status}), ""] for t, status in statuses.items()]}
    write_snapshot(folder, {"experiment_state-2026.json": json.dumps(state).encode()})
    return Path((folder / RESULTS).path)


def test_the_trials_of_a_tune_run_are_counted(stage: Folder) -> None:
    accuracies = {"a": [0.2, 0.4], "b": [0.1], "c": [], "d": [0.6, 0.5]}
    statuses = {"a": "TERMINATED", "b": "RUNNING", "c": "ERROR", "d": "TERMINATED"}
    write_tune_run(stage, accuracies, statuses)
    progress = stage_progress(stage)
    assert progress is not None and (progress.done, progress.failed, progress.total) == (3, 1, 4)
    assert progress.best is not None and progress.best.config == {"architecture": "arch d"}
    assert [trial.trial_id for trial in progress.ended] == ["a", "d"]
    [running] = [trial for trial in progress.trials if trial.status == "running"]
    assert (running.trial_id, running.epoch, running.epochs, running.values) == ("b", 1, 2, [0.1])
    assert progress.seconds_left == pytest.approx(0.5 / (3.5 / 20)), "half a trial is left, at 3.5 in 20 s"


def test_work_of_an_earlier_process_does_not_count_for_the_rate(stage: Folder) -> None:
    write_tune_run(stage, {"a": [0.2, 0.4], "b": [0.1]}, {"a": "TERMINATED", "b": "RUNNING"}, done_before=1)
    progress = stage_progress(stage)
    assert progress is not None and progress.seconds_left == pytest.approx(2.5 / (0.5 / 20))


def test_the_trials_of_a_smaller_budget_count_as_done(stage: Folder) -> None:
    """After `resume --budget 5` of a search with 3 trials, its Tune run has 2."""
    write_tune_run(stage, {"d": [0.2, 0.4], "e": [0.1]}, {"d": "TERMINATED", "e": "RUNNING"}, total=5, before=3)
    progress = stage_progress(stage)
    assert progress is not None and (progress.done, progress.total) == (4, 5)
    assert progress.seconds_left == pytest.approx(0.5 / (1.5 / 20))


def test_a_partly_written_line_is_ignored(stage: Folder) -> None:
    results = write_tune_run(stage, {"a": [0.2, 0.4]}, {"a": "RUNNING"})
    with open(results / "a.jsonl", "a") as file:
        file.write('\n{"trial_id": "a", "validation_acc')
    progress = stage_progress(stage)
    assert progress is not None and progress.trials[0].values == [0.2, 0.4]


def test_nan_is_ignored_and_the_lowest_loss_is_the_best(stage: Folder) -> None:
    accuracies = {"a": [math.nan], "b": [0.3], "c": [0.2]}
    write_tune_run(stage, accuracies, dict.fromkeys(accuracies, "TERMINATED"), mode="min")
    progress = stage_progress(stage)
    assert progress is not None and progress.best is not None and progress.best.trial_id == "c"
    assert progress.trials[0].value is None and len(progress.ended) == 2


def test_progress_of_scoring_and_the_stage_started_last(stage: Folder) -> None:
    assert stage_progress(stage) is None
    stage.write_json(SCORING, {"started": 10.0, "done": 30, "failed": 2, "total": 50, "rate": 4.0})
    progress = stage_progress(stage)
    assert progress is not None
    assert (progress.unit, progress.done, progress.failed, progress.seconds_left) == ("architecture", 30, 2, 5.0)
    assert progress.best is None
    write_tune_run(stage, {"a": [0.1]}, {"a": "RUNNING"})
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
