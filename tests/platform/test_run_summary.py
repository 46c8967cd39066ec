"""The status of a run by its folder: finished, running, interrupted or failed. Tables are stored as JSON."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from archray.errors import RunFolderError, RunInterrupted
from archray.files import Folder
from archray.platform.engine.stage import RunRecord, recorded, whole_run, write_summary
from archray.platform.methods.report import list_trials
from archray.platform.run.heartbeat import SILENT, lock
from archray.platform.run.layout import DONE, FOUND, HEARTBEAT, MANIFEST, SUMMARY, command
from archray.platform.run.run_summary import KEPT_ROWS, Listing, RunSummary, plain
from archray.platform.show import table_lines

STAGES = {"pool": "score", "search": "train"}
CONFIG = {"method": "hnas", "space": "nasbench201", "data": {"name": "digits"}, "seed": 3, "repeats": 1}
RESULT = {"architecture": "a", "value": 0.5, "test_accuracy": math.nan}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "run").create()
    made_with = {"references": {}, "arrays": False, "versions": {}, "amended": [], "data_checksum": None}
    made.write_json(MANIFEST, {**made_with, "config": CONFIG, "created": "2026-01-01T00:00:00+00:00", "command": None})
    return made


def description() -> dict[str, object]:
    return {"result": RESULT, "listings": []}


@pytest.mark.parametrize("name", ["a b", "it's", "$HOME", "größe 😀", "#1 50%?", "-x", ""])
def test_a_command_can_be_copied(name: str) -> None:
    assert shlex.split(command("resume", name, "--trust")) == ["archray", "resume", name, "--trust"]


def end_stage(folder: Folder, name: str, seconds: float = 2.5) -> None:
    ended = {"inputs": "", "outputs": {}, "finished": "2026-01-01T00:01:00+00:00", "seconds": seconds}
    (folder / name).create().write_json(DONE, ended)


def test_a_run_from_its_first_stage_to_its_last(folder: Folder) -> None:
    with recorded(folder, STAGES, description, started=time.time() - 100) as record:
        record.started("pool")
        on = RunSummary.read(folder)
        assert (on.state, on.reason, on.stage and on.stage.name) == ("running", None, "pool")
        end_stage(folder, "pool")
        record.ended("pool")
        record.started("search")
        assert [stage.state for stage in RunSummary.read(folder).stages] == ["done", "running"]
        end_stage(folder, "search", 4.0)
        record.ended("search")
    ended = RunSummary.read(folder)
    assert (ended.state, ended.stage) == ("done", None)
    assert [stage.seconds for stage in ended.stages] == [2.5, 4.0] and ended.seconds >= 100, "its start-up too"
    assert ended.architectures == ["a"] and ended.result["test_accuracy"] is None, "JSON has no NaN"
    assert (ended.method, ended.space, ended.data, ended.seed) == ("hnas", "nasbench201", "digits", 3)
    assert json.loads(json.dumps(ended.to_dict(), allow_nan=False))["stages"][0]["title"] == "score"


def test_the_run_time_includes_all_commands(folder: Folder) -> None:
    for _ in range(2):
        with recorded(folder, STAGES, description, started=time.time() - 100):
            beat = folder.read_json(HEARTBEAT)
    assert 200 <= RunSummary.read(folder).seconds < 300
    write_summary(folder, STAGES, description, ended=True)  # `archray report` does not continue the run
    assert 200 <= RunSummary.read(folder).seconds < 300
    summary = folder.read_json(SUMMARY)
    folder.write_json(SUMMARY, {**summary, "state": "running", "seconds": 200.0})  # killed 50 s after it was written
    at = datetime.fromisoformat(summary["written"]) + timedelta(seconds=50)
    folder.write_json(HEARTBEAT, {**beat, "at": at.isoformat(), "pid": 2**22 + 1})
    killed = RunSummary.read(folder)
    assert (killed.state, killed.seconds) == ("interrupted", 250.0)
    with lock(folder, "resume"), recorded(folder, STAGES, description):
        pass
    assert 250 <= RunSummary.read(folder).seconds < 300, (
        "the heartbeat of the killed process counts, not that of this process"
    )


@pytest.mark.slow
def test_a_command_is_timed_from_the_start_of_its_process(folder: Folder) -> None:
    code = (
        "import sys, time; time.sleep(1)\n"
        "from archray.files import Folder\n"
        "from archray.platform.engine.stage import recorded\n"
        "from archray.platform.run.layout import call_start, timed_command\n"
        "with timed_command(): started = call_start()\n"
        "assert call_start() > started + 1\n"
        "with recorded(Folder(sys.argv[1]), {}, lambda: {'result': {}, 'listings': []}, started): pass"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
    assert RunSummary.read(folder).seconds >= 1.0


def test_a_restarted_stage_resets_the_later_stages(folder: Folder) -> None:
    for name in STAGES:
        end_stage(folder, name)
    record = RunRecord(folder, STAGES, description)
    record.started("pool")
    assert [stage.state for stage in RunSummary.read(folder).stages] == ["stopped", "waiting"], "no process works on it"
    with lock(folder, "test"):
        assert [stage.state for stage in RunSummary.read(folder).stages] == ["running", "waiting"]


def test_the_reason_of_a_stop_is_stored(folder: Folder) -> None:
    def stop() -> None:
        with recorded(folder, STAGES, description) as record:
            record.started("search")
            record.reason = "[2/2] search: stopped with 1 of at most 3 trials ended"
            raise RunInterrupted(f"{record.reason}. Continue with: archray resume there")

    with pytest.raises(RunInterrupted):
        stop()
    stopped = RunSummary.read(folder)
    assert (stopped.state, stopped.reason) == ("interrupted", "[2/2] search: stopped with 1 of at most 3 trials ended")
    assert stopped.stage and (stopped.stage.name, stopped.stage.state) == ("search", "stopped")
    with pytest.raises(KeyboardInterrupt), recorded(folder, STAGES, description):
        raise KeyboardInterrupt
    assert RunSummary.read(folder).state == "interrupted"
    with pytest.raises(ValueError, match="no more"), recorded(folder, STAGES, description):
        raise ValueError("no more")
    assert (RunSummary.read(folder).state, RunSummary.read(folder).reason) == ("failed", "ValueError: no more")


def test_a_repeat_is_resumed_with_its_whole_run(folder: Folder) -> None:
    repeat = (folder / "repeat-01").create()
    assert str(whole_run(repeat)) == str(folder) and str(whole_run(folder)) == str(folder)
    (folder.parent / "alone" / "repeat-01").create()
    assert str(whole_run(folder.parent / "alone" / "repeat-01")).endswith("alone/repeat-01")


def test_the_reason_of_a_stopped_repeat_is_stored_for_the_run(folder: Folder) -> None:
    def stop() -> None:
        with recorded(folder, {}, description):
            try:
                raise RunInterrupted("stopped with 1 of at most 3 trials ended")
            except RunInterrupted as error:
                raise RunInterrupted(f"[2/5] search: {error}. Continue with: archray resume there") from error

    with pytest.raises(RunInterrupted):
        stop()
    assert RunSummary.read(folder).reason == "stopped with 1 of at most 3 trials ended"


def test_a_killed_process_is_detected(folder: Folder) -> None:
    RunRecord(folder, STAGES, description).started("search")
    assert RunSummary.read(folder).reason == "no process works on it"
    code = (
        "import os, signal, sys\n"
        "from archray.files import Folder\n"
        "from archray.platform.run.heartbeat import lock\n"
        "with lock(Folder(sys.argv[1]), 'test'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.Popen([sys.executable, "-c", code, str(folder)])
    killed.wait()
    after_kill = RunSummary.read(folder)
    assert after_kill.state == "interrupted" and f"its process {killed.pid} ended" in str(after_kill.reason)
    with lock(folder, "test"):
        assert RunSummary.read(folder).state == "running"


@pytest.mark.parametrize(("age", "state"), [(1.0, "running"), (SILENT + 5, "interrupted")])
def test_another_machine_is_judged_by_its_last_heartbeat(folder: Folder, age: float, state: str) -> None:
    RunRecord(folder, STAGES, description).started("search")
    at = (datetime.now(UTC) - timedelta(seconds=age)).isoformat(timespec="seconds")
    folder.write_json(HEARTBEAT, {"at": at, "host": "elsewhere", "processes": "", "pid": 1})
    summary = RunSummary.read(folder)
    assert summary.state == state
    assert (summary.reason is None) == (state == "running")
    assert state == "running" or f"no heartbeat from elsewhere since {at}" in str(summary.reason)


def test_a_run_without_a_summary_is_described_by_its_other_files(folder: Folder) -> None:
    end_stage(folder, "pool")
    unfinished = RunSummary.read(folder)
    assert unfinished.state == "interrupted" and f"has no {SUMMARY}; rewrite it with: archray report" in str(
        unfinished.reason
    )
    folder.write_json(FOUND, RESULT)
    ended = RunSummary.read(folder)
    assert (ended.state, ended.architectures, ended.seconds) == ("done", ["a"], 2.5)
    assert "archray report" in str(ended.reason)


def test_a_folder_without_a_run_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"expected the folder of a run, got .* without manifest\.json"):
        RunSummary.read(tmp_path)
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(RunFolderError, match="a file of another program"):
        RunSummary.read(tmp_path)


def test_rows_are_stored_as_json() -> None:
    row = {
        "a": np.float64("nan"),
        "b": np.int64(3),
        "c": pd.NaT,
        "d": np.array([1.5, math.inf]),
        "e": True,
        "f": ("x",),
    }
    assert plain(row) == {"a": None, "b": 3, "c": None, "d": [1.5, None], "e": True, "f": ["x"]}
    assert type(plain(np.float32(0.5))) is float
    listing = Listing.of("many", [{"a": 1}] * (KEPT_ROWS + 5))
    assert (len(listing.rows), listing.count) == (KEPT_ROWS, KEPT_ROWS + 5)


def test_a_list_of_trials_marks_the_chosen_one_and_puts_it_first_among_equals() -> None:
    trials = pd.DataFrame(
        {"architecture": list("abcdef"), "accuracy": [0.9, 0.7, 0.9, math.nan, 0.9, 0.95], "failure": None}
    )
    [listing] = list_trials(trials, "trials", "accuracy", ["e"])
    assert [row["architecture"] for row in listing.rows] == ["f", "e", "a", "c", "b", "d"]
    assert [row["outcome"] for row in listing.rows] == ["", "chosen", "", "", "", ""]
    heading, *_ = table_lines(listing)
    assert heading.split()[0] == "outcome"
    [undecided] = list_trials(trials, "trials", "accuracy", [None])
    assert "outcome" not in next(iter(table_lines(undecided)))
