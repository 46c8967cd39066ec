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
    """A file system on a local disk that records its calls, and calls a function before each write."""

    def __init__(self, place: Path, before_write: Callable[[str], None] = lambda path: None) -> None:
        self._disk = fs.SubTreeFileSystem(str(place), fs.LocalFileSystem())
        self.before_write = before_write
        self.listed: list[str] = []
        self.written: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def get_file_info(self, place: Any) -> Any:
        if isinstance(place, fs.FileSelector):
            self.listed.append(place.base_dir)
        return self._disk.get_file_info(place)

    def open_output_stream(self, path: str) -> Any:
        self.before_write(path)
        self.written.append(path)
        return self._disk.open_output_stream(path)


def on_disk(place: Path) -> Folder:
    return Folder(place / "run")


def on_store(place: Path) -> Folder:
    return Folder("run", filesystem=Store(place))


def append(folder: Folder, name: str, *lines: bytes, end: bool = False) -> None:
    """Appends lines as a process that ends, with an object per line on a store."""
    with LineWriter() as writer:
        for line in lines:
            writer.append(folder, name, line)
            writer.flush()
        if end:
            writer.end(folder, name)


@pytest.mark.parametrize("make", [on_disk, on_store])
def test_a_file_grows_by_lines(tmp_path: Path, make: Callable[[Path], Folder]) -> None:
    folder = make(tmp_path)
    with LineWriter() as writer:
        for number in range(12):
            writer.append(folder, "log", b"%d" % number)
        writer.append(folder, "log-2", b"[]")
    assert folder.files() == ["log", "log-2"] and folder.exists("log")
    assert folder.read_json_lines("log") == list(range(12)) and folder.read_json_lines("log-2") == [[]]
    append(folder, "log", b"12", b"13", end=True)
    append(folder, "log", b"14")
    assert folder.read_bytes("log").splitlines() == [b"%d" % number for number in range(15)]
    folder.delete("log")
    assert folder.files() == ["log-2"] and not folder.exists("log")
    with pytest.raises(FileNotFoundError):
        folder.read_json_lines("log")


def test_an_ended_file_is_one_object(tmp_path: Path) -> None:
    folder, place = on_store(tmp_path), tmp_path / "run"
    append(folder, "log", *(b"%d" % number for number in range(5)))
    assert len(list(place.iterdir())) == 5
    append(folder, "log", end=True)
    assert len(list(place.iterdir())) == 1 and folder.read_json_lines("log") == list(range(5))
    append(folder, "short", b"1", end=True)
    assert len(list(place.iterdir())) == 2 and folder.read_json_lines("short") == [1]


def test_a_long_file_has_few_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archray.disks.MOST", 4)
    folder = on_store(tmp_path)
    append(folder, "log", *(b"%d" % number for number in range(30)))
    assert len(list((tmp_path / "run").iterdir())) <= 4 and folder.read_json_lines("log") == list(range(30))


@pytest.mark.parametrize("left", [1, 3, 5])
def test_a_kill_during_the_deletion_of_merged_objects_repeats_no_line(tmp_path: Path, left: int) -> None:
    folder, place = on_store(tmp_path), tmp_path / "run"
    append(folder, "log", *(b"%d" % number for number in range(5)))
    objects = {file: file.read_bytes() for file in sorted(place.iterdir())}
    append(folder, "log", end=True)
    for file in list(objects)[-left:]:  # they are deleted in this order
        file.write_bytes(objects[file])
    assert folder.read_json_lines("log") == list(range(5)) == folder.with_listing().read_json_lines("log")
    append(folder, "log", b"5")
    assert folder.read_json_lines("log") == list(range(6)) and len(list(place.iterdir())) == 2
    append(folder, "log", end=True)
    assert folder.read_json_lines("log") == list(range(6)) and len(list(place.iterdir())) == 1


def test_a_clock_that_is_set_back_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = on_store(tmp_path)
    append(folder, "log", b"0", b"1", end=True)
    monkeypatch.setattr("archray.disks.time.time_ns", lambda: 1)
    append(folder, "log", b"2", b"3")
    assert folder.read_json_lines("log") == [0, 1, 2, 3]


def test_many_files_are_read_from_one_listing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = Folder("run", filesystem=store)
    for number in range(4):
        append(folder, f"log-{number}", b"0", b"1")
    store.listed.clear()
    view = folder.with_listing()
    assert [view.read_json_lines(name) for name in view.files()] == [[0, 1]] * 4 and store.listed == ["run"]
    append(folder, "log-1", b"2", end=True)
    assert view.read_json_lines("log-1") == [0, 1, 2], "the objects of the first listing are deleted"


def test_a_journal_is_saved_after_the_lines_before_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = Folder("run", filesystem=store)
    with LineWriter() as writer:
        writer.append(folder, "journal", b"0", is_journal=True)
        for name in ("a", "b"):
            writer.append(folder / "results", name, b"1")
        writer.append(folder, "journal", b"2", is_journal=True)
    assert [path.rpartition(".")[0] for path in store.written][-1] == "run/journal" and len(store.written) == 3
    assert folder.read_json_lines("journal") == [0, 2]


def test_an_error_ends_the_writer(tmp_path: Path) -> None:
    """A journal never describes lines that are not saved."""

    def fail(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = Store(tmp_path, fail)
    folder = Folder("run", filesystem=store)

    def append_after_the_error() -> None:
        with LineWriter() as writer:
            number = writer.append(folder, "log", b"1")
            writer.append(folder, "journal", b"1", is_journal=True)
            with pytest.raises(OSError, match="No space"):
                writer.wait(number)
            store.before_write = lambda path: None
            with pytest.raises(OSError, match="No space"):
                writer.append(folder, "log", b"2")

    with pytest.raises(OSError, match="No space"):
        append_after_the_error()
    assert folder.files() == []


def test_a_full_local_disk_raises_an_error() -> None:
    with LineWriter() as writer, pytest.raises(OSError, match="No space left"):
        writer.append(Folder("/dev"), "full", b"1")


def test_new_lines_wait_for_lines_that_are_not_saved_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer, "LATE", 0.0)
    monkeypatch.setattr(line_writer, "INTERVAL", 0.0)
    saving, may_end = threading.Event(), threading.Event()

    def save_slowly(path: str) -> None:
        saving.set()
        may_end.wait()

    folder = Folder("run", filesystem=Store(tmp_path, save_slowly))
    with LineWriter() as writer:
        writer.append(folder, "log", b"0")
        saving.wait()
        second = threading.Thread(target=writer.append, args=(folder, "log", b"1"))
        second.start()
        second.join(timeout=0.5)
        waits = second.is_alive()
        may_end.set()
        second.join()
    assert waits
    assert folder.read_json_lines("log") == [0, 1]


KILLED = """
import os, signal, sys
from pyarrow import fs
from archray.files import Folder
from archray.line_writer import LineWriter
store = fs.SubTreeFileSystem(sys.argv[1], fs.LocalFileSystem()) if sys.argv[2] == "store" else None
folder = Folder("run" if store else sys.argv[1] + "/run", filesystem=store)
with LineWriter() as writer:
    for number in range(1000):
        kept = writer.append(folder, f"log-{number % 2}", b"%d" % number)
        if number == 900:
            writer.wait(kept)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("kind", "least"), [("disk", 1000), ("store", 901)])
def test_a_kill_loses_no_kept_line(tmp_path: Path, kind: str, least: int) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path, kind], env=os.environ)
    assert ended.returncode == -signal.SIGKILL
    folder = on_disk(tmp_path) if kind == "disk" else on_store(tmp_path)
    for parity in (0, 1):
        numbers = folder.read_json_lines(f"log-{parity}")
        assert numbers == list(range(parity, 1000, 2))[: len(numbers)] and len(numbers) >= least // 2
