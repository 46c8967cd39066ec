"""What a `Folder` asks of the disk it lies on: the local one, and any of pyarrow's file systems."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from archray.errors import NotWritable

if TYPE_CHECKING:  # imported where used: what only writes local files does not need it
    from pyarrow import fs

FULL = (errno.ENOSPC, errno.EDQUOT)  # of a disk, of a quota
FULL_TEXTS = ("No space left on device", "Disk quota exceeded")  # all that is left of it in an error of Tune's


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what it came of, says that a disk or a quota is full."""
    if error is None:
        return False
    full = getattr(error, "errno", None) in FULL or any(text in str(error) for text in FULL_TEXTS)
    return full or is_full(error.__cause__ or error.__context__)


class LocalDisk:
    """What `Folder` asks of a pyarrow file system, of the local one: to read a run's few files imports no pyarrow."""

    def kind(self, path: str) -> str:
        return "folder" if os.path.isdir(path) else "file" if os.path.exists(path) else ""

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
            file = next((place for place in (path, *map(str, Path(path).parents)) if os.path.isfile(place)), None)
            if file is not None:
                raise NotWritable(
                    f"expected a folder at {file}, got a file; remove or rename it, or choose another place"
                ) from error
            raise NotWritable(
                f"the folder {path} cannot be created ({error.strerror}); choose another place"
            ) from error

    def move(self, path: str, to: str) -> None:
        os.rename(path, to)

    def remove(self, path: str) -> None:
        shutil.rmtree(path)

    def delete(self, path: str) -> None:
        os.unlink(path)

    def read(self, path: str) -> bytes:
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe would be waited for
            raise IsADirectoryError(errno.EISDIR, "it is a folder or a device", path)
        return Path(path).read_bytes()

    def append_line(self, path: str, line: bytes) -> None:
        with open(path, "a+b", buffering=0) as stream:
            if (size := stream.seek(0, os.SEEK_END)) and os.pread(stream.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line  # a kill has left half of the line before
            stream.write(line + b"\n")
            os.fsync(stream.fileno())


class ArrowFiles:
    """The same of any pyarrow file system.

    A file that grows is there a number of objects, `NAME.line-TIME`, and shown and read as one file.
    """

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self.filesystem = filesystem

    def kind(self, path: str) -> str:
        return _KINDS.get(self.filesystem.get_file_info(path).type.name, "") or ("file" if self._lines(path) else "")

    def entries(self, path: str) -> list[tuple[str, str]]:
        entries = {(LINE.sub("", name), kind) for name, kind in self._objects(path)}
        return sorted(entries)

    def create(self, path: str) -> None:
        self.filesystem.create_dir(path, recursive=True)

    def move(self, path: str, to: str) -> None:
        self.filesystem.move(path, to)

    def remove(self, path: str) -> None:
        self.filesystem.delete_dir(path)

    def delete(self, path: str) -> None:
        for file in self._lines(path) or [path]:
            self.filesystem.delete_file(file)

    def read(self, path: str) -> bytes:
        try:
            return self._read(path)
        except FileNotFoundError:
            if lines := self._lines(path):
                return b"".join(map(self._read, lines))
            raise

    def _read(self, path: str) -> bytes:
        """Whole, even if it is replaced meanwhile: an object's size is asked for first, then as many bytes of it."""
        while True:
            with self.filesystem.open_input_stream(path) as stream:
                content = bytes(stream.read())
            if self.filesystem.get_file_info(path).size in (None, len(content)):
                return content

    def write(self, path: str, content: bytes | memoryview) -> None:
        with self.filesystem.open_output_stream(path) as stream:
            stream.write(content)

    def append_line(self, path: str, line: bytes) -> None:
        ArrowFiles._last = max(ArrowFiles._last + 1, time.time_ns())  # a clock may be set back
        self.write(f"{path}.line-{ArrowFiles._last:020d}", line + b"\n")

    _last = 0

    def _lines(self, path: str) -> list[str]:
        """The objects of a file that grows, in order; none of another one."""
        folder, _, name = path.rpartition("/")
        if not folder:
            return []  # a bucket
        lines = [line for line, _ in self._objects(folder) if LINE.search(line) and LINE.sub("", line) == name]
        return [f"{folder}/{line}" for line in sorted(lines)]

    def _objects(self, path: str) -> list[tuple[str, str]]:
        from pyarrow import fs

        entries = self.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [(entry.base_name, _KINDS.get(entry.type.name, "")) for entry in entries]


LINE = re.compile(r"\.line-\d{20}$")
_KINDS = {"File": "file", "Directory": "folder"}
