"""Registries of named entries: spaces, data sets, proxies, methods. For custom entries see `references`."""

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, Generic, TypeVar, overload

from archray.errors import InvalidInput, UnknownName
from archray.references import load_reference, split_reference

T = TypeVar("T")
Decorated = TypeVar("Decorated")  # keeps its own type, which is a T or a subclass of one


class Registry(Generic[T]):
    """A mapping from names to entries of one kind. It rejects duplicates, and its errors list the names.

    Args:
        kind: the word for an entry in an error: `"space"`, `"proxy"`.

    Example:
        ```python
        LOSSES = Registry("loss")


        @LOSSES.register("squared")
        def squared(x):
            return x**2


        assert LOSSES.get("squared") is squared
        ```
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    @overload
    def register(self, name: str) -> Callable[[Decorated], Decorated]: ...

    @overload
    def register(self, name: str, entry: T) -> T: ...

    def register(self, name: str, entry: Any = None) -> Any:
        """Adds `entry` under `name`. Without an entry it returns a decorator that adds the decorated object.

        Raises: ValueError if the name is taken.
        """
        if entry is None:
            return partial(self.register, name)
        self._reject_duplicate(name)
        self._entries[name] = entry
        return entry

    def get(self, name: str) -> T:
        """Returns the entry `name`. Raises: UnknownName as `check`."""
        self.check(name)
        return self._entries[name]

    def check(self, name: str) -> None:
        """Raises: UnknownName for a name that is not registered; the message lists the nearest name and all names."""
        if name not in self:
            near = difflib.get_close_matches(str(name), self.names(), n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            if str(name).endswith(".py"):
                hint = f"did you mean '{name}:NAME', with the name of a class or function in the file? "
            raise UnknownName(f"there is no {self.kind} {name!r}; {hint}choose one of {', '.join(self.names())}")

    def names(self) -> list[str]:
        return sorted(self._entries)

    def registered(self) -> dict[str, T]:
        """Returns the registered entries by name, in the order of registration."""
        return dict(self._entries)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _reject_duplicate(self, name: str) -> None:
        if name in self:
            raise ValueError(f"The {self.kind} {name!r} is already registered. Choose another name.")


class CatalogRegistry(Registry[T]):
    """A registry with the name, the summary and the reference of each entry; `get` imports the entry.

    Args:
        kind: the word for an entry in an error: `"method"`.

    Example:
        ```python
        METHODS = CatalogRegistry("method")
        METHODS.declare("mine", "my method", "my_package.method:METHOD")
        print(METHODS.summary("mine"))  # my_package is imported by METHODS.get("mine")
        ```
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self._places: dict[str, tuple[str, str]] = {}  # name -> its summary and its reference

    def declare(self, name: str, summary: str, place: str) -> None:
        """Adds the entry with the reference `place`, `module:attribute`, which `get` imports.

        Raises: ValueError if the name is taken.
        """
        self._reject_duplicate(name)
        self._places[name] = summary, place

    def summary(self, name: str) -> str:
        """Returns the declared summary; empty for an entry without a summary. Raises: UnknownName as `check`."""
        self.check(name)
        return self._places[name][0] if name in self._places else ""

    def names(self) -> list[str]:
        return sorted({*self._entries, *self._places})

    def get(self, name: str) -> T:
        self.check(name)
        if name not in self._entries:
            self._entries[name] = load_reference(self._places[name][1])
        return self._entries[name]


class LazyModule(ModuleType):
    """A module that is imported on the first use of an attribute, for files that register entries without torch.

    Use it in the `else` branch of `if TYPE_CHECKING`, where the module is imported under the same name.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def load_function(reference: str, entry: type, count: int, arguments: str) -> Any:
    """Loads the custom function that a reference names: an `entry` of a registry, or a function of `count` arguments.

    Args:
        reference: `module:attribute` or `path.py:attribute`.
        entry: the type of a registry's entries.
        count: the number of arguments.
        arguments: the arguments in words, for an error.

    Raises: UnknownName if the reference does not resolve; InvalidInput for any other object.
    """
    loaded, name = load_reference(reference), split_reference(reference)[1]
    if isinstance(loaded, entry):
        return loaded
    if isinstance(loaded, type):
        kind = f"the class {loaded.__name__}"
    elif not callable(loaded):
        kind = type(loaded).__name__
    elif not takes(loaded, count):
        kind = f"{name}{inspect.signature(loaded)}"
    else:
        return loaded
    raise InvalidInput(f"Expected {reference!r} to be a function of {arguments}, got {kind}")


def takes(function: Callable[..., Any], count: int) -> bool:
    """Returns whether `function` can be called with `count` positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a function of a compiled module has no signature
        return True
    return True


def import_modules(package: str) -> None:
    """Imports every module of a package, so that their entries register themselves."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


def lazy_attributes(package: str, **names: tuple[str, ...]) -> Callable[[str], Any]:
    """Returns a package's `__getattr__`, which imports the module of a name on first use.

    No name may equal the name of a module.
    """

    def attribute(name: str) -> Any:
        for module, attributes in names.items():
            if name in attributes:
                return getattr(importlib.import_module(f"{package}.{module}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return attribute
