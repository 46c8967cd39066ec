"""Named things (spaces, data sets, proxies, methods), and things of the user's by reference."""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, overload

from archray.errors import UnknownName

T = TypeVar("T")
Decorated = TypeVar("Decorated")  # keeps its own type, which is a T or a subclass of one


class Registry(Generic[T]):
    """A mapping from names to things of one kind that refuses duplicates and lists what it has.

    Args:
        kind: what is registered, as it reads in an error: `"space"`, `"proxy"`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    @overload
    def register(self, name: str) -> Callable[[Decorated], Decorated]: ...

    @overload
    def register(self, name: str, entry: T) -> T: ...

    def register(self, name: str, entry: Any = None) -> Any:
        """Adds `entry` under `name`; without an entry, a decorator that adds what it decorates.

        Raises: ValueError if the name is taken.
        """
        if entry is None:
            return partial(self.register, name)
        if name in self:
            raise ValueError(f"the {self.kind} {name!r} is registered already; choose another name")
        self._entries[name] = entry
        return entry

    def get(self, name: str) -> T:
        """The entry called `name`. Raises: UnknownName as `check`."""
        self.check(name)
        return self._entries[name]

    def check(self, name: str) -> None:
        """Raises: UnknownName for a name it does not hold, with the nearest of the known names, and all of them."""
        if name not in self:
            near = difflib.get_close_matches(name, self.names(), n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise UnknownName(f"there is no {self.kind} {name!r}; {meant}choose one of {', '.join(self.names())}")

    def names(self) -> list[str]:
        return sorted(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


class CatalogueRegistry(Registry[T]):
    """A registry that knows an entry by its name, a summary and where it is, and imports it when it is asked for."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self._places: dict[str, tuple[str, str]] = {}  # name -> its summary, and its place

    def declare(self, name: str, summary: str, place: str) -> None:
        """Adds what lies at `place`, a reference `module:attribute`, and is not imported before it is asked for.

        Raises: ValueError if the name is taken.
        """
        if name in self:
            raise ValueError(f"the {self.kind} {name!r} is registered already; choose another name")
        self._places[name] = summary, place

    def get(self, name: str) -> T:
        self.check(name)
        if name not in self._entries:
            self._entries[name] = load_reference(self._places[name][1])
        return self._entries[name]

    def summary(self, name: str) -> str:
        """What was declared of it; empty for one that was registered by hand. Raises: UnknownName as `check`."""
        self.check(name)
        return self._places[name][0] if name in self._places else ""

    def names(self) -> list[str]:
        return sorted({*self._entries, *self._places})

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._places


class PackageRegistry(Registry[T]):
    """A registry that a package fills: its module `snip` holds the entry `snip`, and is imported when it is asked for.

    To add an entry is to add a file: it registers the entry, or calls it like itself. Names, and summaries out of the
    modules' docstrings, cost no import of them.

    Args:
        package: the dotted name of the package, whose modules are all entries.
        separator: what names have where the modules have an underscore.
    """

    def __init__(self, kind: str, package: str, separator: str = "_") -> None:
        super().__init__(kind)
        self.package, self.separator = package, separator

    def register(self, name: str, entry: Any = None) -> Any:
        own = entry is not None and getattr(entry, "__module__", None) == self._module(name)
        if own and name not in self._entries:
            self._entries[name] = entry
            return entry
        return super().register(name, entry)

    def get(self, name: str) -> T:
        self.check(name)
        if name not in self._entries:
            module = importlib.import_module(self._module(name))
            if name not in self._entries:
                self._entries[name] = getattr(module, name)
        return self._entries[name]

    def summary(self, name: str) -> str:
        """The first sentence of the docstring of the entry's module; empty for one that was registered by hand."""
        self.check(name)
        if name not in self._modules:
            return ""
        spec = importlib.util.find_spec(self._module(name))
        assert spec is not None and spec.origin is not None  # a module that was listed, from a file
        text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
        return re.split(r"\.(?:\s|$)", text, maxsplit=1)[0].replace("\n", " ")

    def names(self) -> list[str]:
        return sorted({*self._entries, *self._modules})

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._modules

    @cached_property
    def _modules(self) -> frozenset[str]:
        folders = importlib.import_module(self.package).__path__
        return frozenset(module.name.replace("_", self.separator) for module in pkgutil.iter_modules(folders))

    def _module(self, name: str) -> str:
        return f"{self.package}.{name.replace(self.separator, '_')}"


def import_modules(package: str) -> None:
    """Imports every module of a package: what registers itself in one of its files is then known."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


def lazy_attributes(package: str, **names: tuple[str, ...]) -> Callable[[str], Any]:
    """A package's `__getattr__`, for names of its modules that are loaded when asked for; none may be a module's."""

    def attribute(name: str) -> Any:
        for module, held in names.items():
            if name in held:
                return getattr(importlib.import_module(f"{package}.{module}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return attribute


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
    the same stem never meet. Raises: UnknownName if the module, the file or the attribute does not exist.
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
    except BaseException:
        del sys.modules[name]
        raise
    return module
