"""Trials whose process dies are reported in a sentence with the stack. If all trials die, the run fails."""

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from archray_test_command import PATIENCE, finish, start

from archray.errors import TrialCrashed
from archray.files import Folder
from archray.platform.durable.failed_trials import Failure, check_crashes, quiet_deaths
from archray.platform.run.trial_log import LoggedTrial, read_log


def ended_trial(**failure: object) -> LoggedTrial:
    """A trial that ended in an error, or without one if there is no failure."""
    described = {"error": "ValueError: no", **failure} if failure else None
    return LoggedTrial("00001", {}, ended=True, error=bool(failure), failure=described)


def test_a_failure_is_described():
    assert Failure(error="ValueError: no").sentence == "ValueError: no"
    once = Failure(error="died", processes=(7,), cause="SIGSEGV", stack="/run/a.txt")
    assert once.sentence == "the process of the trial crashed (SIGSEGV); the native stack is in /run/a.txt"
    twice = Failure(error="died", processes=(7, 8))
    assert twice.sentence == "the process of the trial was killed, twice; no native stack is available"


def test_a_run_fails_only_if_every_trial_crashes():
    dead = {"processes": [1, 2], "cause": "SIGABRT", "stack": "/s/a.txt"}
    error = {"error": "ValueError: no"}
    for trials in ([], [error], [dead, {}]):
        check_crashes([ended_trial(**trial) for trial in trials], "archray resume run")
    for trials, message in (
        ([dead], "the process of the trial crashed (SIGABRT), twice; the native stack is in /s/a.txt. "),
        (
            [dead, {**dead, "processes": [3]}],
            "the processes of all 2 trials crashed (SIGABRT), 3 times in all; the native stack of one is in /s/a.txt. ",
        ),
        ([dead, error], "the processes of 1 of 2 trials crashed (SIGABRT), twice; "),
        ([{"processes": [1]}], "the process of the trial was killed; no native stack is available. The usual "),
    ):
        with pytest.raises(TrialCrashed) as caught:
            check_crashes([ended_trial(**trial) for trial in trials], "archray resume run")
        assert str(caught.value).startswith(message)
        assert str(caught.value).endswith("with: archray resume run")


def test_other_lines_of_tune_are_shown(caplog):
    logger = logging.getLogger("ray.tune.tune")
    with quiet_deaths():
        logger.error("Trials did not complete: %s", [SimpleNamespace(status="ERROR")])
        logger.error("Trials did not complete: %s", [SimpleNamespace(status="RUNNING")])
        logger.error("another %s", "line", exc_info=ValueError("no"))
        logger.error("the same error of another trial", exc_info=ValueError("no"))
        logger.error("Trial %s: Error handling checkpoint %s", "t", "c", exc_info=FileNotFoundError("100% gone"))
    logger.error("Trials did not complete: %s", [SimpleNamespace(status="ERROR")])
    assert len(caplog.records) == 4
    lost = caplog.records[2]
    assert (
        lost.getMessage() == "Trial t: Error handling checkpoint c: FileNotFoundError 100% gone" and not lost.exc_info
    )
    assert caplog.records[1].getMessage() == "another line"


@pytest.mark.slow
def test_a_command_with_crashing_trials_reports_them(repository, tmp_path, monkeypatch):
    """First all trials abort, and the command fails.

    Then only trials of width 4 abort while they are built, and the run succeeds.
    """
    space = repository / "tests" / "worker_modules" / "archray_test_crash.py"
    # On a busy machine Ray may notice the death of an actor more than a second later, and calls it unavailable until
    # then.
    monkeypatch.setenv("RAY_timeout_ms_task_wait_for_death_info", "60000")
    monkeypatch.setenv("CRASH", "step:4,6,8")
    process = start(
        "search", "hnas", "--space", f"{space}:CrashSpace", "--data", "digits", "--preset", "smoke", "--budget", "2",
        "--out", "run", "--set", "cluster.dashboard=false", cwd=tmp_path,
    )  # fmt: skip
    assert process.wait(timeout=PATIENCE) == 1
    log = (tmp_path / "log.txt").read_text()
    assert "Traceback" not in log and "raylet" not in log and "ActorDiedError" not in log
    assert sum("scored" not in line for line in log.splitlines()) < 20  # ten seconds of scoring
    last = log.splitlines()[-1]
    trial_row = re.match(
        r"archray: the processes of all 2 trials crashed \(SIGABRT\), 6 times in all; the native stack of one is in "
        r"(\S+)\. .*ONEDNN_MAX_CPU_ISA=AVX.*: archray resume \S+$",
        last,
    )
    assert trial_row, log
    stacks = Path(trial_row[1]).read_text()
    assert stacks.count("SIGABRT received") >= 3
    assert "Fatal Python error: Aborted" in stacks and "in forward" in stacks
    assert sum("the process of the trial crashed (SIGABRT), 3 times" in line for line in log.splitlines()) == 2

    monkeypatch.setenv("CRASH", "build:4")
    finish("resume", "run", cwd=tmp_path)
    assert "trials restart, since their processes crashed" in (tmp_path / "log.txt").read_text()
    trials = pd.read_parquet(tmp_path / "run" / "search" / "trials.parquet").set_index("trial_id")
    assert len(trials) == 2
    folders = (tmp_path / "run" / "search").iterdir()
    [tuned] = [place for place in folders if re.fullmatch(r"tune-[0-9a-f]{16}", place.name)]  # the other was set aside
    logged = read_log(Folder(tuned))
    dead = {name: trial for name, trial in logged.trials.items() if trial.error}
    assert len(dead) == 1
    for trial_id, row in trials.iterrows():
        assert (trial_id in dead) == row["architecture"].startswith("width=4")
        assert (trial_id in dead) == pd.isna(row["validation_accuracy"]) == isinstance(row["error"], str)
    [failed] = dead.values()
    sentence = Failure.of(failed).sentence
    assert trials.loc[failed.trial_id, "error"] == sentence
    # This holds also where the actor of another trial builds it: at its first step, not when the actor is reset.
    assert re.match(r"the process of the trial crashed \(SIGABRT\), 3 times; the native stack is in ", sentence)
    assert trials.loc[failed.trial_id, "seed"] == failed.config["seed"]
    found = json.loads((tmp_path / "run" / "architecture.json").read_text())
    assert not found["architecture"].startswith("width=4")
