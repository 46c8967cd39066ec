"""Names in the folder of a run, times, and the `archray` command. `archray --help` imports it, so it imports little."""

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

RUNS = "archray-runs"  # the default folder of new runs
MANIFEST = "manifest.json"
SUMMARY = "summary.json"  # what `show`, `load`, `runs` and `watch` read; see `run_summary`
HEARTBEAT = "heartbeat.json"  # the lock of the process that works on the run; see `heartbeat`
CODE = "code"  # copies of the user's files from the start of the run
ARRAYS = "arrays.npz"  # arrays from a call in Python
DONE = "done.json"  # of a stage that has ended, written last
FOUND = "architecture.json"  # the result of a search, a selection, a run
FINDINGS = "findings.json"  # the conclusions of a study
TRIALS, CURVES = "trials.parquet", "curves.parquet"  # of a training stage: a row per trial, a row per epoch
RERUN_GPUS = "rerun_gpus"  # column of both: the share of a GPU of a trial that ran again
ROUNDS = "rounds.parquet"  # of successive halving: a row per round and candidate
PROGRESS = "progress.parquet"  # the best so far by solver calls and seconds
PARETO = "pareto.parquet"  # the non-dominated architectures, a row per member
MEMBERS = "members.parquet"  # the fully trained members, a row each
MODEL = "model"
REPORT = "report.html"
REPEAT = "repeat-"  # and two digits: the folder of one repeat, a run of its own

# In the folder of a running stage; see `stage_progress`. The folder of a Tune run is `tune-DIGEST`.
PLAN = "plan.json"  # of a Tune run: its start, the number of trials, their metric and its mode
STARTED = "started"  # of a Tune run, a JSON file per trial: its configuration and its start
RESULTS = "results"  # of a Tune run, a file of JSON lines per trial, a line per result
SNAPSHOT = "snapshot.zip"  # of a Tune run: its state files when Tune last wrote them all
JOURNAL = "journal-"  # and a number: of a Tune run, the events of trials after the snapshot; see `tune_snapshot`
FAILED = "failed"  # of a Tune run: TRIAL.json of each failed trial, and TRIAL.txt, the stacks
SHARDS = "shards"  # of a scoring: its rows
SCORING = "scoring.json"  # of a scoring: its start, the number of scored architectures, the rate


def command(*words: object) -> str:
    """`archray` with these words, quoted for a shell, for a message."""
    return shlex.join(["archray", *map(str, words)])


def now() -> str:
    """The time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


_COMMAND_START: ContextVar[float | None] = ContextVar("command_start", default=None)


@contextmanager
def timed_command() -> Iterator[None]:
    """Makes the calls in the block count their run time from the start of the process, which is the command's."""
    started = time.time()
    with suppress(OSError, AttributeError):  # without /proc the start-up of the interpreter does not count
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # since the system's start
        started += ticks / os.sysconf("SC_CLK_TCK") - time.clock_gettime(time.CLOCK_BOOTTIME)
    token = _COMMAND_START.set(started)
    try:
        yield
    finally:
        _COMMAND_START.reset(token)


def call_start() -> float:
    """The start of the `archray` command; in a call from Python, now. Seconds since the epoch."""
    return _COMMAND_START.get() or time.time()
