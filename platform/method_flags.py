"""The short flags of a method, out of its configuration: their types, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from archray.platform.field_help import description_of, field_kinds, is_family


@dataclass(frozen=True)
class Flag:
    """A short flag out of a configuration."""

    name: str  # as in Python, `final_epochs`
    path: str  # of the configuration, `final.epochs`
    type: type  # int, float or str: how the command line reads it; the configuration checks it
    help: str  # what the field means; it stands in the `Fields:` (or `Attributes:`, `Args:`) of its model's docstring
    metavar: str  # its type or its values, as the help shows them


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
    kinds = field_kinds(model.model_fields[last].annotation)
    values = [kind for kind in kinds if not isinstance(kind, type)]
    values += [name for kind in kinds if is_family(kind) for name in kind.registry.names()]
    types = [kind for kind in kinds if isinstance(kind, type) and not is_family(kind)]
    read_as = types[0] if types in ([int], [float]) and not values else str
    names = [{int: "INTEGER", float: "NUMBER", bool: "true|false"}.get(kind, "TEXT") for kind in types]
    return Flag(name, path, read_as, description_of(model, last), "|".join([*names, *map(str, values)]))


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """The value at a path of a nested dictionary, of settings their name. Raises: KeyError if there is none."""
    for key in path.split("."):
        config = config[key]
    return config.get("name") if isinstance(config, Mapping) else config
