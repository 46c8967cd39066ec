"""Lock of a folder for one writer at a time. The holder renews it, so that other processes see whether it is alive."""

import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console

from archray.errors import DamagedFile, RunFolderError, RunInterrupted, UnreadableFile, printable
from archray.files import Folder
from archray.platform.run.documents import Beat
from archray.platform.run.layout import HEARTBEAT, now

SECONDS = 10.0  # interval between two beats
SILENT = 6 * SECONDS  # time without a beat until a process counts as dead; clocks of machines may differ by seconds
CLAIM = f"{HEARTBEAT}.claim-"  # prefix, before a token: the file of a process that is about to acquire the lock


@dataclass
class _Lock:
    """A lock of this process.

    Attributes:
        before: last beat of an earlier, dead holder.
        taker: process that has taken over the lock, if any.
    """

    folder: Folder
    beat: dict[str, Any]
    before: Mapping[str, Any] | None
    taker: Mapping[str, Any] | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def renew(self) -> None:
        """Writes the time every ten seconds; stops this process's work if another process has taken over."""
        while not self.ended.wait(SECONDS):
            try:
                holder = _read(self.folder, HEARTBEAT)
                if holder is not None and holder.get("token") != self.beat["token"]:
                    self.taker = holder
                    os.kill(os.getpid(), signal.SIGINT)
                    return
                self.folder.write_json(HEARTBEAT, {**self.beat, "at": now()})
            except OSError:  # an unresponsive store must not stop a search; the next beat may succeed
                continue


_LOCKS: ContextVar[Mapping[str, _Lock]] = ContextVar("locks", default=MappingProxyType({}))  # by path
_tokens: set[str] = set()  # tokens of all locks of this process


@contextmanager
def lock(folder: Folder, work: str) -> Iterator[None]:
    """Makes this process the only writer of a folder while the block runs. Nested blocks may lock it again.

    `heartbeat.json` names the holder; the lock deletes it at the end. The lock takes over from a dead holder and prints
    a message. A holder on the same machine is dead if its process has ended. A holder on another machine is dead if its
    last beat is a minute old; the lock waits for this. A created folder that stays empty is removed.

    Args:
        folder: folder of a run, or another folder that commands write to; it need not exist.
        work: command, for messages of other processes.

    Raises: RunFolderError with the holder if another process works in the folder; RunInterrupted at the end if another
        process has taken over, for example because this machine was suspended.
    """
    if folder.path in _LOCKS.get():
        yield
        return
    created = not folder.exists()
    record = _Lock(folder, *_acquire(folder, work))
    outer = _LOCKS.set({**_LOCKS.get(), folder.path: record})
    thread = threading.Thread(target=record.renew, name="archray-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    except (KeyboardInterrupt, RunInterrupted) as error:
        if record.taker is None:
            raise
        raise RunInterrupted(f"stopped: {_who(record.taker)} has taken over {folder}") from error
    finally:
        record.ended.set()
        thread.join()
        _LOCKS.reset(outer)
        with suppress(OSError):  # with an unresponsive store, the lock becomes stale when this process ends
            if record.taker is None and folder.exists(HEARTBEAT):
                folder.delete(HEARTBEAT)
            if created and (local := folder.local_path()) is not None:
                local.rmdir()  # fails unless the folder is empty
        _tokens.discard(record.beat["token"])


def is_taken_over(folder: Folder) -> bool:
    """Returns whether another process has taken over a folder that this process locked, and must no longer write to."""
    record = _LOCKS.get().get(folder.path)
    return record is not None and record.taker is not None


def is_locked_elsewhere(folder: Folder) -> bool:
    """Returns whether another process works on the folder."""
    return folder.path not in _LOCKS.get() and no_sign_of_life(folder) is None


def holds_nothing(folder: Folder) -> bool:
    """Returns whether a folder has no folders, and no files except for a lock."""
    return not folder.folders() and all(name.startswith(HEARTBEAT) for name in folder.files())


def no_sign_of_life(folder: Folder) -> str | None:
    """Returns why the process that works on the folder counts as dead; None if it is alive."""
    beat = _read(folder, HEARTBEAT)
    return "no process works on it" if beat is None else _gone(beat)


def _acquire(folder: Folder, work: str) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """Acquires the lock. Returns this process's beat, and the last beat of a dead holder.

    1. Write a claim.
    2. While there are other claims, the process with the least claim waits until the others have withdrawn.
    3. If no process holds the lock, write the beat; then delete the claim.

    The first process that sees no other claim writes its beat before a process with a later claim can see none. The
    store therefore needs no conditional writes, which pyarrow does not offer. It must list written files consistently,
    as disks, S3, GCS and Azure do.
    """
    _await_holder(folder)
    beat = {"at": now(), "since": now(), **_identity(), "work": work, "token": uuid.uuid4().hex}
    claim = f"{CLAIM}{beat['token']}"
    _tokens.add(beat["token"])
    try:
        folder.write_json(claim, beat)
        while rivals := _rivals(folder, claim):
            if min(rivals) < claim:
                raise _in_use(folder, rivals[min(rivals)])
            time.sleep(0.02)
        stale = _await_holder(folder)
        folder.write_json(HEARTBEAT, beat)
    except BaseException:
        _tokens.discard(beat["token"])
        raise
    finally:
        with suppress(OSError):
            folder.delete(claim)
    if stale is not None:
        _print(f"Continuing in {folder} after a kill or crash of {_who(stale)}.")
    return beat, stale


def _await_holder(folder: Folder) -> Mapping[str, Any] | None:
    """Returns the last beat of a dead holder; None without a lock. Waits for a beat of a holder on another machine.

    Raises: RunFolderError if the holder is alive.
    """
    first = beat = _read(folder, HEARTBEAT)
    while beat is not None and _gone(beat) is None:
        if beat["at"] != (first or beat)["at"] or _is_here(beat):
            raise _in_use(folder, beat)
        if beat is first:
            _print(f"Waiting up to {SILENT:.0f} s to check whether {_who(beat)} still works on {folder}.")
        time.sleep(1.0)
        beat = _read(folder, HEARTBEAT)
    return beat


def _rivals(folder: Folder, claim: str) -> dict[str, Mapping[str, Any]]:
    """Returns the claims of other live processes, by name. Deletes the claims of dead processes."""
    rivals: dict[str, Mapping[str, Any]] = {}
    for name in folder.files():
        if not name.startswith(CLAIM) or name == claim:
            continue
        if (beat := _read(folder, name)) is None:
            time.sleep(0.1)  # some mounts of a store list a file before it is complete
            beat = _read(folder, name)
        if beat is not None and _gone(beat) is None:
            rivals[name] = beat
        else:
            with suppress(OSError):
                folder.delete(name)
    return rivals


def _in_use(folder: Folder, beat: Mapping[str, Any]) -> RunFolderError:
    return RunFolderError(
        f"expected a folder that no other process writes to, got {folder}: {_who(beat)} has been working on it since "
        f"{beat.get('since', beat['at'])}. Wait until it ends, or stop it there with 'kill -INT {beat['pid']}'. "
        f"If the folder is a copy of a folder in use, delete its {HEARTBEAT}"
    )


def _who(beat: Mapping[str, Any]) -> str:
    return f"{beat.get('work', 'archray')} (process {beat['pid']} on {beat['host']})"


def _gone(beat: Mapping[str, Any]) -> str | None:
    """Returns why the process that wrote a beat counts as dead; None if it is alive."""
    if _is_here(beat):
        started, before = start_of(beat["pid"]), beat.get("started")
        reused = bool(started and before) and started != before
        if started is None or reused or (beat["pid"] == os.getpid() and beat.get("token") not in _tokens):
            return f"its process {beat['pid']} ended without a message"
        if started and before:
            return None
    age = (datetime.now(UTC) - datetime.fromisoformat(beat["at"]).astimezone(UTC)).total_seconds()
    return f"no heartbeat from {beat['host']} since {beat['at']}" if age > SILENT else None


def alive_until(folder: Folder, at: datetime) -> datetime | None:
    """Returns when the process that worked on the folder at a time was last alive; None if unknown."""
    record = _LOCKS.get().get(folder.path)
    beat = _read(folder, HEARTBEAT) if record is None else record.before
    if record is not None and at > datetime.fromisoformat(record.beat["since"]):
        return datetime.now(UTC)
    if record is None and beat is not None and _gone(beat) is None:
        return datetime.now(UTC)
    return None if beat is None else datetime.fromisoformat(beat["at"]).astimezone(UTC)


def _is_here(beat: Mapping[str, Any]) -> bool:
    """Returns whether this machine and container can look up the process of a beat."""
    here = _identity()
    return (beat["host"], beat["processes"]) == (here["host"], here["processes"])


def _read(folder: Folder, name: str) -> dict[str, Any] | None:
    """Reads a beat; None if it is missing or damaged. Raises: UnreadableFile."""
    try:
        return dict(folder.read_json(name, Beat))
    except UnreadableFile:  # its process may be alive
        raise
    except DamagedFile:
        return None


def _identity() -> dict[str, Any]:
    """Returns the identity of this process. `processes` is boot and container, in which a process number is unique."""
    boot, container = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        container = os.readlink("/proc/self/ns/pid")  # containers of one host name have separate process numbers
    pid = os.getpid()
    processes = f"{boot} {container}".strip()
    return {"host": socket.gethostname(), "processes": processes, "pid": pid, "started": start_of(pid)}


def start_of(process: int) -> str | None:
    """Returns the start of a process in the system's unit; empty if unknown; None if the process has ended."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # a process of another user
        pass
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return None if state in "ZX" else fields[18]


def _print(text: str) -> None:
    Console(stderr=True, highlight=False).print(printable(text), markup=False, soft_wrap=True)
