"""What the fields of a configuration mean, out of the docstrings of its models, and what they may be."""

from __future__ import annotations

import inspect
import re
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from archray.settings import RegisteredSettings

_ENTRY = re.compile(r"^ {4}((?:\w+, )*\w+): (.*)$")  # `lr, momentum: what they are`
_SECTION = re.compile(r"^(?:Fields|Attributes|Args):$")


def is_family(kind: Any) -> bool:
    """Whether a field of this type holds settings whose `name` says which class they are of."""
    return isinstance(kind, type) and issubclass(kind, RegisteredSettings)


def field_kinds(annotation: Any) -> list[Any]:
    """The types and literal values that a field may have, None left out."""
    origin = get_origin(annotation)
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, UnionType):
        return [kind for each in get_args(annotation) for kind in field_kinds(each)]
    if hasattr(annotation, "__metadata__"):  # Annotated
        return field_kinds(annotation.__origin__)
    return [] if annotation in (None, NoneType) else [annotation if isinstance(annotation, type) else str]


def description_of(model: type[BaseModel], field: str) -> str:
    """What a model's docstring, or that of a model it derives from, says of a field; empty if none does."""
    for each in model.__mro__:
        entries = field_entries(each.__doc__ or "")
        if field in entries:
            text = entries[field]
            return text if text[1:2] in ",." else text[:1].upper() + text[1:]  # `n, members` is a symbol
    return ""


def meaning_of(model: type[BaseModel], field: str) -> str:
    """What a model's docstring says of a field, and the values it may have, where they can be listed."""
    kinds = field_kinds(model.model_fields[field].annotation)
    choices = [kind for kind in kinds if not isinstance(kind, type)]
    choices += [name for kind in kinds if is_family(kind) for name in kind.registry.names()]
    told = f"One of {', '.join(map(str, choices))}." if len(choices) > 1 else ""
    return " ".join(filter(None, [description_of(model, field), told]))


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
