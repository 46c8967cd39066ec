"""Atomic file writes, and folders on any pyarrow file system."""

import errno
import hashlib
import io
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from pydantic import TypeAdapter, ValidationError

from archray import errors
from archray.disks import FULL, ArrowFiles, LocalDisk
from archray.errors import DamagedFile, InvalidInput, RunFolderError

if TYPE_CHECKING:  # pandas and pyarrow are imported where used: a local JSON file needs neither
    import pandas as pd

DRIVE = re.compile(r"[A-Za-z]:(/|$)")  # of a path on Windows
CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # characters that no terminal shows
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}  # instead of commas
SHOWN = 80  # characters of a path that is too long, in an error
TEMPORARY = ".tmp-"  # prefix of an unfinished file, which a killed process leaves behind


def local_path(place: str | os.PathLike[str]) -> Path:
    """A path that the user named, absolute, `~` expanded.

    Raises: InvalidInput for an impossible name, or a loop of symbolic links.
    """
    text = _named(place)
    if "://" in text:
        raise InvalidInput(f"expected a path on a disk of this machine, got {text}; choose another place")
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidInput(f"expected a path, got {text!r}: there is no such user; give the whole path") from error
    except FileNotFoundError as error:
        raise InvalidInput("the current folder was deleted; change to one that exists (cd)") from error
    try:
        os.stat(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            shown = text if len(text) < SHOWN else f"{text[:SHOWN]}..."
            raise InvalidInput(f"expected a path, got {shown!r} ({error.strerror}); choose another place") from error
    return path


def _named(place: str | os.PathLike[str]) -> str:
    """The text of a path or a URI. Raises: InvalidInput for another type, an empty one, or control characters."""
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else place
    if not isinstance(text, str) or not text or CONTROL.search(text):
        raise InvalidInput(f"expected a path or a URI of visible characters, got {text!r}; name a file or a folder")
    return text


def new_file(out: str | os.PathLike[str], suffix: str = "") -> Path:
    """The path of a local file to write.

    Raises: RunFolderError if something is there, InvalidInput if its folder is not, its name does not end in `suffix`,
        or as `local_path`.
    """
    local_path(out)
    path = Path(out)
    if os.path.lexists(path):
        raise RunFolderError(f"{path} exists already; choose another --out")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}; create it, or choose another --out")
    if not path.name.endswith(suffix):
        raise InvalidInput(f"expected a name that ends in {suffix}, got {path}; choose another --out")
    return path


def read_location(location: str) -> bytes:
    """The content of the file at an absolute path or a pyarrow URI, decompressed by the ending of its name.

    Raises: OSError or pyarrow.ArrowInvalid if it cannot be read.
    """
    from pyarrow import fs

    if "://" not in location and os.path.exists(location) and not os.path.isfile(location):
        raise OSError("expected a file, got a folder or a device")  # to read a pipe would block
    filesystem, path = fs.FileSystem.from_uri(location)
    with filesystem.open_input_stream(path) as stream:
        return bytes(stream.read())


def check_columns(names: Sequence[str], location: str) -> None:
    """Raises: InvalidTable if two columns of a table have one name, or commas do not separate them."""
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise errors.InvalidTable(
            f"expected columns of different names in {location}, got {', '.join(map(repr, repeated))} more than once; "
            "rename or remove all but one"
        )
    for separator, word in SEPARATORS.items():
        if len(names) == 1 and separator in names[0]:
            raise errors.InvalidTable(
                f"expected commas between the columns of {location}, got {word}; convert it, for example with pandas: "
                f"read_csv(FILE, sep={separator!r}).to_csv(OUT, index=False)"
            )


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream that becomes the local file `path` when the block ends; nothing changes if the block raises.

    The bytes go to a temporary file, are flushed to the disk and renamed: a reader finds the old file or the new one,
    also if another process writes it at the same time, and after a kill or a loss of power.

    Raises: NotWritable, an OSError, for example if the folder does not exist; OSError if the disk is full.
    """
    path = Path(path)
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}-{path.name}")
    try:
        opened = open(temporary, "xb")  # noqa: SIM115  # closed below
    except OSError as error:
        if error.errno in FULL:
            raise
        raise errors.NotWritable(f"{path} cannot be written ({error.strerror}); choose another place") from error
    try:
        with opened as stream:
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


def plain_name(name: Any) -> str:
    """`name`. Raises: RunFolderError unless it is the name of one file or folder: for a path, `..`, an empty name."""
    if not isinstance(name, str) or "/" in name or _leaves(name):
        raise RunFolderError(
            f"expected the name of one file, got {name!r}; do not use this folder: it may be made to "
            "read or write files elsewhere"
        )
    return name


def _leaves(name: str) -> bool:
    """Whether a relative name, also one with `/`, may lead out of its folder, on any system."""
    parts = name.split("/")
    return bool({"", ".", ".."} & {*parts}) or any(letter in name for letter in "\\\0") or bool(DRIVE.match(name))


def _without_query(uri: str) -> tuple[str, str]:
    """A URI and its query, `?...`; a local path has none."""
    place, mark, query = uri.partition("?") if "://" in uri else (uri, "", "")
    return place, mark + query


class Folder:
    """A local folder, or one on an object store.

    On a local disk every file is a `whole_file`; object stores show a file only once it is complete. Names of files
    may come from another user's run: every method raises RunFolderError for an absolute name, one with `..`, and a
    symbolic link that leads out of the folder that was opened.

    Args:
        place: a local path, or a URI that pyarrow understands (`s3://bucket/run`, `file:///...`), its query with it
            (`s3://bucket/run?region=eu-central-1`).
        filesystem: the pyarrow `FileSystem` that `place` is a path on; None: as `place` says.
    """

    def __init__(self, place: str | os.PathLike[str], filesystem: Any = None) -> None:
        self.uri = _named(place)
        if filesystem is None and "://" not in self.uri:
            self.path = self.uri = self._root = str(local_path(self.uri).resolve())
            self._disk: LocalDisk | ArrowFiles = LocalDisk()
            return
        import pyarrow as pa
        from pyarrow import fs

        if filesystem is not None:
            self.path = self.uri
        else:
            try:
                filesystem, self.path = fs.FileSystem.from_uri(self.uri)
            except pa.ArrowInvalid as error:
                raise InvalidInput(
                    f"expected a path or a URI such as s3://bucket/run, got {place} ({error}); choose another place"
                ) from error
            if not self.path:
                raise InvalidInput(f"expected a URI such as s3://bucket/run, got {place}; name a bucket")
        self._root = self.path
        self._disk = LocalDisk() if isinstance(filesystem, fs.LocalFileSystem) else ArrowFiles(filesystem)

    def _at(self, path: str, uri: str) -> Self:
        folder = copy(self)
        folder.path, folder.uri = path, uri
        if len(path) < len(self._root):
            folder._root = path  # a parent of the folder that was opened
        return folder

    def _place(self, name: str | None = None) -> str:
        """The path of this folder, or of a file in it. Raises: RunFolderError outside of the folder that was opened."""
        if name is not None and _leaves(name):
            raise self._outside(name)
        path = self.path if name is None else f"{self.path}/{name}"
        if isinstance(self._disk, LocalDisk):
            root = os.path.realpath(self._root)
            if os.path.commonpath([root, os.path.realpath(path)]) != root:
                raise self._outside(path)
        return path

    def _outside(self, name: str) -> RunFolderError:
        return RunFolderError(
            f"expected a name inside {self._root}, got {name!r}, which leads out of it; do not use this folder: it may "
            "be made to read or write files elsewhere. If you put a symbolic link there yourself, put the files there"
        )

    def __truediv__(self, name: str) -> Self:
        if _leaves(name):
            raise self._outside(name)
        place, query = _without_query(self.uri)
        return self._at(f"{self.path}/{name}", f"{place.rstrip('/')}/{name}{query}")

    @property
    def parent(self) -> Self:
        place, query = _without_query(self.uri)
        return self._at(self.path.rpartition("/")[0], place.rstrip("/").rpartition("/")[0] + query)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self.uri

    def local_path(self, name: str | None = None) -> Path | None:
        """The folder, or a file in it, as a local path; None on an object store."""
        path = self._place(name)
        return Path(path) if isinstance(self._disk, LocalDisk) else None

    def create(self) -> Self:
        self._disk.create(self._place())
        return self

    def exists(self, name: str | None = None) -> bool:
        """Whether the folder, or the file or folder called `name` in it, exists."""
        kind = self._disk.kind(self._place(name))
        return kind == "folder" if name is None else bool(kind)

    def files(self) -> list[str]:
        """The names of the files directly in the folder, sorted; temporary ones left out."""
        entries = self._disk.entries(self._place())
        return sorted(name for name, kind in entries if kind == "file" and not name.startswith(TEMPORARY))

    def folders(self) -> list[str]:
        """The names of the folders directly in this one, sorted."""
        return sorted(name for name, kind in self._disk.entries(self._place()) if kind == "folder")

    def set_aside(self) -> None:
        """Renames the folder to the first free one of `NAME-before-1`, `NAME-before-2`, ..."""
        number = 1
        while self._disk.kind(f"{self.path}-before-{number}"):
            number += 1
        self._disk.move(self.path, f"{self.path}-before-{number}")

    def sweep(self) -> None:
        """Deletes the unfinished files of a killed process, here and in all subfolders; an object store has none."""
        if "://" not in self.uri:
            for unfinished in Path(self.path).rglob(f"{TEMPORARY}*"):
                unfinished.unlink(missing_ok=True)

    def remove(self) -> None:
        """Deletes the folder with its content."""
        self._disk.remove(self._place())

    def delete(self, name: str) -> None:
        self._disk.delete(self._place(name))

    def read_bytes(self, name: str) -> bytes:
        """Raises: MissingFile; UnreadableFile; DamagedFile for a folder or a pipe."""
        try:
            return self._disk.read(self._place(name))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise errors.MissingFile.at(f"{self}/{name}", "it is missing") from error
        except PermissionError as error:
            raise errors.UnreadableFile.at(f"{self}/{name}", error.strerror or error) from error
        except IsADirectoryError as error:
            raise DamagedFile.at(f"{self}/{name}", error.strerror or error) from error

    @contextmanager
    def whole_file(self, name: str) -> Iterator[BinaryIO]:
        """A stream that becomes the file `name` when the block ends; nothing changes if the block raises."""
        self.create()
        if isinstance(self._disk, LocalDisk):
            with whole_file(self._place(name)) as stream:
                yield stream
        else:  # in memory first: closing a stream to an object store completes the file, after an error too
            content = io.BytesIO()
            yield content
            self._disk.write(self._place(name), content.getbuffer())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Writes a file whole: after a crash it has its old content or the new one."""
        with self.whole_file(name) as stream:
            stream.write(content)

    def append_line(self, name: str, line: bytes) -> None:
        """Adds a line to a file, which need not exist. After a kill or a loss of power it may be incomplete or absent.

        line: without a line break. On an object store every line is an object; all other methods list, read and delete
        them as one file.
        """
        self.create()
        self._disk.append_line(self._place(name), line)

    def read_json_lines(self, name: str, kind: Any = Any) -> list[Any]:
        """The values of a file's lines, incomplete ones and others than `kind` left out. Raises: as `read_bytes`."""
        values = []
        for line in self.read_bytes(name).splitlines():
            try:
                values.append(_checked(line, kind))
            except ValidationError:
                continue
        return values

    def copy_from(self, source: Self, names: Iterable[str] | None = None) -> None:
        """Copies files of another folder: all of them, or `names`."""
        for name in source.files() if names is None else names:
            self.write_bytes(name, source.read_bytes(name))

    def sha256(self, name: str) -> str:
        return hashlib.sha256(self.read_bytes(name)).hexdigest()

    def read_json(self, name: str, kind: Any = dict[str, Any]) -> Any:
        """A document, as it was written.

        kind: a type that pydantic checks, for example a model; the document may have more keys than that.
        Raises: DamagedFile if it is none of this kind; otherwise as `read_bytes`.
        """
        try:
            return _checked(self.read_bytes(name), kind)
        except ValidationError as error:
            raise DamagedFile.at(f"{self}/{name}", errors.first_problem(error)) from error

    def write_json(self, name: str, value: Any) -> None:
        self.write_bytes(name, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())

    def read_parquet(self, name: str, *columns: str) -> "pd.DataFrame":
        """A table. Raises: DamagedFile if it is none, or lacks one of the columns; otherwise as `read_bytes`."""
        import pandas as pd

        content = io.BytesIO(self.read_bytes(name))
        try:
            table = pd.read_parquet(content)
        except Exception as error:  # of Arrow, of pandas, of the JSON in it
            raise DamagedFile.at(f"{self}/{name}", error) from error
        if missing := [column for column in columns if column not in table.columns]:
            raise DamagedFile.at(f"{self}/{name}", f"it lacks {', '.join(missing)}")
        return table

    def write_parquet(self, name: str, table: "pd.DataFrame") -> None:
        content = io.BytesIO()
        table.to_parquet(content, index=False)
        self.write_bytes(name, content.getvalue())


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _checked(content: bytes, kind: Any) -> Any:
    """A JSON document. Raises: ValidationError if it is none of this kind, or nested too deeply to be read."""
    _adapter(kind).validate_json(content, strict=True)
    return json.loads(content)  # as it was written: the check leaves out keys that `kind` does not name
