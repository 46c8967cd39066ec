"""The command line's short flags, out of a configuration: their type, what they mean, what they are by default.

What a field means stands in one place, the `Fields:` (or `Attributes:`, `Args:`) of its model's docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from archray.settings import RegisteredSettings

_ENTRY = re.compile(r"^ {4}((?:\w+, )*\w+): (.*)$")  # `lr, momentum: what they are`
_SECTION = re.compile(r"^(?:Fields|Attributes|Args):$")


@dataclass(frozen=True)
class Flag:
    """A short flag.

    Attributes:
        name: as in Python, `final_epochs`.
        path: of the configuration, `final.epochs`.
        type: int, float or str: how the command line reads it; the configuration checks it.
        help: what the field means.
        metavar: its type or its values, as the help shows them.
    """

    name: str
    path: str
    type: type
    help: str
    metavar: str


def flag_of(config: type[BaseModel], name: str, path: str) -> Flag | None:
    """The flag `name` of the field at `path` of a configuration; None if it has no such field."""
    *outer, last = path.split(".")
    model: Any = config
    for key in outer:
        field = model.model_fields.get(key)
        model = None if field is None else field.annotation
        if model is None:
            return None
    if last not in model.model_fields:
        return None
    kinds = _kinds(model.model_fields[last].annotation)
    values = [kind for kind in kinds if not isinstance(kind, type)]
    values += [name for kind in kinds if _is_family(kind) for name in kind.registry.names()]
    types = [kind for kind in kinds if isinstance(kind, type) and not _is_family(kind)]
    read_as = types[0] if types in ([int], [float]) and not values else str
    names = [{int: "INTEGER", float: "NUMBER", bool: "true|false"}.get(kind, "TEXT") for kind in types]
    return Flag(name, path, read_as, description_of(model, last), "|".join([*names, *map(str, values)]))


def _is_family(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, RegisteredSettings)


def _kinds(annotation: Any) -> list[Any]:
    """The types and literal values that a field may have, None left out."""
    origin = get_origin(annotation)
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, UnionType):
        return [kind for each in get_args(annotation) for kind in _kinds(each)]
    if hasattr(annotation, "__metadata__"):  # Annotated
        return _kinds(annotation.__origin__)
    return [] if annotation in (None, NoneType) else [annotation if isinstance(annotation, type) else str]


def description_of(model: type[BaseModel], field: str) -> str:
    """What a model's docstring, or that of a model it derives from, says of a field; empty if none does."""
    for each in model.__mro__:
        entries = field_entries(each.__doc__ or "")
        if field in entries:
            text = entries[field]
            return text if text[1:2] in ",." else text[:1].upper() + text[1:]  # `n, members` is a symbol
    return ""


def field_entries(docstring: str) -> dict[str, str]:
    """The entries of a docstring's `Fields:`, by their names, each on one line."""
    entries: dict[str, str] = {}
    inside, names = False, ""
    for line in inspect.cleandoc(docstring).splitlines():
        if _SECTION.match(line):
            inside = True
        elif line and not line.startswith(" "):
            inside = False
        elif inside and (match := _ENTRY.match(line)):
            names = match[1]
            entries |= dict.fromkeys(names.split(", "), match[2])
        elif inside and line.strip() and names:
            entries |= {name: f"{entries[name]} {line.strip()}" for name in names.split(", ")}
    return entries


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """The value at a path of a nested dictionary, of settings their name; None where there is none."""
    for key in path.split("."):
        config = config.get(key) if isinstance(config, Mapping) else None  # type: ignore[assignment]
    return config.get("name") if isinstance(config, Mapping) else config
