"""Names in a run's folder, times, and the `archray` command. `archray --help` imports this module; keep it light."""

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

RUNS = "archray-runs"  # default parent folder of new runs
MANIFEST = "manifest.json"
SUMMARY = "summary.json"  # read by `show`, `load`, `runs` and `watch`; see `run_summary`
HEARTBEAT = "heartbeat.json"  # the lock of the process that works on the run; see `heartbeat`
CODE = "code"  # copies of the user's files from the start of the run
ARRAYS = "arrays.npz"  # arrays from a call in Python
DATA_ARRAYS = "arrays"  # the name of such data in the configuration
DONE = "done.json"  # record of a finished stage, written last
FOUND = "architecture.json"  # the result of a search, a selection, a run
LARGEST = "largest.json"  # the largest network of a comparison: `architecture`, `of` (number of candidates)
FINDINGS = "findings.json"  # the conclusions of a study
TRIALS, CURVES = "trials.parquet", "curves.parquet"  # tables of a training stage: a row per trial, a row per epoch
RERUN_GPUS = "rerun_gpus"  # column of both: GPU share of a rerun trial
ROUNDS = "rounds.parquet"  # table of successive halving: a row per round and candidate
PROGRESS = "progress.parquet"  # best value so far by solver calls and seconds
PARETO = "pareto.parquet"  # non-dominated architectures, a row per member
MEMBERS = "members.parquet"  # fully trained members, a row each
MODEL = "model"
DESCRIPTION = "architecture.json"  # in `MODEL`: the architecture and the sizes of its network
REPORT = "report.html"
SEARCH_STAGES = ("supernet", "pool", "search", "selection")  # stages whose training selects the architecture
TRAINING_STAGES = (*SEARCH_STAGES, "final", "members")  # stages whose training counts
REPEAT = "repeat-"  # prefix, before two digits: the folder of a repeat, which is itself a run

# Files in the folder of a running stage, see `stage_progress`. A Tune run is in `tune-DIGEST`, see `trial_log`.
FAILED = "failed"  # Tune run: TRIAL.txt with the native stacks of processes that died
SHARDS = "shards"  # scoring: rows
SCORING = "scoring.json"  # scoring: start, number of scored architectures, rate


def command(*words: object) -> str:
    """Formats an `archray` command for a message, quoted for a shell."""
    return shlex.join(["archray", *map(str, words)])


def now() -> str:
    """Returns the time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


_COMMAND_START: ContextVar[float | None] = ContextVar("command_start", default=None)


@contextmanager
def timed_command() -> Iterator[None]:
    """Makes calls in the block count their run time from the start of the process, and so of the command."""
    started = time.time()
    with suppress(OSError, AttributeError):  # without /proc, the start-up time of the interpreter is not included
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # since the system's start
        started += ticks / os.sysconf("SC_CLK_TCK") - time.clock_gettime(time.CLOCK_BOOTTIME)
    token = _COMMAND_START.set(started)
    try:
        yield
    finally:
        _COMMAND_START.reset(token)


def call_start() -> float:
    """Returns the start of the `archray` command, or now in a call from Python, in seconds since the epoch."""
    return _COMMAND_START.get() or time.time()
