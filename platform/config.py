"""The configuration of a run: the options all methods share, layers of options, flags, the meaning of each key."""

import difflib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator

from archray.cluster.settings import ClusterSettings, ResourceSettings
from archray.errors import InvalidInput, problem_words
from archray.files import local_path
from archray.settings import REPEATED, RegisteredSettings, Seed, Settings
from archray.trainables.data import DataSettings
from archray.trainables.spaces.table_space import absolute_name

Model = TypeVar("Model", bound=BaseModel)
SHOWN = 200  # characters of a wrong value in an error
WIDTH = 110  # characters of a comment's line
_ENTRY = re.compile(r"^ {4}((?:\w+, )*\w+): (.*)$")  # `lr, momentum: meaning`
_SECTION = re.compile(r"^(?:Fields|Attributes|Args):$")


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

    def check_extends(self, before: "SearchConfig") -> None:
        """Whether a run with the configuration `before` can go on with this one. Raises: InvalidInput."""


# Layers of options


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


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their paths as a nested dictionary; None is left out."""
    return merge(*(nest(path, value) for path, value in options.items() if value is not None))


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one dictionary: `{"train": {"lr": 0.1}}` is `{"train.lr": 0.1}`."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return leaves


# Files, assignments, validation


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
        keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]  # a merged key is to be replaced
        _distinct([(self.construct_object(key, deep=True), None) for key in keys if isinstance(key, yaml.ScalarNode)])
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
        paths = list(_paths(model))
        lines = [_explain(problem, paths) for problem in error.errors()]
        prefix = f"the configuration of {values['method']} is wrong: " if "method" in values else ""
        raise InvalidInput(prefix + "; ".join(lines)) from None


def _explain(problem: Mapping[str, Any], paths: list[str]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        level, _, last = path.rpartition(".")
        here = [k for k in paths if k.rpartition(".")[0] == level]
        close = difflib.get_close_matches(path, paths, n=1) or difflib.get_close_matches(last, here, n=1)
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


# The meaning of a key


def is_family(kind: Any) -> bool:
    """Whether a field of this type holds settings whose `name` says which class they are of."""
    return isinstance(kind, type) and issubclass(kind, RegisteredSettings)


def field_kinds(annotation: Any) -> list[Any]:
    """The types and literal values that a field may have, None left out."""
    origin = get_origin(annotation)
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in field_kinds(part)]
    if hasattr(annotation, "__metadata__"):  # Annotated
        return field_kinds(annotation.__origin__)
    return [] if annotation in (None, NoneType) else [annotation if isinstance(annotation, type) else str]


def description_of(model: type[BaseModel], field: str) -> str:
    """What a model's docstring, or that of a model it derives from, says of a field; empty if none does."""
    for base in model.__mro__:
        entries = field_entries(base.__doc__ or "")
        if field in entries:
            text = entries[field]
            return text if text[1:2] in ",." else text[:1].upper() + text[1:]  # `n, members` is a symbol
    return ""


def meaning_of(model: type[BaseModel], field: str) -> str:
    """What a model's docstring says of a field, and the values it may have, where they can be listed."""
    kinds = field_kinds(model.model_fields[field].annotation)
    choices = [kind for kind in kinds if not isinstance(kind, type)]
    choices += [name for kind in kinds if is_family(kind) for name in kind.registry.names()]
    values = f"One of {', '.join(map(str, choices))}." if len(choices) > 1 else ""
    return " ".join(filter(None, [description_of(model, field), values]))


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


# Flags of the command line


def flag_at(config: type[BaseModel], path: str) -> tuple[Any, str] | None:
    """The type and the meaning of the flag for the field at a path of a configuration; None if it has no such field.

    The type is int, float, str or list[str]: how the command line reads a value. The configuration checks it.
    """
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
    return kind, meaning_of(model, last)


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


# A configuration as text


def config_text(settings: BaseModel) -> str:
    """A configuration as YAML: every key, with what it means and what it may be above it."""
    return "\n".join(_lines(settings, "")).lstrip("\n") + "\n"


def _lines(settings: BaseModel, indent: str) -> Iterator[str]:
    values, was_nested = settings.model_dump(mode="json"), False
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        nested = isinstance(value, BaseModel)
        if not indent and (nested or was_nested):
            yield ""
        was_nested = nested
        yield from comment(meaning_of(type(settings), name), indent)
        if isinstance(value, BaseModel):
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {_scalar(values[name])}"


def comment(text: str, indent: str = "") -> list[str]:
    """A text as comments of at most WIDTH characters a line; nothing of an empty one."""
    start = f"{indent}# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
    )


def _scalar(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("...\n").strip()
