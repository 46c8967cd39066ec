"""Functions, classes and instances of a Python session as files, which workers and later processes can load."""

import base64
import importlib.metadata
import inspect
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from archray.errors import InvalidInput

PLACE = "object"  # of the references to these objects, `object:space:network`
LIMIT_MIB = 10  # of a pickle: code and settings; weights belong in a file of their own
FILE = '''"""{title}

archray wrote this file. It pickles {name} with everything that it uses and that no installed package contains.
{source}"""

import base64
import pickle
import sys

if sys.version_info[:2] != {version}:
    raise ImportError("Expected Python {python}, which pickled this object, got " + sys.version.split()[0])
{name} = pickle.loads(base64.b85decode("{pickled}"))
'''

_FILES: dict[str, Path] = {}  # reference -> the file of the latest object of this kind and name


def object_file(reference: str) -> Path | None:
    """Returns the file of an object that `reference_of` wrote in this process; None for another reference."""
    return _FILES.get(reference)


def reference_of(value: Any, kind: str, code: Any = None) -> str:
    """Returns a reference to a function, a class or an instance, which workers and later processes can load.

    For a function or a class at the top level of a module: `path.py:NAME`, or `module:NAME` if the module is installed.
    For other objects (instances, closures, objects of a notebook or a script): `object:KIND:NAME`, with a file that
    contains a pickle. The objects of installed packages are pickled by name, all others by value.

    Args:
        kind: the word for the object in an error, and the name of an object without an identifier as its name.
        code: function or class whose name and source are those of the object; None: the object.

    Raises: InvalidInput if the object cannot be pickled, or if the pickle is larger than 10 MiB.
    """
    code = value if code is None else code
    name, module = getattr(code, "__name__", kind), sys.modules.get(getattr(code, "__module__", ""))
    if module is not None and getattr(module, name, None) is value and module.__name__ != "__main__":
        file = getattr(module, "__file__", None) or ""
        if _is_installed(module):
            return f"{module.__name__}:{name}"
        if "." not in module.__name__ and file.endswith(".py"):
            return f"{file}:{name}"
    name = name if name.isidentifier() else kind
    content = _pickle_by_value(value, kind)
    if len(content) > LIMIT_MIB * 2**20:
        raise InvalidInput(
            f"Expected a {kind} of at most {LIMIT_MIB} MiB, got {len(content) / 2**20:.0f} MiB with the objects that "
            "it uses. Let the function load large objects, such as weights, from a file."
        )
    text = FILE.format(
        title=f"The {kind} {name} of a Python session.",
        name=name,
        source=_source(code),
        version=tuple(sys.version_info[:2]),
        python=".".join(map(str, sys.version_info[:2])),
        pickled=base64.b85encode(content).decode(),  # without quotes and backslashes
    )
    folder = Path(tempfile.mkdtemp(dir=_scratch().name))
    (file := folder / f"{name}.py").write_text(text, encoding="utf-8")
    reference = f"{PLACE}:{kind}:{name}"
    _FILES[reference] = file
    return reference


def shown(reference: str) -> str:
    """Returns a reference for readers: the name of an object of a Python session, and any other reference unchanged."""
    return reference.rpartition(":")[2] if reference.startswith(f"{PLACE}:") else reference


def is_object(value: Any) -> bool:
    """Returns whether an option is a function, a class or an entry of a registry, instead of its name."""
    return callable(value) or callable(getattr(value, "function", None))


def named(value: Any, kind: str) -> Any:
    """Returns the reference of such an object, and any other value unchanged. Raises: InvalidInput as `reference_of`.

    Args:
        kind: as in `reference_of`.
    """
    return reference_of(value, kind, getattr(value, "function", None)) if is_object(value) else value


def source_in(content: bytes) -> bytes:
    """Returns the part of a file of `reference_of` before the pickle: equal if the code of the objects is equal."""
    return content.partition(b"\nimport base64\n")[0]


def _source(value: Any) -> str:
    """Returns the lines of a function or class, for readers of the file; empty if Python does not have them."""
    try:
        lines = inspect.getsource(value).rstrip()
    except (OSError, TypeError):
        return ""
    quoted = lines.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f"\nIts source, which archray does not execute:\n\n{quoted}\n"


def _pickle_by_value(value: Any, kind: str) -> bytes:
    """Pickles an object. Workers lack the modules of the user, so that their objects are pickled by value."""
    from ray import cloudpickle  # 1 s, and this module is imported with every command

    by_value = [
        module for name, module in list(sys.modules.items()) if name != "__main__" and not _is_installed(module)
    ]
    for module in by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:  # pickle raises errors of many types
        raise InvalidInput(
            f"Expected a {kind} that can be pickled, got {value!r} ({type(error).__name__}: {error}). Write it to a "
            "file, and name it as path.py:NAME."
        ) from error
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return content


def _is_installed(module: ModuleType) -> bool:
    """Returns whether other processes can import a module: it is in an installed package or the standard library."""
    file = getattr(module, "__file__", None)
    top = getattr(module, "__name__", "").partition(".")[0]
    if file is None or sys.modules.get(getattr(module, "__name__", "")) is not module:
        return True
    places = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return file.startswith(places) or top in {"archray", *_installed_packages()}


@cache
def _installed_packages() -> frozenset[str]:
    """Returns the top-level modules of installed distributions, for those that are installed from their sources."""
    return frozenset(importlib.metadata.packages_distributions())


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="archray-")  # deleted at the end of the process
