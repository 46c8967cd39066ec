"""Atomic file writes, and folders on local disks and pyarrow file systems."""

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
from archray.disks import FULL, ArrowFiles, Lines, LocalDisk, store_errors
from archray.errors import DamagedFile, InvalidInput, RunFolderError

if TYPE_CHECKING:  # pandas and pyarrow are imported where they are used: local JSON files need neither
    import pandas as pd

DRIVE = re.compile(r"[A-Za-z]:(/|$)")  # drive of a Windows path
CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # invisible characters
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}  # separators other than commas
SHOWN = 80  # characters of a long path that an error shows
TEMPORARY = ".tmp-"  # prefix of an unfinished file, which a killed process leaves behind


def local_path(place: str | os.PathLike[str]) -> Path:
    """Returns a user's path as an absolute path with `~` expanded.

    Raises: InvalidInput for an invalid name, or a loop of symbolic links.
    """
    text = _named(place)
    if "://" in text:
        raise InvalidInput(f"Expected a path on this machine, got the URI {text}. Give a local path.")
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidInput(f"Expected a path, got {text!r}: there is no such user. Give the whole path.") from error
    except FileNotFoundError as error:
        raise InvalidInput("The current folder was deleted. Change to an existing folder (cd).") from error
    try:
        os.stat(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            shown = text if len(text) < SHOWN else f"{text[:SHOWN]}..."
            raise InvalidInput(f"Expected a valid path, got {shown!r} ({error.strerror}). Choose another.") from error
    return path


def _named(place: str | os.PathLike[str]) -> str:
    """Returns the text of a path or URI. Raises: InvalidInput for another type, an empty text or control characters."""
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else place
    if not isinstance(text, str) or not text or CONTROL.search(text):
        raise InvalidInput(f"Expected a path or a URI of visible characters, got {text!r}. Name a file or a folder.")
    return text


def new_file(out: str | os.PathLike[str], suffix: str = "") -> Path:
    """Returns the path of a local file to write.

    Raises: RunFolderError if the path exists; InvalidInput if its folder does not exist, if its name does not end in
    `suffix`, or as `local_path`.
    """
    local_path(out)
    path = Path(out)
    if os.path.lexists(path):
        raise RunFolderError(f"{path} exists already. Choose another --out")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}; create it, or choose another --out")
    if not path.name.endswith(suffix):
        raise InvalidInput(f"Expected a name that ends in {suffix}, got {path}. Choose another --out.")
    return path


def read_location(location: str) -> bytes:
    """Reads the file at an absolute path or a pyarrow URI, decompressed according to its file name extension.

    Raises: OSError or pyarrow.ArrowInvalid if it cannot be read.
    """
    from pyarrow import fs

    if "://" not in location and os.path.exists(location) and not os.path.isfile(location):
        raise OSError("expected a file, got a folder or a device")  # reading a pipe would block
    filesystem, path = fs.FileSystem.from_uri(location)
    with filesystem.open_input_stream(path) as stream:
        return bytes(stream.read())


def check_columns(names: Sequence[str], location: str) -> None:
    """Raises: InvalidTable if two columns of a table have the same name, or if commas do not separate the columns."""
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise errors.InvalidTable(
            f"Expected distinct column names in {location}, got {', '.join(map(repr, repeated))} more than once. "
            "Rename or remove all but one."
        )
    for separator, word in SEPARATORS.items():
        if len(names) == 1 and separator in names[0]:
            raise errors.InvalidTable(
                f"Expected commas between the columns of {location}, got {word}. Convert it, for example with pandas: "
                f"read_csv(FILE, sep={separator!r}).to_csv(OUT, index=False)"
            )


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a stream that becomes the local file `path` when the block ends; nothing changes if the block raises.

    The bytes are written to a temporary file, which is flushed to the disk and renamed. So a reader finds the old file
    or the new file, even if another process writes it at the same time, and after a kill or a loss of power.

    Raises: NotWritable, an OSError, for example if the folder does not exist; OSError if the disk is full.
    """
    path = Path(path)
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}-{path.name}")
    try:
        opened = open(temporary, "xb")  # noqa: SIM115  # closed below
    except OSError as error:
        if error.errno in FULL:
            raise
        raise errors.NotWritable(f"{path} cannot be written ({error.strerror}). Choose another path.") from error
    try:
        with opened as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if path.is_dir() and not path.is_symlink():
            raise errors.NotWritable(f"Expected a file at {path}, got a folder. Remove or rename it.")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes the local file `path` as `whole_file` does."""
    with whole_file(path) as stream:
        stream.write(content)


def create_secret(path: Path, content: bytes) -> None:
    """Creates a local file that only this user can read, unless it exists. A new folder has the mode 0700.

    If several processes try at once, only one succeeds. The file has its mode and its content when it appears.

    Raises: OSError.
    """
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}-{path.name}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, path)  # unlike a rename it replaces no file of another process
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)


def plain_name(name: Any) -> str:
    """Returns `name`. Raises: RunFolderError for a path, `..` or an empty name."""
    if not isinstance(name, str) or "/" in name or _leaves(name):
        raise RunFolderError(
            f"Expected the name of one file, got {name!r}. Do not use this folder: it may have been crafted to "
            "read or write files elsewhere."
        )
    return name


def _leaves(name: str) -> bool:
    """Returns whether a relative name, possibly with `/`, may lead out of its folder on any system."""
    parts = name.split("/")
    return bool({"", ".", ".."} & {*parts}) or any(letter in name for letter in "\\\0") or bool(DRIVE.match(name))


def _without_query(uri: str) -> tuple[str, str]:
    """Returns a URI without its query, and the query `?...`; a local path has no query."""
    place, mark, query = uri.partition("?") if "://" in uri else (uri, "", "")
    return place, mark + query


class Folder:
    """A folder on the local disk or on an object store.

    On a local disk every file is written as a `whole_file`. Object stores show a file only when it is complete. Names
    of files may come from another user's run, so every method raises RunFolderError for an absolute name, for a name
    with `..`, and for a symbolic link that leads out of the opened folder.

    Args:
        place: a local path, or a URI that pyarrow supports (`s3://bucket/run`, `file:///...`), with an optional query
            (`s3://bucket/run?region=eu-central-1`).
        filesystem: the pyarrow `FileSystem` of the path `place`; None: derived from `place`.

    Example:
        ```python
        folder = Folder("runs/notes").create()
        folder.write_json("note.json", {"seed": 0})
        print(folder.read_json("note.json"))
        ```
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
                with store_errors(self.uri):  # it may ask the store for its region
                    filesystem, self.path = fs.FileSystem.from_uri(self.uri)
            except pa.ArrowInvalid as error:
                raise InvalidInput(
                    f"Expected a path or a URI such as s3://bucket/run, got {place} ({error}). Choose another."
                ) from error
            if not self.path:
                raise InvalidInput(f"Expected a URI such as s3://bucket/run, got {place}. Name a bucket.")
        self._root = self.path
        self._disk = LocalDisk() if isinstance(filesystem, fs.LocalFileSystem) else ArrowFiles(filesystem)

    def _at(self, path: str, uri: str) -> Self:
        folder = copy(self)
        folder.path, folder.uri = path, uri
        if len(path) < len(self._root):
            folder._root = path  # a parent of the opened folder
        return folder

    def _place(self, name: str | None = None) -> str:
        """Returns the path of this folder, or of a file in it. Raises: RunFolderError outside of the opened folder."""
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
            f"Expected a name inside {self._root}, got {name!r}, which leads out of it. Do not use this folder: it may "
            "have been crafted to read or write files elsewhere. If you created a symbolic link there yourself, "
            "replace it by the files."
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

    @property
    def filesystem(self) -> Any:
        """The pyarrow `FileSystem` on which `path` is valid."""
        from pyarrow import fs

        return self._disk.filesystem if isinstance(self._disk, ArrowFiles) else fs.LocalFileSystem()

    def local_path(self, name: str | None = None) -> Path | None:
        """Returns the folder, or a file in it, as a local path; None on an object store."""
        path = self._place(name)
        return Path(path) if isinstance(self._disk, LocalDisk) else None

    def create(self) -> Self:
        self._disk.create(self._place())
        return self

    def check_writable(self) -> None:
        """Raises: NotWritable if the folder cannot be created or written on a local disk; it creates nothing."""
        self._disk.check_writable(self._place())

    def exists(self, name: str | None = None) -> bool:
        """Returns whether the folder, or the file or folder `name` in it, exists."""
        if name is None:
            return self._disk.kind(self._place()) == "folder"
        return self._disk.exists(self._place(name))

    def files(self) -> list[str]:
        """Returns the sorted names of the files directly in the folder, without temporary files."""
        entries = self._disk.entries(self._place())
        return sorted(name for name, kind in entries if kind == "file" and not name.startswith(TEMPORARY))

    def folders(self) -> list[str]:
        """Returns the sorted names of the folders directly in this folder."""
        return sorted(name for name, kind in self._disk.entries(self._place()) if kind == "folder")

    def set_aside(self) -> None:
        """Renames the folder to the first free name of `NAME-before-1`, `NAME-before-2`, ..."""
        number = 1
        while self._disk.kind(f"{self.path}-before-{number}"):
            number += 1
        self._disk.move(self.path, f"{self.path}-before-{number}")

    def sweep(self) -> None:
        """Deletes the unfinished files of a killed process in this folder and its subfolders, on a local disk."""
        if "://" not in self.uri:
            for unfinished in Path(self.path).rglob(f"{TEMPORARY}*"):
                unfinished.unlink(missing_ok=True)

    def remove(self) -> None:
        """Deletes the folder and its content."""
        self._disk.remove(self._place())

    def delete(self, name: str) -> None:
        self._disk.delete(self._place(name))

    def read_bytes(self, name: str) -> bytes:
        """Reads a file. Raises: MissingFile; UnreadableFile; DamagedFile for a folder or a pipe."""
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
        """Opens a stream that becomes the file `name` when the block ends; nothing changes if the block raises."""
        self._disk.create(self._place(name).rpartition("/")[0])
        if isinstance(self._disk, LocalDisk):
            with whole_file(self._place(name)) as stream:
                yield stream
        else:  # in memory first: closing a stream to an object store completes the file, even after an error
            content = io.BytesIO()
            yield content
            self._disk.write(self._place(name), content.getbuffer())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Writes a file atomically: after a crash it has the old or the new content."""
        with self.whole_file(name) as stream:
            stream.write(content)

    def lines(self, name: str) -> Lines:
        """Opens a file to which a `LineWriter` appends lines. After a kill its last line may be incomplete.

        On an object store the file is stored as several objects; all other methods list, read and delete these objects
        as one file.
        """
        return self._disk.lines(self._place(name))

    def copy_from(self, source: Self, names: Iterable[str] | None = None) -> None:
        """Copies files of another folder: all files, or `names`."""
        for name in source.files() if names is None else names:
            self.write_bytes(name, source.read_bytes(name))

    def sha256(self, name: str) -> str:
        return hashlib.sha256(self.read_bytes(name)).hexdigest()

    def read_json(self, name: str, kind: Any = dict[str, Any]) -> Any:
        """Reads a JSON document.

        Args:
            name: the name of the file.
            kind: a type that pydantic checks, for example a model; the document may have additional keys.

        Raises: DamagedFile if the document does not match `kind`; otherwise as `read_bytes`.
        """
        try:
            return _checked(self.read_bytes(name), kind)
        except ValidationError as error:
            raise DamagedFile.at(f"{self}/{name}", errors.first_problem(error)) from error

    def write_json(self, name: str, value: Any) -> None:
        self.write_bytes(name, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())

    def read_parquet(self, name: str, *columns: str) -> "pd.DataFrame":
        """Reads a table. Raises: DamagedFile if it is not a table or lacks one of the columns, or as `read_bytes`."""
        import pandas as pd

        content = io.BytesIO(self.read_bytes(name))
        try:
            table = pd.read_parquet(content)
        except Exception as error:  # of Arrow, pandas or JSON in the file
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
    """Parses a JSON document. Raises: ValidationError if it does not match `kind`, or is nested too deeply."""
    _adapter(kind).validate_json(content, strict=True)
    return json.loads(content)  # the complete document: the check drops keys that `kind` does not have
