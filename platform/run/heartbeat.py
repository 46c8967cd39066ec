"""One writer at a time: the lock of a folder, which its holder renews, so that others see whether it is alive."""

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

SECONDS = 10.0  # between two beats
SILENT = 6 * SECONDS  # without a beat, until a process counts as gone; clocks of machines may differ by seconds
CLAIM = f"{HEARTBEAT}.claim-"  # and a token: the file of a process that is about to take the lock


@dataclass
class _Lock:
    """A lock of this process.

    Attributes:
        before: the last beat of an earlier holder that is gone.
        taker: the process that has taken it over, if one has.
    """

    folder: Folder
    beat: dict[str, Any]
    before: Mapping[str, Any] | None
    taker: Mapping[str, Any] | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def renew(self) -> None:
        """Writes the time every ten seconds; stops the process's work if another process has taken over."""
        while not self.ended.wait(SECONDS):
            try:
                holder = _read(self.folder, HEARTBEAT)
                if holder is not None and holder.get("token") != self.beat["token"]:
                    self.taker = holder
                    os.kill(os.getpid(), signal.SIGINT)
                    return
                self.folder.write_json(HEARTBEAT, {**self.beat, "at": now()})
            except OSError:  # a store without an answer must not end a search; the next beat may succeed
                continue


_LOCKS: ContextVar[Mapping[str, _Lock]] = ContextVar("locks", default=MappingProxyType({}))  # by path
_tokens: set[str] = set()  # of all locks of this process


@contextmanager
def lock(folder: Folder, work: str) -> Iterator[None]:
    """Makes this process the only writer of a folder while the block runs. A block inside may lock it again.

    `heartbeat.json` names the holder, and is deleted at the end. A lock whose holder is gone is taken over with a
    message: on the same machine the process must have ended, elsewhere its last beat must be a minute old, for which
    this waits. A folder that this created is removed if it stays empty.

    Args:
        folder: of a run, or another one that commands write to; it need not exist.
        work: the command, for messages of other processes.

    Raises: RunFolderError, which names the holder, if another process works there; RunInterrupted at the end if
        another one has taken over, for example because this machine slept.
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
        with suppress(OSError):  # a store without an answer: the lock is stale as soon as this process has ended
            if record.taker is None and folder.exists(HEARTBEAT):
                folder.delete(HEARTBEAT)
            if created and (local := folder.local_path()) is not None:
                local.rmdir()  # which fails unless it is empty
        _tokens.discard(record.beat["token"])


def is_taken_over(folder: Folder) -> bool:
    """Whether another process has taken over a folder that this one locked: nothing more may be written there."""
    record = _LOCKS.get().get(folder.path)
    return record is not None and record.taker is not None


def is_locked_elsewhere(folder: Folder) -> bool:
    """Whether another process works on the folder."""
    return folder.path not in _LOCKS.get() and no_sign_of_life(folder) is None


def holds_nothing(folder: Folder) -> bool:
    """Whether a folder has no files but those of a lock, and no folders."""
    return not folder.folders() and all(name.startswith(HEARTBEAT) for name in folder.files())


def no_sign_of_life(folder: Folder) -> str | None:
    """Why the process that works on the folder counts as gone; None if it is alive."""
    beat = _read(folder, HEARTBEAT)
    return "no process works on it" if beat is None else _gone(beat)


def _acquire(folder: Folder, work: str) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """Takes the lock. Returns this process's beat, and the last one of a holder that is gone.

    1. Write a claim.
    2. While there are other claims: the least one waits until the others have withdrawn.
    3. If nobody holds the lock, write the beat; then delete the claim.

    The process that sees no other claim first has written its beat before a second one, whose claim is later, can see
    none. So the store need not write on a condition, which pyarrow does not offer; it must list written files, as
    disks, S3, GCS and Azure do.
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
        _print(f"Taking over {folder} from {_who(stale)}: {_gone(stale) or 'it has ended'}.")
    return beat, stale


def _await_holder(folder: Folder) -> Mapping[str, Any] | None:
    """The last beat of a holder that is gone; None if there is no lock. Waits for a beat of one on another machine.

    Raises: RunFolderError if the holder is alive.
    """
    first = beat = _read(folder, HEARTBEAT)
    while beat is not None and _gone(beat) is None:
        if beat["at"] != (first or beat)["at"] or _is_here(beat):
            raise _in_use(folder, beat)
        if beat is first:
            _print(f"Waiting up to {SILENT:.0f} s to see whether {_who(beat)} still works on {folder}.")
        time.sleep(1.0)
        beat = _read(folder, HEARTBEAT)
    return beat


def _rivals(folder: Folder, claim: str) -> dict[str, Mapping[str, Any]]:
    """The other claims of live processes, by name. Deletes those of dead ones."""
    rivals: dict[str, Mapping[str, Any]] = {}
    for name in folder.files():
        if not name.startswith(CLAIM) or name == claim:
            continue
        if (beat := _read(folder, name)) is None:
            time.sleep(0.1)  # some mounts of a store show a file before it is whole
            beat = _read(folder, name)
        if beat is not None and _gone(beat) is None:
            rivals[name] = beat
        else:
            with suppress(OSError):
                folder.delete(name)
    return rivals


def _in_use(folder: Folder, beat: Mapping[str, Any]) -> RunFolderError:
    return RunFolderError(
        f"expected a folder that no other process writes to, got {folder}: {_who(beat)} has worked on it since "
        f"{beat.get('since', beat['at'])}. Wait until it has ended, or stop it there with 'kill -INT {beat['pid']}'. "
        f"If the folder is a copy of one in use, delete its {HEARTBEAT}"
    )


def _who(beat: Mapping[str, Any]) -> str:
    return f"{beat.get('work', 'archray')} (process {beat['pid']} on {beat['host']})"


def _gone(beat: Mapping[str, Any]) -> str | None:
    """Why the process that wrote a beat counts as gone; None if it is alive."""
    if _is_here(beat):
        started, before = start_of(beat["pid"]), beat.get("started")
        reused = bool(started and before) and started != before
        if started is None or reused or (beat["pid"] == os.getpid() and beat.get("token") not in _tokens):
            return f"its process {beat['pid']} ended without a message"
        if started and before:
            return None
    age = (datetime.now(UTC) - datetime.fromisoformat(beat["at"]).astimezone(UTC)).total_seconds()
    return f"no sign of life from {beat['host']} since {beat['at']}" if age > SILENT else None


def alive_until(folder: Folder, at: datetime) -> datetime | None:
    """When the process that worked on the folder at a time was last alive; None if unknown."""
    record = _LOCKS.get().get(folder.path)
    beat = _read(folder, HEARTBEAT) if record is None else record.before
    if record is not None and at > datetime.fromisoformat(record.beat["since"]):
        return datetime.now(UTC)
    if record is None and beat is not None and _gone(beat) is None:
        return datetime.now(UTC)
    return None if beat is None else datetime.fromisoformat(beat["at"]).astimezone(UTC)


def _is_here(beat: Mapping[str, Any]) -> bool:
    """Whether this machine and container can look up the process of a beat."""
    here = _identity()
    return (beat["host"], beat["processes"]) == (here["host"], here["processes"])


def _read(folder: Folder, name: str) -> dict[str, Any] | None:
    """A beat; None if there is none, or a damaged one. Raises: UnreadableFile."""
    try:
        return dict(folder.read_json(name, Beat))
    except UnreadableFile:  # its process may be alive
        raise
    except DamagedFile:
        return None


def _identity() -> dict[str, Any]:
    """The identity of this process. `processes`: the boot and the container, in which a process number is unique."""
    boot, container = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        container = os.readlink("/proc/self/ns/pid")  # containers of one host name have separate process numbers
    pid = os.getpid()
    processes = f"{boot} {container}".strip()
    return {"host": socket.gethostname(), "processes": processes, "pid": pid, "started": start_of(pid)}


def start_of(process: int) -> str | None:
    """The start of a process in the system's unit; empty if unknown; None if it has ended."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # of another user
        pass
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return None if state in "ZX" else fields[18]


def _print(text: str) -> None:
    Console(stderr=True, highlight=False).print(printable(text), markup=False, soft_wrap=True)
