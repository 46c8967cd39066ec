"""One writer at a time: the lock of a folder, which its holder renews, so that others see whether it still works."""

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
from archray.platform.run.layout import HEARTBEAT

SECONDS = 10.0  # between two beats
SILENT = 6 * SECONDS  # after so long without one a process counts as gone; clocks of machines may differ by seconds
CLAIM = f"{HEARTBEAT}.claim-"  # and a token: the file of a process that is about to take the lock


@dataclass
class _Lock:
    """A lock that this process holds.

    Attributes:
        before: the last beat of a process that is gone and held it before.
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
                self.folder.write_json(HEARTBEAT, {**self.beat, "at": _now()})
            except OSError:  # a store that does not answer now must not end a search; the next beat may pass
                continue


_held: ContextVar[Mapping[str, _Lock]] = ContextVar("held", default=MappingProxyType({}))  # by path
_tokens: set[str] = set()  # of all locks that this process holds


@contextmanager
def lock(folder: Folder, work: str) -> Iterator[None]:
    """Makes this process the only writer of a folder while the block runs. A block inside may lock it again.

    `heartbeat.json` names the holder, and is deleted at the end. A lock whose holder is gone is taken over with a
    message: on the same machine its process is looked up, elsewhere its last beat must be a minute old. Whether a
    holder on another machine still beats is waited for. A folder that this made and nothing was written to is removed.

    Args:
        folder: of a run, or another one that commands write to; it need not exist.
        work: the command, for the message of others.

    Raises: RunFolderError, which names the holder, if another process works there; RunInterrupted at the end if
        another one has taken over, for example because this machine slept.
    """
    if folder.path in _held.get():
        yield
        return
    made = not folder.exists()
    held = _Lock(folder, *_acquire(folder, work))
    outer = _held.set({**_held.get(), folder.path: held})
    thread = threading.Thread(target=held.renew, name="archray-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    except (KeyboardInterrupt, RunInterrupted) as error:
        if held.taker is None:
            raise
        raise RunInterrupted(f"stopped: {_who(held.taker)} has taken over {folder}") from error
    finally:
        held.ended.set()
        thread.join()
        _held.reset(outer)
        with suppress(OSError):  # a store that does not answer: the lock is stale as soon as this process has ended
            if held.taker is None and folder.exists(HEARTBEAT):
                folder.delete(HEARTBEAT)
            if made and (local := folder.local_path()) is not None:
                local.rmdir()  # which fails unless it is empty
        _tokens.discard(held.beat["token"])


def is_taken_over(folder: Folder) -> bool:
    """Whether another process has taken over a folder that this one locked: nothing more may be written there."""
    held = _held.get().get(folder.path)
    return held is not None and held.taker is not None


def is_locked_elsewhere(folder: Folder) -> bool:
    """Whether another process works on the folder."""
    return folder.path not in _held.get() and no_sign_of_life(folder) is None


def holds_nothing(folder: Folder) -> bool:
    """Whether a folder has no files but those of a lock, and no folders."""
    return not folder.folders() and all(name.startswith(HEARTBEAT) for name in folder.files())


def no_sign_of_life(folder: Folder) -> str | None:
    """Why the process that works on the folder counts as gone; None if it is alive."""
    beat = _read(folder, HEARTBEAT)
    return "no process works on it" if beat is None else _gone(beat)


def _acquire(folder: Folder, work: str) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """Takes the lock; the beat that was written, and the last one of a holder that is gone.

    1. Write a claim.
    2. While there are other claims: the least one waits until the others have withdrawn.
    3. If nobody holds the lock, write the beat; then delete the claim.

    Of two processes the one that saw no other claim first had written its beat before the other, whose claim came
    later, could see none. So this needs no store that writes on a condition: pyarrow offers none. It needs one that
    lists what was written, as disks, S3, GCS and Azure do.
    """
    _await_holder(folder)
    beat = {"at": _now(), "since": _now(), **_identity(), "work": work, "token": uuid.uuid4().hex}
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
        _say(f"Taking over {folder} from {_who(stale)}: {_gone(stale) or 'it has ended'}.")
    return beat, stale


def _await_holder(folder: Folder) -> Mapping[str, Any] | None:
    """The holder that is gone, whose lock is left; None if there is none. Waits for a sign of one elsewhere.

    Raises: RunFolderError if the holder is alive.
    """
    first = beat = _read(folder, HEARTBEAT)
    while beat is not None and _gone(beat) is None:
        if beat["at"] != (first or beat)["at"] or _is_here(beat):
            raise _in_use(folder, beat)
        if beat is first:
            _say(f"Waiting up to {SILENT:.0f} s to see whether {_who(beat)} still works on {folder}.")
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
            return f"its process {beat['pid']} is gone, and said nothing"
        if started and before:
            return None
    age = (datetime.now(UTC) - datetime.fromisoformat(beat["at"]).astimezone(UTC)).total_seconds()
    return f"no sign of life from {beat['host']} since {beat['at']}" if age > SILENT else None


def alive_until(folder: Folder, at: datetime) -> datetime | None:
    """When the process that worked on the folder at a time was last alive: now if it is; None if nothing says it."""
    held = _held.get().get(folder.path)
    beat = _read(folder, HEARTBEAT) if held is None else held.before
    if held is not None and at > datetime.fromisoformat(held.beat["since"]):
        return datetime.now(UTC)
    if held is None and beat is not None and _gone(beat) is None:
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
    except UnreadableFile:  # it may be of a process that is alive
        raise
    except DamagedFile:
        return None


def _identity() -> dict[str, Any]:
    """Of this process. `processes`: the boot and the container in which its number is the process's own."""
    boot, container = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        container = os.readlink("/proc/self/ns/pid")  # containers of one name count their processes apart
    pid = os.getpid()
    processes = f"{boot} {container}".strip()
    return {"host": socket.gethostname(), "processes": processes, "pid": pid, "started": start_of(pid)}


def start_of(process: int) -> str | None:
    """When a process started, as the system counts it; empty where it does not tell; None if it has ended."""
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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _say(text: str) -> None:
    Console(stderr=True, highlight=False).print(printable(text), markup=False, soft_wrap=True)
