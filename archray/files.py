"""A folder on any pyarrow file system: whole files in, whole files out."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow import fs


class Folder:
    """A local folder, or one on an object store, that is written file by file.

    On a local disk every file is written under a temporary name and renamed, so a reader never meets half of
    it. Object stores show a file only once it is complete.

    Args:
        place: a local path, or a URI that pyarrow understands (`s3://bucket/run`, `file:///...`).
    """

    def __init__(self, place: str | os.PathLike[str], filesystem: fs.FileSystem | None = None) -> None:
        if filesystem is not None:
            self._fs, self.path = filesystem, os.fspath(place)
        elif "://" in (text := os.fspath(place)):
            self._fs, self.path = fs.FileSystem.from_uri(text)
        else:
            self._fs, self.path = fs.LocalFileSystem(), str(Path(text).expanduser().resolve())
        self.uri = text if filesystem is None and "://" in text else self.path

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
        return Path(self.path) if isinstance(self._fs, fs.LocalFileSystem) else None

    def create(self) -> Folder:
        self._fs.create_dir(self.path, recursive=True)
        return self

    def exists(self, name: str | None = None) -> bool:
        """Whether the folder, or the file or folder called `name` in it, exists."""
        path = self.path if name is None else f"{self.path}/{name}"
        return bool(self._fs.get_file_info(path).type != fs.FileType.NotFound)

    def is_empty(self) -> bool:
        return not self._fs.get_file_info(fs.FileSelector(self.path, allow_not_found=True))

    def files(self) -> list[str]:
        """The names of the files directly in the folder, sorted; temporary ones left out."""
        infos = self._fs.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(i.base_name for i in infos if i.type == fs.FileType.File and not i.base_name.startswith(".tmp-"))

    def folders(self) -> list[str]:
        """The names of the folders directly in this one, sorted."""
        infos = self._fs.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(i.base_name for i in infos if i.type == fs.FileType.Directory)

    def set_aside(self) -> None:
        """Renames the folder to the first free one of `NAME-before-1`, `NAME-before-2`, ..."""
        number = 1
        while self._fs.get_file_info(f"{self.path}-before-{number}").type != fs.FileType.NotFound:
            number += 1
        self._fs.move(self.path, f"{self.path}-before-{number}")

    def remove(self) -> None:
        """Deletes the folder and all in it."""
        self._fs.delete_dir(self.path)

    def read_bytes(self, name: str) -> bytes:
        with self._fs.open_input_stream(f"{self.path}/{name}") as stream:
            return bytes(stream.read())

    def write_bytes(self, name: str, data: bytes) -> None:
        """Writes a file whole: after a crash it has its old content or the new one."""
        self.create()
        local = self.local_path() is not None
        target = f"{self.path}/{name}"
        temporary = f"{self.path}/.tmp-{os.getpid()}-{name}" if local else target
        with self._fs.open_output_stream(temporary) as stream:
            stream.write(data)
        if local:
            self._fs.move(temporary, target)

    def sha256(self, name: str) -> str:
        return hashlib.sha256(self.read_bytes(name)).hexdigest()

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_bytes(name))

    def write_json(self, name: str, value: Any) -> None:
        self.write_bytes(name, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())

    def read_parquet(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(io.BytesIO(self.read_bytes(name)))

    def write_parquet(self, name: str, table: pd.DataFrame) -> None:
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        self.write_bytes(name, buffer.getvalue())
