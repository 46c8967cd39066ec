"""Things of the user's, and of archray's, by reference: `module:attribute` or `path.py:attribute`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from archray.errors import ArchrayError, UnknownName


def is_reference(name: str) -> bool:
    """Whether `name` has the form `module:attribute` or `path.py:attribute`."""
    place, _, attribute = name.rpartition(":")
    return bool(place) and attribute.isidentifier()


def split_reference(reference: str) -> tuple[str, str]:
    """`"path.py:Attribute"` -> `("path.py", "Attribute")`. Raises: UnknownName if it has no such form."""
    if not is_reference(reference):
        raise UnknownName(f"expected module:attribute or path.py:attribute, got {reference!r}")
    place, _, attribute = reference.rpartition(":")
    return place, attribute


def load_reference(reference: str) -> Any:
    """The object that `module:attribute` or `path.py:attribute` names.

    A file is imported under a name made of its stem and the hash of its text, once per process: two files of
    the same stem never meet.

    Raises: UnknownName if the module, the file or the attribute does not exist, or the import fails; an ArchrayError
        that the import raises.
    """
    place, attribute = split_reference(reference)
    if place.endswith(".py"):
        module = _import_file(Path(place), reference)
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UnknownName(
                f"{reference!r} names the module {place!r}, which cannot be imported ({error}); "
                "give a path ending in .py, or install the module on every node"
            ) from error
        except Exception as error:
            raise _import_failed(reference, error) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UnknownName(f"{place!r} has no {attribute!r}; it has {', '.join(public)}") from None


def file_module_name(path: Path) -> str:
    """The module name a user's file is imported under: its stem and the first 8 digits of its SHA-256."""
    return f"{path.stem}_{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"


def worker_reference(reference: str) -> str:
    """`path.py:attribute` as workers can load it: `module:attribute`, whatever their current folder and files.

    Other names are returned as they are. In this process, too, the result loads once the file has been loaded.
    """
    if not is_reference(reference):
        return reference
    place, attribute = split_reference(reference)
    return f"{file_module_name(Path(place))}:{attribute}" if place.endswith(".py") else reference


def _import_file(path: Path, reference: str) -> ModuleType:
    if not path.is_file():
        raise UnknownName(f"{reference!r} names the file {path}, which does not exist; check the path")
    name = file_module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a path that ends in .py always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise _import_failed(reference, error) from error
    return module


def _import_failed(reference: str, error: Exception) -> ArchrayError:
    """The error to raise instead of one that an import raised: it names the line."""
    if isinstance(error, ArchrayError):
        return error
    if isinstance(error, SyntaxError):
        reason, place = error.msg, f"{error.filename}, line {error.lineno}"
    else:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason, place = str(error), f"{frame.filename}, line {frame.lineno}"
    return UnknownName(f"{reference!r} cannot be imported: {type(error).__name__}: {reason} ({place}); fix the import")
