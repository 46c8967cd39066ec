"""Configuration of a run: options of all methods, layers of options, flags, descriptions of keys."""

import difflib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from archray.trainables.spaces.joint_space import split_training
from archray.trainables.spaces.table_space import absolute_name

Model = TypeVar("Model", bound=BaseModel)
SHOWN = 200  # maximum characters of a wrong value in an error
WIDTH = 110  # maximum characters of a comment line
_ENTRY = re.compile(r"^ {4}((?:\w+, )*\w+): (.*)$")  # `lr, momentum: meaning`
_SECTION = re.compile(r"^(?:Fields|Attributes|Args):$")


class SearchConfig(Settings):
    """Options that all methods share. The configuration of a method extends this class.

    Attributes:
        method: name of the method.
        space: name of a registered space, a reference to a custom one, or table:FILE.
        data: data set of the training runs.
        seed: seed of the search and the training: suggestions, initial weights, batch order. The problem is the same
            for all seeds: the split of the data has its own seed, `data.seed`, and training-free metrics have theirs,
            `proxies.seed`. So runs with different seeds can be compared, and can share their pools.
        repeats: number of repeats of the whole run, in folders `repeat-00`, ...; repeat r has the seed `seed + r`.
        resources: resources per trial, and the number of concurrent trials.
        cluster: Ray cluster to run on.
    """

    kind: ClassVar[str] = "method"  # or "study"
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
        """Makes paths absolute: a run may be resumed from another folder, and workers run in their own folders."""
        return absolute_name(space)

    def references(self) -> dict[str, str]:
        """The options that may name a file of the user, by role; the run keeps a copy of the file."""
        return {"space": self.space, "data": self.data.name}

    @property
    def starts_without_data(self) -> bool:
        """Whether the first stages (those with `without_data`) open no data set."""
        return False

    @property
    def needs_ray(self) -> bool:
        """Whether any stage of a new run needs Ray."""
        return True

    @property
    def training_decisions(self) -> Mapping[str, Sequence[Any]]:
        """The values of each training hyperparameter that the search decides, by key: `train.lr`."""
        return {}

    def parts(self, architecture: str) -> tuple[str, dict[str, Any]]:
        """Returns the string of an architecture without training decisions, and the decided values by key."""
        alone, choices = split_training(architecture, tuple(self.training_decisions))
        return alone, {name: json.loads(choice) for name, choice in choices.items()}

    def check(self) -> None:
        """Runs checks that go beyond types, before Ray starts. Raises: ArchrayError."""

    def check_size(self, images: int) -> None:
        """Checks options that depend on the number of training images. Raises: InvalidInput."""

    def check_extends(self, before: "SearchConfig") -> None:
        """Raises: InvalidInput unless a run with the configuration `before` can resume with this one."""


def merge(*layers: Mapping[str, Any], families: Collection[str] = (), prefix: str = "") -> dict[str, Any]:
    """Merges nested dictionaries key by key: a later layer overrides an earlier one.

    A name alone (`"adam"`) keeps earlier settings with that name (`{"name": "adam", "lr": 0.1}`).

    Args:
        families: paths of settings with a `name`; settings with another name are replaced as a whole.
        prefix: prefix of the paths of these layers.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            base, path = merged.get(key), f"{prefix}{key}"  # a key of YAML may be a number
            if isinstance(base, dict) and isinstance(value, str) and base.get("name") == value:
                continue
            if not isinstance(base, dict) or not isinstance(value, Mapping):
                merged[key] = value
            elif path in families and value.get("name", base.get("name")) != base.get("name"):
                merged[key] = dict(value)
            else:
                merged[key] = merge(base, value, families=families, prefix=f"{path}.")
    return merged


def family_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The paths of the fields with settings that have a `name`: `supernet.relaxation`."""
    for name, field in model.model_fields.items():
        for kind in field_kinds(field.annotation):
            if is_family(kind):
                yield prefix + name
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from family_paths(kind, f"{prefix}{name}.")


def nest(path: str, value: Any) -> dict[str, Any]:
    """Nests a value by its path: `nest("train.epochs", 3)` is `{"train": {"epochs": 3}}`."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Converts options by path to a nested dictionary, without values that are None."""
    return merge(*(nest(path, value) for path, value in options.items() if value is not None))


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested settings: `{"train": {"lr": 0.1}}` becomes `{"train.lr": 0.1}`."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        leaves |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return leaves


def read_config_file(place: str | Path) -> dict[str, Any]:
    """Reads a configuration file (`.toml`, `.json`, `.yaml`) as a dictionary. Raises: InvalidInput."""
    if local_path(place).is_dir():
        raise InvalidInput(f"expected a configuration file, got the folder {place}. Pass the file in it")
    path = Path(place)
    if not path.is_file():
        if path.exists():
            raise InvalidInput(f"expected a configuration file, got {path}, which is a pipe or a device. Pass a file")
        raise InvalidInput(f"there is no configuration file {path}. Check the path passed to --config")
    readers: dict[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".json": partial(json.loads, object_pairs_hook=_distinct),
        ".yaml": partial(yaml.load, Loader=_Distinct),
        ".yml": partial(yaml.load, Loader=_Distinct),
    }
    reader = readers.get(path.suffix)
    if reader is None:
        raise InvalidInput(f"{path}: expected a file ending in {', '.join(readers)}, got {path.suffix or 'no suffix'}")
    try:
        content = reader(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise InvalidInput(f"{path}: expected options in a few levels, got hundreds. Check the brackets") from error
    except (ValueError, yaml.YAMLError) as error:
        raise InvalidInput(f"{path} is not valid {path.suffix[1:]}: {' '.join(str(error).split())}") from error
    if content is None and path.suffix != ".json":  # only comments
        return {}
    if not isinstance(content, dict):
        raise InvalidInput(f"{path}: expected keys and values at the top level, got a {type(content).__name__}")
    return content


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Builds a dictionary. Raises: ValueError for a repeated key; JSON and YAML would silently use the last one."""
    keys = [key for key, _ in pairs]
    if repeated := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"the key {repeated[0]!r} occurs more than once. Remove all but one")
    return dict(pairs)


class _Distinct(yaml.SafeLoader):
    """YAML that rejects mappings with a repeated key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]  # a merged key may be overridden
        _distinct([(self.construct_object(key, deep=True), None) for key in keys if isinstance(key, yaml.ScalarNode)])
        return super().construct_mapping(node, deep)


def parse_assignment(text: str) -> dict[str, Any]:
    """Parses `"train.lr=0.05"` to a nested dictionary; the value is read as YAML. Raises: InvalidInput."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise InvalidInput(f"expected KEY=VALUE such as train.lr=0.05, got {text!r}")
    try:
        return nest(path.strip(), yaml.safe_load(value))
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: an integer of thousands of digits
        reason = " ".join(str(error).split())
        raise InvalidInput(f"{path.strip()}: expected a YAML value, got {_shortened(value)} ({reason})") from None


def validate(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Validates `values` as a configuration. Raises: InvalidInput with every wrong key and its expected value."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        paths = list(_paths(model))
        lines: list[str] = []
        unknown: dict[str, list[str]] = {}  # advice -> the options for which it is the same
        for problem in error.errors():
            if problem["type"] == "extra_forbidden":
                path = ".".join(map(str, problem["loc"]))
                unknown.setdefault(_advice(path, paths), []).append(repr(path))
            else:
                lines.append(_explain(problem))
        lines += [f"there is no option {', '.join(options)}; {advice}" for advice, options in unknown.items()]
        prefix = f"the configuration of {values['method']} is invalid: " if "method" in values else ""
        raise InvalidInput(prefix + "; ".join(lines)) from None


def _advice(path: str, paths: list[str]) -> str:
    """Returns the option that an unknown one resembles, or those at its level."""
    level, _, last = path.rpartition(".")
    options = [option for option in paths if option.rpartition(".")[0] == level]
    close = difflib.get_close_matches(path, paths, n=1) or difflib.get_close_matches(last, options, n=1)
    return f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(options)}"


def _explain(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "invalid_key":  # of YAML, which reads 1 and true as other types
        path = ".".join(map(str, (*problem["loc"][:-1], problem["input"])))
        return f"{path}: expected the name of an option as key, got {_shortened(problem['input'])}. Correct the key"
    path = ".".join(map(str, problem["loc"]))
    if problem["type"] == "value_error" and ", got " in problem["msg"]:
        return f"{path}: {problem_words(problem['msg'])}"
    return f"{path}: {problem_words(problem['msg'])}, got {_shortened(problem['input'])}"


def _shortened(value: Any) -> str:
    """Returns the `repr` of a value, cut after SHOWN characters."""
    try:
        text = repr(value)
    except ValueError:  # Python does not convert integers of more than 4300 digits
        return "an integer of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _paths(field.annotation, f"{prefix}{name}.")


def is_family(kind: Any) -> bool:
    """Returns whether a field of this type has settings whose `name` selects their class."""
    return isinstance(kind, type) and issubclass(kind, RegisteredSettings)


def field_kinds(annotation: Any) -> list[Any]:
    """Returns the types and literal values of a field, without None."""
    origin = get_origin(annotation)
    if origin is Literal:
        return list(get_args(annotation))
    if origin in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in field_kinds(part)]
    if hasattr(annotation, "__metadata__"):  # Annotated
        return field_kinds(annotation.__origin__)
    return [] if annotation in (None, NoneType) else [annotation if isinstance(annotation, type) else str]


def description_of(model: type[BaseModel], field: str) -> str:
    """Returns the description of a field in the docstring of a model or a base class; empty without one."""
    for base in model.__mro__:
        entries = field_entries(base.__doc__ or "")
        if field in entries:
            text = entries[field]
            return text if text[1:2] in ",." else text[:1].upper() + text[1:]  # `n, members` starts with a symbol
    return ""


def meaning_of(model: type[BaseModel], field: str) -> str:
    """Returns the description of a field, and its values if they can be listed."""
    kinds = field_kinds(model.model_fields[field].annotation)
    choices = [kind for kind in kinds if not isinstance(kind, type)]
    choices += [name for kind in kinds if is_family(kind) for name in kind.registry.names()]
    values = f"One of {', '.join(map(str, choices))}." if len(choices) > 1 else ""
    return " ".join(filter(None, [description_of(model, field), values]))


def field_entries(docstring: str) -> dict[str, str]:
    """Returns the entries of a docstring's `Attributes:`, `Args:` or `Fields:`, by name, each on one line."""
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


def flag_at(config: type[BaseModel], path: str) -> tuple[Any, str] | None:
    """Returns type and description of the flag for a field at a path of a configuration; None without such a field.

    The type is int, float, str or list[str]. The command line parses a value to it, and the configuration checks it.
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
    """Returns the value at a path of a nested dictionary: a name for settings, `a, b` for a list. Raises: KeyError."""
    value: Any = config
    for key in path.split("."):
        value = value[key]
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return value.get("name", value) if isinstance(value, Mapping) else value


def config_text(settings: BaseModel) -> str:
    """Returns a configuration as YAML: every key, below a comment with its description and values."""
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
            text = yaml.safe_dump(values[name], default_flow_style=True, width=float("inf"), allow_unicode=True)
            yield f"{indent}{name}: " + text.removesuffix("...\n").strip()


def comment(text: str, indent: str = "") -> list[str]:
    """Wraps a text to comment lines of at most WIDTH characters; empty for an empty text."""
    start = f"{indent}# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
    )
