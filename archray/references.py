"""Load objects of archray and of users' code by reference: `module:attribute` or `path.py:attribute`."""

import hashlib
import importlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from archray.errors import ArchrayError, InvalidInput, UnknownName, is_out_of_memory
from archray.file_modules import add_package, code_files, module_stem
from archray.files import local_path
from archray.objects import object_file

# Installed packages, the standard library and the import machinery: the cause of an error there is the calling line.
INSTALLED = (*{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}, "<")


def is_reference(name: str) -> bool:
    """Returns whether `name` has the form `module:attribute` or `path.py:attribute`."""
    place, _, attribute = name.rpartition(":")
    return bool(place) and attribute.isidentifier()


def split_reference(reference: str) -> tuple[str, str]:
    """Splits `"path.py:Attribute"` into `("path.py", "Attribute")`. Raises: UnknownName for another form."""
    if not is_reference(reference):
        raise UnknownName(f"Expected module:attribute or path.py:attribute, got {reference!r}")
    place, _, attribute = reference.rpartition(":")
    return place, attribute


def reference_file(reference: str) -> Path | None:
    """Returns the file of `path.py:attribute`, or of an object of this process (see `objects`); None for a module."""
    place, _ = split_reference(reference)
    return Path(place) if place.endswith(".py") else object_file(reference)


def load_reference(reference: str) -> Any:
    """Loads the object that `module:attribute` or `path.py:attribute` names.

    A file is imported once per process, in a package with a hash of its content. It can import modules of its folder,
    see `code_files`.

    Raises: UnknownName if the module, the file or the attribute does not exist, or if the import fails; an
    ArchrayError that the import raises; InvalidInput as `code_files`.

    Example:
        ```python
        grad_sign = load_reference("examples/own_metric.py:grad_sign")
        ```
    """
    place, attribute = split_reference(reference)
    if (file := reference_file(reference)) is not None:
        module = _import_file(file, reference)
    else:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UnknownName(
                f"{reference!r} names the module {place!r}, which cannot be imported ({error}). "
                "Give a path ending in .py, or install the module on every node."
            ) from error
        except (Exception, SystemExit) as error:
            raise _import_failed(reference, error) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UnknownName(f"{place!r} has no {attribute!r}; it has {', '.join(public)}") from None


def file_hashes(path: Path) -> dict[str, str]:
    """Returns the SHA-256 of each of a user's `code_files`, by name."""
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in code_files(path).items()}


def file_package(path: Path) -> str:
    """Returns the package of a user's file: its stem, and 8 digits of a hash of its `code_files`."""
    content = hashlib.sha256("\n".join(f"{name} {sha256}" for name, sha256 in file_hashes(path).items()).encode())
    return f"{module_stem(path)}_{content.hexdigest()[:8]}"


def file_module_name(path: Path) -> str:
    """Returns the module name of a user's file, `own_model_01234567.own_model`."""
    return f"{file_package(path)}.{module_stem(path)}"


def source_name(module: str) -> str:
    """Returns the name of the user's file of a module: `own_model.py`; other modules' names are returned unchanged."""
    package, _, name = module.partition(".")
    return f"{name.replace('.', '/')}.py" if name and re.search(r"_[0-9a-f]{8}$", package) else module


def worker_reference(reference: str) -> str:
    """Converts `path.py:attribute` to `module:attribute`, which workers, and this process after a load, can load.

    Other names are returned unchanged.
    """
    if not is_reference(reference):
        return reference
    file = reference_file(reference)
    return reference if file is None else f"{file_module_name(file)}:{split_reference(reference)[1]}"


def _import_file(path: Path, reference: str) -> ModuleType:
    if not local_path(path).is_file():
        raise UnknownName(f"{reference!r} names the file {path}, which does not exist. Check the path.")
    package = file_package(path)
    add_package(sys.modules.setdefault(package, ModuleType(package)), path)  # the latest of several equal copies
    try:
        return importlib.import_module(f"{package}.{module_stem(path)}")
    except (Exception, SystemExit) as error:
        raise _import_failed(reference, error) from error


def call_reference(
    reference: str,
    function: Callable[..., Any],
    *arguments: Any,
    raises: type[Exception] = InvalidInput,
    **options: Any,
) -> Any:
    """Calls a user's function or class, and returns its result.

    Args:
        reference: the name of the function in an error.
        function: the function or class.
        arguments, options: its arguments.
        raises: the type of the error to raise.

    Raises: `raises`, with the user's line, for any error except an ArchrayError, and for a call of `sys.exit`. An
    out-of-memory error is raised unchanged.
    """
    try:
        return function(*arguments, **options)
    except ArchrayError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise raises(f"{reference!r} failed when archray called it: {_described(error)}. Fix the function.") from error


def _import_failed(reference: str, error: Exception | SystemExit) -> ArchrayError:
    """Returns the error to raise for a failed import; it names the user's line."""
    if isinstance(error, ArchrayError):
        return error
    advice = "Remove the call of sys.exit" if isinstance(error, SystemExit) else "Fix the import"
    return UnknownName(f"{reference!r} cannot be imported: {_described(error)}. {advice}.")


def _described(error: Exception | SystemExit) -> str:
    """Returns an error of the user's code in one line: its type, its text and its location."""
    kind, reason = type(error).__name__, " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        return f"{kind}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = list(traceback.walk_tb(error.__traceback__))[1:]  # without the call in this file
    lines = [
        f"{frame.f_code.co_filename}, line {line}"
        for frame, line in frames
        if not frame.f_code.co_filename.startswith(INSTALLED)
        and frame.f_globals.get("__name__", "").partition(".")[0] != "archray"  # also if it runs from a clone
    ]
    return (f"{kind}: {reason}" if reason else kind) + (f" ({lines[-1]})" if lines else "")
