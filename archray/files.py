"""Files that are whole or not there: one atomic writer, and folders on any pyarrow file system."""

from __future__ import annotations

import hashlib
import io
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

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


class Folder:
    """A local folder, or one on an object store, that is written file by file.

    On a local disk every file is a `whole_file`; object stores show a file only once it is complete.

    Args:
        place: a local path, or a URI that pyarrow understands (`s3://bucket/run`, `file:///...`).
        filesystem: the one that `place` is a path on; None: the one that `place` says.
    """

    def __init__(self, place: str | os.PathLike[str], filesystem: fs.FileSystem | None = None) -> None:
        from pyarrow import fs

        self.uri = os.fspath(place)
        if filesystem is not None:
            self._fs, self.path = filesystem, self.uri
        elif "://" in self.uri:
            self._fs, self.path = fs.FileSystem.from_uri(self.uri)
        else:
            self._fs, self.path = fs.LocalFileSystem(), str(Path(self.uri).expanduser().resolve())
            self.uri = self.path
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)

    def __truediv__(self, name: str) -> Folder:
        child = Folder(f"{self.path}/{name}", filesystem=self._fs)
        child.uri = f"{self.uri.rstrip('/')}/{name}"
        return child

    @property
    def parent(self) -> Folder:
        """The folder that this one lies in."""
        folder = Folder(self.path.rpartition("/")[0], filesystem=self._fs)
        folder.uri = self.uri.rstrip("/").rpartition("/")[0]
        return folder

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self.uri

    def local_path(self) -> Path | None:
        """The folder as a local path, or None on an object store."""
        return Path(self.path) if self._is_local else None

    def create(self) -> Folder:
        self._fs.create_dir(self.path, recursive=True)
        return self

    def exists(self, name: str | None = None) -> bool:
        """Whether the folder, or the file or folder called `name` in it, exists."""
        path = self.path if name is None else f"{self.path}/{name}"
        return self._fs.get_file_info(path).type.name != "NotFound"

    def is_empty(self) -> bool:
        return not self._entries()

    def files(self) -> list[str]:
        """The names of the files directly in the folder, sorted; temporary ones left out."""
        return sorted(e.base_name for e in self._entries() if e.is_file and not e.base_name.startswith(TEMPORARY))

    def folders(self) -> list[str]:
        """The names of the folders directly in this one, sorted."""
        return sorted(entry.base_name for entry in self._entries() if entry.type.name == "Directory")

    def _entries(self) -> list[fs.FileInfo]:
        from pyarrow import fs

        return self._fs.get_file_info(fs.FileSelector(self.path, allow_not_found=True))

    def set_aside(self) -> None:
        """Renames the folder to the first free one of `NAME-before-1`, `NAME-before-2`, ..."""
        number = 1
        while Folder(f"{self.path}-before-{number}", filesystem=self._fs).exists():
            number += 1
        self._fs.move(self.path, f"{self.path}-before-{number}")

    def remove(self) -> None:
        """Deletes the folder and all in it."""
        self._fs.delete_dir(self.path)

    def delete(self, name: str) -> None:
        """Deletes a file."""
        self._fs.delete_file(f"{self.path}/{name}")

    def read_bytes(self, name: str) -> bytes:
        with self._fs.open_input_stream(f"{self.path}/{name}") as stream:
            return bytes(stream.read())

    @contextmanager
    def whole_file(self, name: str) -> Iterator[BinaryIO]:
        """A stream to what becomes the file `name` when the block ends; nothing changes if the block raises."""
        self.create()
        if self._is_local:
            with whole_file(f"{self.path}/{name}") as stream:
                yield stream
        else:  # in memory first: closing a stream to an object store completes the file, after an error too
            content = io.BytesIO()
            yield content
            with self._fs.open_output_stream(f"{self.path}/{name}") as stream:
                stream.write(content.getbuffer())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Writes a file whole: after a crash it has its old content or the new one."""
        with self.whole_file(name) as stream:
            stream.write(content)

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
