"""One writer at a time: which process gets the lock of a folder, when it becomes free, and the error of the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import archray
from archray.errors import RunFolderError, RunInterrupted
from archray.files import Folder
from archray.platform.methods.configure import make_config
from archray.platform.run import heartbeat
from archray.platform.run.heartbeat import CLAIM, SILENT, is_locked_elsewhere, lock
from archray.platform.run.layout import HEARTBEAT
from archray.platform.run.run import Run

# Waits for a line, takes the lock of a folder, prints the outcome, and holds the lock until the next line.
HOLDER = """
import sys
from pyarrow import fs
from archray.errors import RunFolderError
from archray.files import Folder
from archray.platform.run.heartbeat import lock
folder = Folder("run", fs.SubTreeFileSystem(sys.argv[1], fs.LocalFileSystem())) if sys.argv[2] == "store" else None
print("ready", flush=True)
sys.stdin.readline()
try:
    with lock(folder or Folder(sys.argv[1] + "/run"), "archray test"):
        print("got it", flush=True)
        sys.stdin.readline()
except RunFolderError as error:
    print("rejected", error, flush=True)
    sys.stdin.readline()
"""


def holder(folder: Path, kind: str = "disk") -> subprocess.Popen[str]:
    """A process that is about to take the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert read(process) == "ready"
    return process


def send(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def beat_of_another(folder: Folder, age: float, **changes: object) -> None:
    at = (datetime.now(UTC) - timedelta(seconds=age)).isoformat(timespec="seconds")
    folder.write_json(HEARTBEAT, {"at": at, "host": "elsewhere", "processes": "", "pid": 1, "token": "x", **changes})


@pytest.mark.parametrize(("kind", "left"), [("disk", True), ("store", False)], ids=["stale", "free"])
def test_one_of_several_simultaneous_processes_gets_the_lock(tmp_path: Path, kind: str, left: bool) -> None:
    if left:
        beat_of_another(Folder(tmp_path / "run"), SILENT + 5)
    processes = [holder(tmp_path, kind) for _ in range(4)]
    for process in processes:
        send(process)
    answers = [read(process) for process in processes]
    for process in processes:
        process.communicate("\n")
    assert answers.count("got it") == 1
    assert sum(answer.startswith("rejected") for answer in answers) == 3
    assert list(tmp_path.glob("run/*")) == [], "every lock is released, and no claim is left"


def test_a_holder_is_named_until_it_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process, folder = holder(tmp_path), Folder(tmp_path / "run")
    send(process)
    assert read(process) == "got it" and is_locked_elsewhere(folder)
    with pytest.raises(RunFolderError, match=rf"archray test \(process {process.pid} on "), lock(folder, "t"):
        pass
    process.kill()
    process.wait()
    with lock(folder, "t"):
        assert f"process {process.pid}" in capsys.readouterr().err, "the lock is taken over with a message"


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, RunInterrupted, SystemExit])
def test_the_lock_is_released_however_the_block_ends(tmp_path: Path, error: type[BaseException] | None) -> None:
    folder = Folder(tmp_path / "new")

    def work() -> None:
        with lock(folder, "t"), lock(folder, "inside"):
            assert folder.exists(HEARTBEAT)
            if error is not None:
                raise error("no more")

    with nullcontext() if error is None else pytest.raises(error):
        work()
    assert not folder.exists(), "it made the folder, and nothing was written to it"


def test_another_thread_is_another_writer(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with lock(Folder(tmp_path), "thread"):
                pass
        except RunFolderError as error:
            errors.append(error)

    with lock(Folder(tmp_path), "main"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(errors) == 1


def test_a_reused_process_id_does_not_hold_the_lock(tmp_path: Path) -> None:
    with lock(Folder(tmp_path), "t"):
        beat = json.loads((tmp_path / HEARTBEAT).read_text())
    (tmp_path / HEARTBEAT).write_text(json.dumps({**beat, "pid": os.getppid(), "started": "1"}))
    assert not is_locked_elsewhere(Folder(tmp_path))
    started = heartbeat.start_of(os.getppid())
    (tmp_path / HEARTBEAT).write_text(json.dumps({**beat, "pid": os.getppid(), "started": started}))
    assert is_locked_elsewhere(Folder(tmp_path))


def test_the_lock_of_another_machine_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    beat_of_another(folder, SILENT - 1)
    with lock(folder, "t"):
        assert folder.read_json(HEARTBEAT)["host"] != "elsewhere", "the other machine wrote no new heartbeat"
    beat_of_another(folder, 9)
    threading.Timer(0.5, beat_of_another, (folder, 0)).start()
    with pytest.raises(RunFolderError, match="elsewhere"), lock(folder, "t"):
        pass


def test_a_writer_that_lost_its_lock_stops_and_leaves_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "SECONDS", 0.1)

    def work() -> None:
        with lock(Folder(tmp_path), "t"):
            beat_of_another(Folder(tmp_path), 0)
            threading.Event().wait(30)

    with pytest.raises(RunInterrupted, match="elsewhere"):
        work()
    assert Folder(tmp_path).read_json(HEARTBEAT)["host"] == "elsewhere"


def test_unreadable_claims_and_beats_are_ignored(tmp_path: Path) -> None:
    (tmp_path / f"{CLAIM}0").write_bytes(b"\xff")
    (tmp_path / HEARTBEAT).write_text("[]")
    with lock(Folder(tmp_path), "t"):
        assert is_locked_elsewhere(Folder(tmp_path)) is False


def test_commands_that_write_reject_a_run_in_use(tmp_path: Path) -> None:
    run = Run.create(str(tmp_path / "run"), make_config("random", "smoke", None, {}))
    process = holder(tmp_path)
    send(process)
    assert read(process) == "got it"
    for attempt in (
        lambda: archray.resume(run.folder.uri),
        lambda: archray.search("random", preset="smoke", out=run.folder.uri, or_resume=True),
    ):
        with pytest.raises(RunFolderError, match=f"process {process.pid} on"):
            attempt()
    assert archray.show(run.folder.uri).method == "random"
    assert [each.path for each in archray.runs(tmp_path)] == [run.folder.uri]
    process.send_signal(signal.SIGKILL)
    process.wait()
