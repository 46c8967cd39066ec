"""Lines are appended to files in batches, on a local disk and on an object store, and survive kills and errors."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from archray import line_writer
from archray.files import Folder
from archray.line_writer import LineWriter


class Store:
    """A file system on a local disk that calls a function before each write."""

    def __init__(self, place: Path, before_write: Callable[[str], None] = lambda path: None) -> None:
        self._disk = fs.SubTreeFileSystem(str(place), fs.LocalFileSystem())
        self.before_write = before_write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open_output_stream(self, path: str) -> Any:
        self.before_write(path)
        return self._disk.open_output_stream(path)


def on_disk(place: Path) -> Folder:
    return Folder(place / "run")


def on_store(place: Path) -> Folder:
    return Folder("run", filesystem=Store(place))


def append(folder: Folder, *lines: bytes) -> None:
    """Appends lines as a process that ends, with an object per line on a store."""
    with LineWriter(folder.create(), "log") as writer:
        for line in lines:
            writer.append(line)
            writer.flush()


def numbers(folder: Folder) -> list[int]:
    return [int(line) for line in folder.read_bytes("log").splitlines()]


@pytest.mark.parametrize("make", [on_disk, on_store])
def test_a_file_grows_by_lines(tmp_path: Path, make: Callable[[Path], Folder]) -> None:
    folder = make(tmp_path)
    append(folder, *(b"%d" % number for number in range(12)))
    append(folder, b"12", b"13")
    assert folder.files() == ["log"] and folder.exists("log") and not folder.exists("lo")
    assert numbers(folder) == list(range(14))
    folder.delete("log")
    assert folder.files() == [] and not folder.exists("log")
    with pytest.raises(FileNotFoundError):
        folder.read_bytes("log")


def test_a_long_file_has_few_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archray.disks.MOST", 3)
    folder, most = on_store(tmp_path), 0
    for number in range(0, 40, 4):
        append(folder, *(b"%d" % line for line in range(number, number + 4)))
        most = max(most, len(list((tmp_path / "run").iterdir())))
    assert numbers(folder) == list(range(40)) and most <= 8


@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_kill_during_the_deletion_of_merged_objects_repeats_no_line(
    tmp_path: Path, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, place = on_store(tmp_path), tmp_path / "run"
    append(folder, b"0", b"1", b"2")
    objects = {file: file.read_bytes() for file in sorted(place.iterdir())}
    monkeypatch.setattr("archray.disks.MOST", 3)
    append(folder, b"3")
    assert len(list(place.iterdir())) == 1
    for file in list(objects)[-left:]:  # they are deleted in this order
        file.write_bytes(objects[file])
    assert numbers(folder) == [0, 1, 2, 3]
    append(folder, b"4")
    assert numbers(folder) == [0, 1, 2, 3, 4]


def test_an_error_ends_the_writer(tmp_path: Path) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = Store(tmp_path, fail)
    folder = Folder("run", filesystem=store).create()

    def append_after_the_error() -> None:
        with LineWriter(folder, "log") as writer:
            number = writer.append(b"1")
            with pytest.raises(OSError, match="No space"):
                writer.wait(number)
            store.before_write = lambda path: None
            with pytest.raises(OSError, match="No space"):
                writer.append(b"2")

    with pytest.raises(OSError, match="No space"):
        append_after_the_error()
    assert folder.files() == []


def test_a_full_local_disk_raises_an_error() -> None:
    with LineWriter(Folder("/dev"), "full") as writer, pytest.raises(OSError, match="No space left"):
        writer.append(b"1")


def test_new_lines_wait_for_lines_that_are_not_saved_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer, "LATE", 0.0)
    monkeypatch.setattr(line_writer, "INTERVAL", 0.0)
    saving, may_end = threading.Event(), threading.Event()

    def save_slowly(path: str) -> None:
        saving.set()
        may_end.wait()

    folder = Folder("run", filesystem=Store(tmp_path, save_slowly)).create()
    with LineWriter(folder, "log") as writer:
        writer.append(b"0")
        saving.wait()
        second = threading.Thread(target=writer.append, args=(b"1",))
        second.start()
        second.join(timeout=0.5)
        waits = second.is_alive()
        may_end.set()
        second.join()
    assert waits
    assert numbers(folder) == [0, 1]


KILLED = """
import os, signal, sys
from pyarrow import fs
from archray.files import Folder
from archray.line_writer import LineWriter
store = fs.SubTreeFileSystem(sys.argv[1], fs.LocalFileSystem()) if sys.argv[2] == "store" else None
folder = Folder("run" if store else sys.argv[1] + "/run", filesystem=store).create()
with LineWriter(folder, "log") as writer:
    for number in range(1000):
        kept = writer.append(b"%d" % number)
        if number == 900:
            writer.wait(kept)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("kind", "least"), [("disk", 1000), ("store", 901)])
def test_a_kill_loses_no_kept_line(tmp_path: Path, kind: str, least: int) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path, kind], env=os.environ)
    assert ended.returncode == -signal.SIGKILL
    folder = on_disk(tmp_path) if kind == "disk" else on_store(tmp_path)
    kept = numbers(folder)
    assert kept == list(range(len(kept))) and len(kept) >= least
