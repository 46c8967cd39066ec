"""The configuration of a run: the options all methods share, and how presets, a file and flags make one."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator

from archray.cluster.cluster_settings import ClusterSettings
from archray.cluster.resources import ResourceSettings
from archray.errors import InvalidInput, problem_words
from archray.files import local_path
from archray.platform.field_help import field_kinds, is_family
from archray.settings import Seed, Settings
from archray.trainables.data import DataSettings
from archray.trainables.spaces.named_tables import absolute_name

Model = TypeVar("Model", bound=BaseModel)
SHOWN = 200  # characters of a wrong value in an error


class SearchConfig(Settings):
    """What every method is told. A method's own configuration adds to it and repeats nothing.

    Fields:
        method: the recipe, by its registered name.
        space: a registered space, a reference to one of the user's, or table:FILE.
        data: what the architectures are trained on.
        seed: the root of every random choice of the run.
        repeats: whole runs, in folders `repeat-00`, ...; repeat r has the root seed `seed + r`.
        resources: what one trial takes, and how many run at the same time.
        cluster: the Ray to run on.
    """

    kind: ClassVar[str] = "method"  # what `method` names
    method: str
    space: str = "nasbench201"
    data: DataSettings = DataSettings()
    seed: Seed = 0
    repeats: int = Field(1, ge=1)
    resources: ResourceSettings = ResourceSettings()
    cluster: ClusterSettings = ClusterSettings()

    @field_validator("space")
    @classmethod
    def _absolute(cls, space: str) -> str:
        """A run may be resumed from another folder, and workers have theirs."""
        return absolute_name(space)

    def references(self) -> dict[str, str]:
        """What may name a file of the user's, by its role: the run keeps a copy of it."""
        return {"space": self.space, "data": self.data.name}

    @property
    def begins_without_data(self) -> bool:
        """Whether its first stages open no data set; those stages say so themselves."""
        return False

    def check(self) -> None:
        """What the types do not say; called before Ray starts. Raises: ArchrayError."""

    def check_extends(self, before: SearchConfig) -> None:
        """Whether a run with the configuration `before` can go on with this one. Raises: InvalidInput."""


def merge(*layers: Mapping[str, Any], families: Collection[str] = (), prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries laid over each other: a later layer wins, key by key.

    A name laid over the settings of what it names (`"adam"` over `{"name": "adam", "lr": 0.1}`) leaves them.

    Args:
        families: the paths of settings that are told apart by their `name`: those of another name are replaced whole.
        prefix: of the paths of these layers.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below, path = merged.get(key), f"{prefix}{key}"  # a key of YAML may be a number
            if isinstance(below, dict) and isinstance(value, str) and below.get("name") == value:
                continue
            if not isinstance(below, dict) or not isinstance(value, Mapping):
                merged[key] = value
            elif path in families and value.get("name", below.get("name")) != below.get("name"):
                merged[key] = dict(value)
            else:
                merged[key] = merge(below, value, families=families, prefix=f"{path}.")
    return merged


def family_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The paths of the fields that hold settings told apart by their `name`: `supernet.relaxation`."""
    for name, field in model.model_fields.items():
        for kind in field_kinds(field.annotation):
            if is_family(kind):
                yield prefix + name
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from family_paths(kind, f"{prefix}{name}.")


def nest(path: str, value: Any) -> dict[str, Any]:
    """`nest("train.epochs", 3)` is `{"train": {"epochs": 3}}`."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one dictionary: `{"train": {"lr": 0.1}}` is `{"train.lr": 0.1}`."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return leaves


def read_config_file(place: str | Path) -> dict[str, Any]:
    """A configuration file (`.toml`, `.json`, `.yaml`) as a dictionary. Raises: InvalidInput."""
    folder, path = local_path(place).is_dir(), Path(place)
    if folder:
        raise InvalidInput(f"expected a configuration file, got the folder {path}; name the file in it")
    if not path.is_file():
        raise InvalidInput(f"there is no configuration file {path}; check the path given to --config")
    readers: dict[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".json": partial(json.loads, object_pairs_hook=_distinct),
        ".yaml": partial(yaml.load, Loader=_Distinct),
        ".yml": partial(yaml.load, Loader=_Distinct),
    }
    reader = readers.get(path.suffix)
    if reader is None:
        raise InvalidInput(f"{path}: expected a file ending in {', '.join(readers)}, got {path.suffix or 'no ending'}")
    try:
        content = reader(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise InvalidInput(f"{path} is not valid {path.suffix[1:]}: {' '.join(str(error).split())}") from error
    if content is None and path.suffix != ".json":  # only comments
        return {}
    if not isinstance(content, dict):
        raise InvalidInput(f"{path}: expected keys and values at the top level, got a {type(content).__name__}")
    return content


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Raises: ValueError if a key comes twice, of which JSON and YAML would take the last."""
    keys = [key for key, _ in pairs]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"the key {twice[0]!r} comes more than once; remove all but one")
    return dict(pairs)


class _Distinct(yaml.SafeLoader):
    """YAML, without mappings in which a key comes twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]  # a merged key is to be replaced
        _distinct([(self.construct_object(key, deep=True), None) for key in own if isinstance(key, yaml.ScalarNode)])
        return super().construct_mapping(node, deep)


def parse_assignment(text: str) -> dict[str, Any]:
    """`"train.lr=0.05"` as a nested dictionary; the value is read as YAML. Raises: InvalidInput."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise InvalidInput(f"expected key.of.the.option=value, got {text!r}; for example train.lr=0.05")
    try:
        return nest(path.strip(), yaml.safe_load(value))
    except (ValueError, yaml.YAMLError) as error:  # ValueError: an integer of thousands of digits
        reason = " ".join(str(error).split())
        raise InvalidInput(f"{path.strip()}: expected a value as in YAML, got {_shortened(value)} ({reason})") from None


def validate(model: type[Model], values: Mapping[str, Any]) -> Model:
    """`values` as a configuration. Raises: InvalidInput that names every wrong key and what would be right."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        known = list(_paths(model))
        lines = [_explain(problem, known) for problem in error.errors()]
        wrong = f"the configuration of {values['method']} is wrong: " if "method" in values else ""
        raise InvalidInput(wrong + "; ".join(lines)) from None


def _explain(problem: Mapping[str, Any], known: list[str]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        level, _, last = path.rpartition(".")
        here = [k for k in known if k.rpartition(".")[0] == level]
        close = difflib.get_close_matches(path, known, n=1) or difflib.get_close_matches(last, here, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(here)}"
        return f"there is no option {path!r}; {hint}"
    return f"{path}: {problem_words(problem['msg'])}, got {_shortened(problem['input'])}"


def _shortened(value: Any) -> str:
    """The value as Python writes it, of a long one the beginning."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4300 digits
        return "an integer of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _paths(field.annotation, f"{prefix}{name}.")
