"""Whether a process works on a run, as far as the folder can tell: the process writes the time, again and again."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from archray.files import Folder
from archray.platform.run.layout import HEARTBEAT

SECONDS = 10.0  # between two beats
SILENT = 6 * SECONDS  # after so long without one a process counts as gone; clocks of machines may differ by seconds


@contextmanager
def heartbeat(folder: Folder) -> Iterator[None]:
    """Beats while the block runs. The file stays: what a run is when its process has ended, its summary says."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(SECONDS):
            try:
                folder.write_json(HEARTBEAT, _beat())
            except OSError:  # a store that does not answer now must not end a search; the next beat may pass
                continue

    folder.write_json(HEARTBEAT, _beat())
    thread = threading.Thread(target=beat, name="archray-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def no_sign_of_life(folder: Folder) -> str | None:
    """Why the process that works on the run counts as gone; None if it is alive."""
    if not folder.exists(HEARTBEAT):
        return "no process has worked on it here"
    beat = folder.read_json(HEARTBEAT)
    here = _beat()
    if (beat["host"], beat["processes"]) == (here["host"], here["processes"]) and not _exists(int(beat["pid"])):
        return f"its process {beat['pid']} is gone, and said nothing"
    age = (datetime.fromisoformat(here["at"]) - datetime.fromisoformat(beat["at"])).total_seconds()
    return f"no sign of life from {beat['host']} since {beat['at']}" if age > SILENT else None


def _beat() -> dict[str, Any]:
    try:
        processes = os.readlink("/proc/self/ns/pid")  # containers of one name count their processes apart
    except OSError:
        processes = ""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"at": at, "host": socket.gethostname(), "processes": processes, "pid": os.getpid()}


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
