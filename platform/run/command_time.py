"""The start of the `archray` command, from which run times count. `archray --help` imports it, so it imports little."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

_COMMAND_START: ContextVar[float | None] = ContextVar("command_start", default=None)


@contextmanager
def command() -> Iterator[None]:
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
