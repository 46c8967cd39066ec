"""The file operations of a `Folder`, on the local disk and on pyarrow file systems."""

import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

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
        is_journal: whether the file is a journal, see `LineWriter`.
    """

    survives_kill: bool
    is_journal: bool

    def write(self, line: bytes) -> None: ...

    def cut(self, ended: bool) -> Callable[[], None]:
        """Returns a function that saves the lines written so far, for another thread.

        Args:
            ended: whether these are probably the last lines.
        """

    def sweep(self) -> None:
        """Deletes objects that are no longer needed."""


class LocalLines:
    """A local file that grows by lines. A saved line survives a loss of power."""

    survives_kill = True

    def __init__(self, path: str, is_journal: bool) -> None:
        self._path, self.is_journal = path, is_journal
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

    def cut(self, ended: bool) -> Callable[[], None]:
        stream, self._stream = self._stream, None

        def save() -> None:
            if stream is not None:
                with stream:
                    os.fsync(stream.fileno())

        return save

    def sweep(self) -> None:
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

    def lines(self, path: str, is_journal: bool) -> Lines:
        return LocalLines(path, is_journal)

    def with_listing(self) -> Self:
        return self  # a listing is cheap


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

    `NAME.line-NUMBER` contains lines, and numbers grow. `NAME.lines-NUMBER` contains all lines of smaller numbers,
    which are then deleted. Objects are written before others are deleted, and listed in the order of their names, which
    has `.line-` before `.lines-`. So every listing contains all lines, even during a deletion or after a kill.
    """

    def __init__(self, filesystem: Any, *, cached: bool = False) -> None:
        self.filesystem, self._cached = filesystem, cached
        self._clear()

    def _clear(self) -> None:
        self._listings: dict[str, list[tuple[str, str]]] = {}  # by folder
        self._growing: dict[str, dict[str, list[str]]] = {}  # by folder and file

    def with_listing(self) -> Self:
        """Returns these files with a cache of listings."""
        return type(self)(self.filesystem, cached=True)

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
        objects = self.objects(path) if self._cached else []
        try:
            if not objects:
                return self._read(path)
        except FileNotFoundError:
            objects = self.objects(path)
            if not objects:
                raise
        try:
            return b"".join(map(self.read_object, current_objects(objects)))
        except FileNotFoundError:  # the writer has replaced the objects since the listing
            self._clear()
            return self.read(path)

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

    def lines(self, path: str, is_journal: bool) -> Lines:
        return StoredLines(self, path, is_journal)

    def objects(self, path: str) -> list[str]:
        """Returns the objects of a growing file by their numbers; none for another file."""
        folder, _, name = path.rpartition("/")
        if not folder:  # a bucket
            return []
        growing = self._growing.get(folder)
        if growing is None:
            growing = {}
            entries = [entry for entry, _ in self._objects(folder) if LINES.search(entry)]
            for entry in sorted(entries, key=number_of):
                growing.setdefault(LINES.sub("", entry), []).append(f"{folder}/{entry}")
            if self._cached:
                self._growing[folder] = growing
        return growing.get(name, [])

    def _objects(self, path: str) -> list[tuple[str, str]]:
        from pyarrow import fs

        listing = self._listings.get(path)
        if listing is None:
            with self._store_errors(path):
                entries = self.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
            listing = [(entry.base_name, _KINDS.get(entry.type.name, "")) for entry in entries]
            if self._cached:
                self._listings[path] = listing
        return listing


LINES = re.compile(r"\.(line|lines)-(\d{20})$")
_KINDS = {"File": "file", "Directory": "folder"}
MOST = 100  # objects of a growing file


def number_of(entry: str) -> int:
    found = LINES.search(entry)
    assert found is not None  # callers have checked it
    return int(found[2])


def current_objects(objects: Sequence[str]) -> Sequence[str]:
    """Returns the objects, in order, without those whose lines another object contains."""
    merged = [place for place, name in enumerate(objects) if ".lines-" in name.rpartition("/")[2]]
    return objects[merged[-1] if merged else 0 :]


class StoredLines:
    """A file on an object store that grows by lines: an object per batch, and one object at its end."""

    survives_kill = False

    def __init__(self, files: ArrowFiles, path: str, is_journal: bool) -> None:
        self._files, self._path, self.is_journal = files, path, is_journal
        self._unsaved = bytearray()
        objects = files.objects(path)
        self._number = number_of(objects[-1]) if objects else 0
        current = current_objects(objects)
        self._contents: dict[str, bytes | None] = dict.fromkeys(current)  # by object; None: not in memory
        self._stale = objects[: len(objects) - len(self._contents)]

    def write(self, line: bytes) -> None:
        self._unsaved += line + b"\n"

    def cut(self, ended: bool) -> Callable[[], None]:
        lines, self._unsaved = bytes(self._unsaved), bytearray()
        return lambda: self._save(lines, ended)

    def _save(self, lines: bytes, ended: bool) -> None:
        self._number = max(self._number + 1, time.time_ns())  # a clock may be set back
        if self.is_journal or (len(self._contents) + 1 < MOST and not ended):
            place = f"{self._path}.line-{self._number:020d}"
            self._files.write(place, lines)
            self._contents |= {} if self.is_journal else {place: lines}
        elif lines or len(self._contents) > 1:
            read, place = self._files.read_object, f"{self._path}.lines-{self._number:020d}"
            parts = [read(name) if part is None else part for name, part in self._contents.items()]
            self._files.write(place, b"".join([*parts, lines]))
            self._stale += self._contents
            self._contents = {place: None}

    def sweep(self) -> None:
        while self._stale:
            self._files.delete_object(self._stale.pop(0))
