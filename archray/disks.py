"""The file operations of a `Folder`, on the local disk and on pyarrow file systems."""

import errno
import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from archray.errors import NotWritable, StoreError

FULL = (errno.ENOSPC, errno.EDQUOT)  # disk full, quota exceeded
FULL_TEXTS = ("No space left on device", "Disk quota exceeded")  # errors of Tune keep only this text


def is_full(error: BaseException | None) -> bool:
    """Returns whether an error, or its cause, reports a full disk or an exceeded quota."""
    if error is None:
        return False
    full = getattr(error, "errno", None) in FULL or any(text in str(error) for text in FULL_TEXTS)
    return full or is_full(error.__cause__ or error.__context__)


class Lines(Protocol):
    """A file that grows by lines, for one writer.

    Attributes:
        survives_kill: whether a line survives a kill of the process as soon as it is written.
    """

    survives_kill: bool

    def write(self, line: bytes) -> None: ...

    def cut(self) -> Callable[[], None]:
        """Returns a function that saves the lines written so far, for another thread."""

    def merge(self) -> None:
        """Reduces the number of objects of the file."""


class LocalLines:
    """A local file that grows by lines. A saved line survives a loss of power."""

    survives_kill = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._stream: Any = None

    def write(self, line: bytes) -> None:
        if self._stream is None:
            self._stream = open(self._path, "a+b", buffering=0)  # noqa: SIM115  # closed when it is saved
            size = self._stream.seek(0, os.SEEK_END)
            if size and os.pread(self._stream.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line  # after a kill the last line may be incomplete
        rest = memoryview(line + b"\n")
        while rest:  # a disk that becomes full takes a part, and raises an error for the rest
            rest = rest[self._stream.write(rest) :]

    def cut(self) -> Callable[[], None]:
        stream, self._stream = self._stream, None

        def save() -> None:
            if stream is not None:
                with stream:
                    os.fsync(stream.fileno())

        return save

    def merge(self) -> None:
        pass


class LocalDisk:
    """The local disk. It does not use pyarrow, whose import would slow down reading a run's few files."""

    def kind(self, path: str) -> str:
        return "folder" if os.path.isdir(path) else "file" if os.path.exists(path) else ""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def entries(self, path: str) -> list[tuple[str, str]]:
        try:
            with os.scandir(path) as entries:
                return [(entry.name, self.kind(entry.path) or "file") for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def create(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            if error.errno in FULL:
                raise
            self.check_writable(path)
            message = f"The folder {path} cannot be created ({error.strerror}). Choose another folder."
            raise NotWritable(message) from error

    def check_writable(self, path: str) -> None:
        place = next(place for place in (path, *map(str, Path(path).parents)) if os.path.exists(place))
        if not os.path.isdir(place):
            raise NotWritable(
                f"Expected a folder at {place}, got a file. Remove or rename it, or choose another folder."
            )
        if not os.access(place, os.W_OK | os.X_OK):
            raise NotWritable(f"The folder {path} cannot be written: no permission in {place}. Choose another folder.")

    def move(self, path: str, to: str) -> None:
        os.rename(path, to)

    def remove(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            shutil.rmtree(path)  # another thread wrote a file during the removal

    def delete(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            raise NotWritable(f"Expected a file at {path}, got a folder. Remove or rename it.")
        os.unlink(path)

    def read(self, path: str) -> bytes:
        if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe would block
            raise IsADirectoryError(errno.EISDIR, "it is a folder or a device", path)
        return Path(path).read_bytes()

    def lines(self, path: str) -> Lines:
        return LocalLines(path)


@contextmanager
def store_errors(place: str) -> Iterator[None]:
    """Raises: StoreError instead of pyarrow's error if the store of `place` cannot be reached, or rejects a request."""
    try:
        yield
    except OSError as error:
        if type(error) is not OSError or is_full(error):  # for example, a missing file
            raise
        raise StoreError.at(place, error) from error


class ArrowFiles:
    """A pyarrow `FileSystem`. A file that grows by lines is stored as several objects, which appear as one file.

    `NAME.lines-FIRST-LAST` contains the lines of the batches FIRST to LAST. Merged objects are written before their
    parts are deleted. So every listing contains all lines, even during a deletion or after a kill.
    """

    def __init__(self, filesystem: Any) -> None:
        self.filesystem = filesystem

    def _store_errors(self, path: str) -> AbstractContextManager[None]:
        return store_errors(f"{self.filesystem.type_name}://{path}")

    def kind(self, path: str) -> str:
        with self._store_errors(path):
            return _KINDS.get(self.filesystem.get_file_info(path).type.name, "")

    def exists(self, path: str) -> bool:
        return bool(self.kind(path) or self.objects(path))

    def entries(self, path: str) -> list[tuple[str, str]]:
        return sorted({(LINES.sub("", name), kind) for name, kind in self._objects(path)})

    def create(self, path: str) -> None:
        with self._store_errors(path):
            self.filesystem.create_dir(path, recursive=True)

    def check_writable(self, path: str) -> None:
        pass  # an object store reports it at the first write

    def move(self, path: str, to: str) -> None:
        with self._store_errors(path):
            self.filesystem.move(path, to)

    def remove(self, path: str) -> None:
        with self._store_errors(path):
            self.filesystem.delete_dir(path)

    def delete(self, path: str) -> None:
        for file in self.objects(path) or [path]:
            self.delete_object(file)

    def delete_object(self, path: str) -> None:
        with self._store_errors(path):
            self.filesystem.delete_file(path)

    def read(self, path: str) -> bytes:
        try:
            return self._read(path)
        except FileNotFoundError:
            while objects := self.objects(path):
                try:
                    with ThreadPoolExecutor(THREADS) as pool:
                        return b"".join(pool.map(self.read_object, objects))
                except FileNotFoundError:  # the writer has merged objects since the listing
                    continue
            raise

    def read_object(self, path: str) -> bytes:
        with self._store_errors(path), self.filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())

    def _read(self, path: str) -> bytes:
        """Reads the whole object; pyarrow alone reads the initial number of bytes even if the object is replaced."""
        while True:
            content = self.read_object(path)
            with self._store_errors(path):
                size = self.filesystem.get_file_info(path).size
            if size in (None, len(content)):
                return content

    def write(self, path: str, content: bytes | memoryview) -> None:
        with self._store_errors(path), self.filesystem.open_output_stream(path) as stream:
            stream.write(content)

    def lines(self, path: str) -> Lines:
        return StoredLines(self, path)

    def objects(self, path: str) -> list[str]:
        """Returns the objects of a growing file in order, without parts of others; none for another file."""
        folder, _, name = path.rpartition("/")
        if not folder:  # a bucket
            return []
        entries = [entry for entry, _ in self._objects(folder) if LINES.search(entry) and LINES.sub("", entry) == name]
        current: list[str] = []
        last = 0
        for entry in sorted(entries, key=lambda entry: (span_of(entry)[0], -span_of(entry)[1])):
            if span_of(entry)[1] > last:
                current.append(f"{folder}/{entry}")
                last = span_of(entry)[1]
        return current

    def _objects(self, path: str) -> list[tuple[str, str]]:
        from pyarrow import fs

        with self._store_errors(path):
            entries = self.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [(entry.base_name, _KINDS.get(entry.type.name, "")) for entry in entries]


LINES = re.compile(r"\.lines-(\d{9})-(\d{9})$")
_KINDS = {"File": "file", "Directory": "folder"}
MOST = 50  # objects of a growing file that are merged into one
THREADS = 8  # objects that are read at the same time


def span_of(entry: str) -> tuple[int, int]:
    """Returns the first and the last batch in an object of a growing file."""
    found = LINES.search(entry)
    assert found is not None  # callers have checked it
    return int(found[1]), int(found[2])


class StoredLines:
    """A file on an object store that grows by lines: an object per batch. Objects of similar size are merged."""

    survives_kill = False

    def __init__(self, files: ArrowFiles, path: str) -> None:
        self._files, self._path = files, path
        self._unsaved = bytearray()
        self._objects = [span_of(name) for name in files.objects(path)]
        self._next = 1 + max((last for _, last in self._objects), default=0)

    def write(self, line: bytes) -> None:
        self._unsaved += line + b"\n"

    def cut(self) -> Callable[[], None]:
        lines, self._unsaved = bytes(self._unsaved), bytearray()

        def save() -> None:
            self._write((self._next, self._next), lines)
            self._objects.append((self._next, self._next))
            self._next += 1

        return save

    def _write(self, span: tuple[int, int], lines: bytes) -> None:
        self._files.write(self._place(span), lines)

    def _place(self, span: tuple[int, int]) -> str:
        return f"{self._path}.lines-{span[0]:09d}-{span[1]:09d}"

    def merge(self) -> None:
        """Merges the last objects if there are `MOST` of about the same number of batches, and again if it can."""
        size = 1
        while len(parts := self._last_of(size)) >= MOST:
            merged = parts[0][0], parts[-1][1]
            self._write(merged, b"".join(self._files.read_object(self._place(part)) for part in parts))
            self._objects[-len(parts) :] = [merged]
            for part in parts:
                self._files.delete_object(self._place(part))
            size *= MOST

    def _last_of(self, size: int) -> list[tuple[int, int]]:
        """Returns the last objects that contain fewer than `MOST * size` batches each."""

        def is_small(span: tuple[int, int]) -> bool:
            return span[1] - span[0] + 1 < MOST * size

        return list(itertools.takewhile(is_small, reversed(self._objects)))[::-1]
