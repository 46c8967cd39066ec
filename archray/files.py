"""Files that are whole or not there: one atomic writer, and folders on any pyarrow file system."""

from __future__ import annotations

import hashlib
import io
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from archray.disks import ArrowFiles, LocalDisk

if TYPE_CHECKING:  # imported where used: what only writes local files needs neither
    import pandas as pd
    from pyarrow import fs

TEMPORARY = ".tmp-"  # how the name of an unfinished file begins; a killed process leaves it behind


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream to what becomes the local file `path` when the block ends; nothing changes if the block raises.

    The bytes go to a temporary name of this call's own, are flushed to the disk and renamed: a reader meets the old
    file or the new one, whoever else writes it at the same time, and so it is after a kill or a loss of power.

    Raises: OSError, FileNotFoundError among others if the folder does not exist.
    """
    path = Path(path)
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}-{path.name}")
    try:
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes the local file `path` as `whole_file` does."""
    with whole_file(path) as stream:
        stream.write(content)


def _without_query(uri: str) -> tuple[str, str]:
    """A URI and its query, `?...`; a local path has none."""
    place, mark, query = uri.partition("?") if "://" in uri else (uri, "", "")
    return place, mark + query


class Folder:
    """A local folder, or one on an object store, that is written file by file.

    On a local disk every file is a `whole_file`; object stores show a file only once it is complete.

    Args:
        place: a local path, or a URI that pyarrow understands (`s3://bucket/run`, `file:///...`), its query with it
            (`s3://bucket/run?region=eu-central-1`).
        filesystem: the one that `place` is a path on; None: the one that `place` says.
    """

    def __init__(self, place: str | os.PathLike[str], filesystem: fs.FileSystem | None = None) -> None:
        self.uri = os.fspath(place)
        if filesystem is None and "://" not in self.uri:
            self.path = self.uri = str(Path(self.uri).expanduser().resolve())
            self._disk: LocalDisk | ArrowFiles = LocalDisk()
            return
        from pyarrow import fs

        if filesystem is not None:
            self.path = self.uri
        else:
            filesystem, self.path = fs.FileSystem.from_uri(self.uri)
        self._disk = LocalDisk() if isinstance(filesystem, fs.LocalFileSystem) else ArrowFiles(filesystem)

    def _at(self, path: str, uri: str) -> Folder:
        """The folder at another path of the same disk."""
        folder = copy(self)
        folder.path, folder.uri = path, uri
        return folder

    def __truediv__(self, name: str) -> Folder:
        place, query = _without_query(self.uri)
        return self._at(f"{self.path}/{name}", f"{place.rstrip('/')}/{name}{query}")

    @property
    def parent(self) -> Folder:
        """The folder that this one lies in."""
        place, query = _without_query(self.uri)
        return self._at(self.path.rpartition("/")[0], place.rstrip("/").rpartition("/")[0] + query)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self.uri

    def local_path(self) -> Path | None:
        """The folder as a local path, or None on an object store."""
        return Path(self.path) if isinstance(self._disk, LocalDisk) else None

    def create(self) -> Folder:
        self._disk.create(self.path)
        return self

    def exists(self, name: str | None = None) -> bool:
        """Whether the folder, or the file or folder called `name` in it, exists."""
        return bool(self._disk.kind(self.path if name is None else f"{self.path}/{name}"))

    def is_empty(self) -> bool:
        return not self._disk.entries(self.path)

    def files(self) -> list[str]:
        """The names of the files directly in the folder, sorted; temporary ones left out."""
        return sorted(
            name for name, kind in self._disk.entries(self.path) if kind == "file" and not name.startswith(TEMPORARY)
        )

    def folders(self) -> list[str]:
        """The names of the folders directly in this one, sorted."""
        return sorted(name for name, kind in self._disk.entries(self.path) if kind == "folder")

    def set_aside(self) -> None:
        """Renames the folder to the first free one of `NAME-before-1`, `NAME-before-2`, ..."""
        number = 1
        while self._disk.kind(f"{self.path}-before-{number}"):
            number += 1
        self._disk.move(self.path, f"{self.path}-before-{number}")

    def sweep(self) -> None:
        """Deletes the unfinished files that a killed process has left, here and in all folders inside.

        An object store shows none.
        """
        if "://" not in self.uri:
            for left in Path(self.path).rglob(f"{TEMPORARY}*"):
                left.unlink(missing_ok=True)

    def remove(self) -> None:
        """Deletes the folder and all in it."""
        self._disk.remove(self.path)

    def delete(self, name: str) -> None:
        """Deletes a file."""
        self._disk.delete(f"{self.path}/{name}")

    def read_bytes(self, name: str) -> bytes:
        return self._disk.read(f"{self.path}/{name}")

    @contextmanager
    def whole_file(self, name: str) -> Iterator[BinaryIO]:
        """A stream to what becomes the file `name` when the block ends; nothing changes if the block raises."""
        self.create()
        if isinstance(self._disk, LocalDisk):
            with whole_file(f"{self.path}/{name}") as stream:
                yield stream
        else:  # in memory first: closing a stream to an object store completes the file, after an error too
            content = io.BytesIO()
            yield content
            self._disk.write(f"{self.path}/{name}", content.getbuffer())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Writes a file whole: after a crash it has its old content or the new one."""
        with self.whole_file(name) as stream:
            stream.write(content)

    def append_line(self, name: str, line: bytes) -> None:
        """Adds a line to a file, which need not be there; after a kill or a loss of power it is whole, torn, or absent.

        line: without a line break. An object store has no files that grow: there every line is an object of its own,
        and all other methods show, read and delete them as one file.
        """
        self.create()
        self._disk.append_line(f"{self.path}/{name}", line)

    def read_json_lines(self, name: str) -> list[Any]:
        """What the lines of a file say, a torn one left out. Raises: FileNotFoundError if it is not there."""
        values = []
        for line in self.read_bytes(name).splitlines():
            try:
                values.append(json.loads(line))
            except ValueError:
                continue
        return values

    def copy_from(self, source: Folder, names: Iterable[str] | None = None) -> None:
        """Copies files of another folder; all of them, or those named."""
        for name in source.files() if names is None else names:
            self.write_bytes(name, source.read_bytes(name))

    def sha256(self, name: str) -> str:
        return hashlib.sha256(self.read_bytes(name)).hexdigest()

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_bytes(name))

    def write_json(self, name: str, value: Any) -> None:
        self.write_bytes(name, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())

    def read_parquet(self, name: str) -> pd.DataFrame:
        import pandas as pd

        return pd.read_parquet(io.BytesIO(self.read_bytes(name)))

    def write_parquet(self, name: str, table: pd.DataFrame) -> None:
        content = io.BytesIO()
        table.to_parquet(content, index=False)
        self.write_bytes(name, content.getvalue())
