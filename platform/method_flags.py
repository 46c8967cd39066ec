"""The short flags of a method, out of its configuration: their types, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from archray.platform.field_help import field_kinds, meaning_of
from archray.settings import REPEATED


@dataclass(frozen=True)
class Flag:
    """A short flag out of a configuration."""

    name: str  # as in Python, `final_epochs`
    path: str  # of the configuration, `final.epochs`
    type: Any  # int, float, str or list[str]: how the command line reads it; the configuration checks it
    help: str  # what the field means, and what it may be


def flag_of(config: type[BaseModel], name: str, path: str) -> Flag | None:
    """The flag `name` of the field at `path` of a configuration; None if it has no such field."""
    *outer, last = path.split(".")
    model: Any = config
    for key in outer:
        if key not in model.model_fields:
            return None
        model = model.model_fields[key].annotation
    if last not in model.model_fields:
        return None
    field = model.model_fields[last]
    kinds = field_kinds(field.annotation)
    kind: Any = list[str] if REPEATED in field.metadata else kinds[0] if kinds in ([int], [float]) else str
    return Flag(name, path, kind, meaning_of(model, last))


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """The value at a path of a nested dictionary, of settings their name, of a list `a, b`.

    Raises: KeyError if there is none.
    """
    value: Any = config
    for key in path.split("."):
        value = value[key]
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return value.get("name") if isinstance(value, Mapping) else value
