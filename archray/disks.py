"""The file operations of a `Folder`, on the local disk and on pyarrow file systems."""

import errno
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

from archray.errors import NotWritable

FULL = (errno.ENOSPC, errno.EDQUOT)  # disk full, quota exceeded
FULL_TEXTS = ("No space left on device", "Disk quota exceeded")  # errors of Tune keep only this text


def is_full(error: BaseException | None) -> bool:
    """Returns whether an error, or its cause, reports a full disk or an exceeded quota."""
    if error is None:
        return False
    full = getattr(error, "errno", None) in FULL or any(text in str(error) for text in FULL_TEXTS)
    return full or is_full(error.__cause__ or error.__context__)


class LocalDisk:
    """The local disk. It does not use pyarrow, whose import would slow down reading a run's few files."""

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
                    f"Expected a folder at {file}, got a file. Remove or rename it, or choose another folder."
                ) from error
            message = f"The folder {path} cannot be created ({error.strerror}). Choose another folder."
            raise NotWritable(message) from error

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
        os.unlink(path)

    def read(self, path: str) -> bytes:
        if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe would block
            raise IsADirectoryError(errno.EISDIR, "it is a folder or a device", path)
        return Path(path).read_bytes()

    def append_line(self, path: str, line: bytes) -> None:
        with open(path, "a+b", buffering=0) as stream:
            if (size := stream.seek(0, os.SEEK_END)) and os.pread(stream.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line  # after a kill the last line may be incomplete
            stream.write(line + b"\n")
            os.fsync(stream.fileno())


class ArrowFiles:
    """A pyarrow `FileSystem`. A growing file is stored as objects `NAME.line-TIME`, which appear as one file."""

    def __init__(self, filesystem: Any) -> None:
        self.filesystem = filesystem

    def kind(self, path: str) -> str:
        return _KINDS.get(self.filesystem.get_file_info(path).type.name, "") or ("file" if self._lines(path) else "")

    def entries(self, path: str) -> list[tuple[str, str]]:
        return sorted({(LINE.sub("", name), kind) for name, kind in self._objects(path)})

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
        """Reads the whole object; pyarrow alone reads the initial number of bytes even if the object is replaced."""
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
        """Returns the objects of a growing file, in order; none for another file."""
        folder, _, name = path.rpartition("/")
        if not folder:  # a bucket
            return []
        lines = [line for line, _ in self._objects(folder) if LINE.search(line) and LINE.sub("", line) == name]
        return [f"{folder}/{line}" for line in sorted(lines)]

    def _objects(self, path: str) -> list[tuple[str, str]]:
        from pyarrow import fs

        entries = self.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [(entry.base_name, _KINDS.get(entry.type.name, "")) for entry in entries]


LINE = re.compile(r"\.line-\d{20}$")
_KINDS = {"File": "file", "Directory": "folder"}
