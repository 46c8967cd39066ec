"""If a worker is killed (SIGKILL) inside a training step, its trial resumes from its last checkpoint in another
process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from archray_test_faults import options_of, results_of_run, steps_trained
from ray import tune

import archray
from archray.platform.durable.session import log_id

AT_A_TIME = 2


class KillOnce(tune.Callback):
    """Kills the process of the first trial that has saved its first epoch, shortly after its second epoch was
    requested.
    """

    killed: ClassVar[list[str]] = []
    requested: ClassVar[list[Any]] = []

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if not self.requested and trial.last_result["epoch"] == 1:
            self.requested.append(trial)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.requested and not self.killed:
            os.kill(self.requested[0].last_result["pid"], signal.SIGKILL)
            self.killed.append(log_id(self.requested[0]))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
def test_a_killed_worker_loses_one_step(undisturbed: Callable[..., archray.RunResult], tmp_path: Path) -> None:
    expected, run = Path(undisturbed("hnas", AT_A_TIME).path), tmp_path / "run"
    archray.search("hnas", **options_of("hnas", AT_A_TIME), out=run, callbacks=[KillOnce()])
    assert results_of_run(run) == results_of_run(expected)
    epochs, steps = options_of("hnas")["epochs"], steps_trained(run / "search")
    assert KillOnce.killed and KillOnce.killed[0] in steps
    assert all(count <= epochs + (trial in KillOnce.killed) for trial, count in steps.items())
