"""Processes of this machine, as the kernel lists them in /proc."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

END_SECONDS = 5.0  # limit for the end of killed processes; the kernel may keep one that waits for a disk


@dataclass(frozen=True)
class Process:
    """A process.

    Attributes:
        number: its id, which another process may have later.
        parent: the id of its parent.
        started: its start in ticks since the start of the machine.
        name: the first 15 characters of the name of its program, such as `raylet`.
        ended: whether it has ended, and its parent has not waited for it.
    """

    number: int
    parent: int
    started: int
    name: str
    ended: bool

    @property
    def folder(self) -> Path:
        """Its folder in /proc."""
        return Path("/proc", str(self.number))

    @property
    def command(self) -> str:
        """Its command line; empty if it has ended."""
        with suppress(OSError):
            return (self.folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        now = _read(self.number)
        return now is not None and now.started == self.started and not now.ended


def _read(number: int) -> Process | None:
    try:
        text = Path("/proc", str(number), "stat").read_text()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return Process(number, int(fields[1]), int(fields[19]), name, fields[0] in "ZX")


def _all() -> list[Process]:
    processes = (_read(int(folder.name)) for folder in Path("/proc").glob("[0-9]*"))
    return [process for process in processes if process is not None]


def child_processes(parent: int | None = None) -> list[Process]:
    """Returns the children of a process; None: of this process."""
    parent = os.getpid() if parent is None else parent
    return [process for process in _all() if process.parent == parent]


def own_processes() -> list[Process]:
    """Returns this process and all its descendants."""
    processes = _all()
    members = [process for process in processes if process.number == os.getpid()]
    for member in members:  # grows as it is read
        members += [process for process in processes if process.parent == member.number]
    return members


def kill(processes: list[Process]) -> None:
    """Kills processes, some of which may have ended, and waits for their end, at most END_SECONDS."""
    deadline = time.monotonic() + END_SECONDS
    for process in processes:
        if process.runs:
            with suppress(ProcessLookupError):
                os.kill(process.number, signal.SIGKILL)
    while any(process.runs for process in processes) and time.monotonic() < deadline:
        time.sleep(0.01)
