"""Files are read and written completely, even after failures, kills and concurrent writes."""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from archray.disks import LocalDisk
from archray.errors import DamagedFile, NotWritable, RunFolderError, UnreadableFile
from archray.files import TEMPORARY, Folder, plain_name, whole_file, write_file

# Writes half of a file, prints a line, and waits to be killed.
HALF_A_FILE = """
import sys, time
from archray.files import whole_file
with whole_file(sys.argv[1]) as stream:
    stream.write(b"new " * 100_000)
    stream.flush()
    print("half", flush=True)
    time.sleep(600)
"""


def fail_in_the_middle(writing: AbstractContextManager[BinaryIO]) -> None:
    with writing as stream:
        stream.write(b"half")
        raise KeyError


def test_a_file_is_written_and_overwritten(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"first")
    with whole_file(str(tmp_path / "a")) as stream:
        stream.write(b"sec")
        stream.write(b"ond")
        assert (tmp_path / "a").read_bytes() == b"first", "the old file remains until the new one is complete"
    assert (tmp_path / "a").read_bytes() == b"second"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"old")
    with pytest.raises(KeyError):
        fail_in_the_middle(whole_file(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_missing_folder_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotWritable, match="nowhere"):
        write_file(tmp_path / "nowhere" / "a", b"")


def test_a_folder_in_place_of_a_file_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for change in (lambda: write_file(tmp_path / "a", b""), lambda: Folder(tmp_path).delete("a")):
        with pytest.raises(NotWritable, match=r"Expected a file at .*a, got a folder\. Remove or rename it"):
            change()
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_kill_in_the_middle_leaves_the_old_file_or_none(tmp_path: Path, before: bytes | None) -> None:
    target = tmp_path / "a"
    if before is not None:
        target.write_bytes(before)
    with subprocess.Popen([sys.executable, "-c", HALF_A_FILE, str(target)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"half\n"
        writer.kill()
    assert writer.returncode == -signal.SIGKILL
    assert (target.read_bytes() if target.exists() else None) == before
    left = [file.name for file in tmp_path.iterdir() if file != target]
    assert len(left) == 1 and left[0].startswith(TEMPORARY), "a kill leaves a temporary file behind"
    assert Folder(tmp_path).files() == ([] if before is None else ["a"]), "it does not count as a file of the folder"
    write_file(target, b"new")
    assert target.read_bytes() == b"new"


def test_threads_that_write_the_same_file_do_not_mix_their_data(tmp_path: Path) -> None:
    contents = [bytes([number]) * 50_000 for number in range(4)]
    target = tmp_path / "a"
    write_file(target, contents[0])
    writers = [threading.Thread(target=lambda c=c: [write_file(target, c) for _ in range(20)]) for c in contents]
    for writer in writers:
        writer.start()
    seen = {target.read_bytes()}
    while any(writer.is_alive() for writer in writers):
        seen.add(target.read_bytes())
    assert seen <= set(contents)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


# Folders


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_reads_back_its_files(tmp_path: Path, scheme: str) -> None:
    folder = Folder(f"{scheme}{tmp_path}") / "run" / "stage"
    table = pd.DataFrame({"architecture": ["a", "b"], "value": [1.5, math.nan]})
    folder.write_json("a.json", {"ü": [1, None]})
    folder.write_parquet("b.parquet", table)
    with folder.whole_file("c") as stream:
        stream.write(b"content")
    assert folder.read_json("a.json") == {"ü": [1, None]}
    pd.testing.assert_frame_equal(folder.read_parquet("b.parquet"), table)
    assert folder.read_bytes("c") == b"content"
    assert folder.files() == ["a.json", "b.parquet", "c"]
    assert (tmp_path / "run" / "stage" / "b.parquet").is_file()
    assert Folder(f"{scheme}{tmp_path}").folders() == ["run"]
    assert folder.uri == f"{scheme}{tmp_path}/run/stage" == str(folder)


def object_store(place: Path) -> Folder:
    """A folder with a remote file system, as on object stores."""
    return Folder("bucket/run", filesystem=fs.SubTreeFileSystem(str(place), fs.LocalFileSystem()))


@pytest.mark.parametrize("make", [Folder, object_store])
def test_a_failed_write_keeps_the_old_file_of_the_folder(tmp_path: Path, make: type[Folder]) -> None:
    folder = make(tmp_path)
    folder.write_bytes("a", b"old")
    with pytest.raises(TypeError):
        folder.write_bytes("a", "text, not bytes")  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        fail_in_the_middle(folder.whole_file("a"))
    assert folder.read_bytes("a") == b"old"
    assert folder.files() == ["a"]


@pytest.mark.parametrize("content", [b"[" * 10**5, b'{"a": 1' + b"0" * 5000 + b"}", b'"\xff"', b'"\\ud800"', b""])
def test_json_that_cannot_be_read_is_damaged(tmp_path: Path, content: bytes) -> None:
    folder = Folder(tmp_path)
    folder.write_bytes("a.json", content)
    with pytest.raises(DamagedFile, match=r"a\.json"):
        folder.read_json("a.json", Any)


@pytest.mark.parametrize("read", [Folder.read_json, Folder.read_parquet])
def test_a_path_that_is_not_a_readable_file_is_damaged(
    tmp_path: Path, read: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "name").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("name", "pipe"):
        with pytest.raises(DamagedFile, match=rf"{name}.*it is a folder or a device"):
            read(Folder(tmp_path), name)

    def raise_permission_error(disk: LocalDisk, path: str) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")  # root may read all files

    monkeypatch.setattr(LocalDisk, "read", raise_permission_error)
    with pytest.raises(UnreadableFile, match=r"name.*Permission denied"):
        read(Folder(tmp_path), "name")


def test_a_table_with_a_damaged_schema(tmp_path: Path) -> None:
    table = pa.table({"a": [1]}).replace_schema_metadata({"pandas": '{"columns": 5, "index_columns": [{"kind": "x"}]}'})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DamagedFile, match=r"a\.parquet"):
        Folder(tmp_path).read_parquet("a.parquet")


def test_a_folder_on_an_object_store(tmp_path: Path) -> None:
    folder = object_store(tmp_path)
    assert folder.local_path() is None
    folder.write_json("a.json", [1])
    assert folder.files() == ["a.json"] and folder.read_json("a.json", list) == [1]
    assert (tmp_path / "bucket" / "run" / "a.json").is_file()


def test_a_folder_copies_files_of_another(tmp_path: Path) -> None:
    source, all_of_it, some = Folder(tmp_path / "source"), Folder(tmp_path / "all"), object_store(tmp_path)
    source.write_bytes("a", b"1")
    source.write_bytes("b", b"2")
    (source / "folder").write_bytes("c", b"3")
    all_of_it.copy_from(source)
    some.copy_from(source, ["b"])
    assert all_of_it.files() == ["a", "b"] and all_of_it.read_bytes("a") == b"1" and all_of_it.folders() == []
    assert some.files() == ["b"] and some.read_bytes("b") == b"2"


def test_the_existence_of_a_folder(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new")
    assert not folder.exists() and folder.files() == [] == folder.folders()
    folder.write_bytes("a", b"")
    assert folder.exists() and folder.exists("a") and not folder.exists("b")
    folder.remove()
    assert not folder.exists()


def test_a_file_written_during_a_removal_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, rmdir = tmp_path / "folder", os.rmdir
    place.mkdir()
    (place / "file").write_text("")
    late = [place / "late"]

    def write_and_remove(path: Any, **options: Any) -> None:
        if late:
            late.pop().write_text("")
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", write_and_remove)
    Folder(place).remove()
    assert not place.exists() and not late


def test_a_folder_is_set_aside_under_the_first_free_name(tmp_path: Path) -> None:
    for _ in range(2):
        folder = Folder(tmp_path / "run")
        folder.write_bytes("a", b"")
        folder.set_aside()
    assert Folder(tmp_path).folders() == ["run-before-1", "run-before-2"]


def test_leftovers_of_a_killed_process_are_deleted(tmp_path):
    folder = Folder(tmp_path)
    (folder / "stage").create().write_bytes("done.json", b"{}")
    for left in (".tmp-1-a.json", "stage/.tmp-2-b.json"):
        (tmp_path / left).write_bytes(b"{")
    folder.sweep()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["done.json", "stage"]


OUTSIDE = ["/etc/passwd", "../a", "b/../../a", "..", ".", "", "b//a", "C:/a", "..\\a", "a\0"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("on_a_store", [False, True])
def test_a_name_that_leads_out_of_the_folder_raises_an_error(tmp_path: Path, name: str, on_a_store: bool) -> None:
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()) if on_a_store else None
    folder = Folder("run" if on_a_store else tmp_path / "run", store).create()
    (tmp_path / "a").write_text("outside")
    uses = (
        folder.__truediv__,
        folder.exists,
        folder.read_bytes,
        folder.delete,
        folder.sha256,
        folder.local_path,
        lambda name: folder.write_bytes(name, b"x"),
        lambda name: folder.lines(name),
        lambda name: folder.copy_from(folder, [name]),
        plain_name,
    )
    for use in uses:
        with pytest.raises(RunFolderError):
            use(name)
    assert (tmp_path / "a").read_text() == "outside"
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["a", "run"]


def test_a_link_that_leads_out_of_the_folder_raises_an_error(tmp_path: Path) -> None:
    """The folder may be a link and may contain links to its own files. A parent folder has its own boundary."""
    (tmp_path / "disk" / "model").mkdir(parents=True)
    (tmp_path / "a").write_text("outside")
    (tmp_path / "run").symlink_to("disk")
    (tmp_path / "disk" / "file").symlink_to(tmp_path / "a")
    (tmp_path / "disk" / "folder").symlink_to(tmp_path)
    (tmp_path / "disk" / "inside").symlink_to("model")
    folder = Folder(tmp_path / "run")
    uses = (
        lambda: folder.read_bytes("file"),
        lambda: folder.lines("file"),
        lambda: (folder / "folder").read_bytes("a"),
        lambda: (folder / "folder").write_bytes("b", b"x"),
        lambda: (folder / "folder").create(),
        lambda: (folder / "folder").files(),
        lambda: (folder / "folder").remove(),
        lambda: (folder / "folder").local_path(),
    )
    for use in uses:
        with pytest.raises(RunFolderError):
            use()
    assert (tmp_path / "a").read_text() == "outside"
    (folder / "inside").write_bytes("b", b"x")
    assert (folder / "model").read_bytes("b") == b"x"
    assert folder.parent.read_bytes("a") == b"outside"
