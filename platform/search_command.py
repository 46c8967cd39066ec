"""`archray search METHOD`: a command for each method, whose options are the method's own flags and configuration."""

from __future__ import annotations

import inspect
import itertools
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel

import archray
from archray.errors import InvalidInput
from archray.settings import RegisteredSettings

HELP = "Search an architecture, train it, and write a report. 'archray search METHOD --help' has a method's options."
PRESET = "smoke (seconds), demo (minutes on two cores, the default), paper. Other options override it."
# The panel of the help that an option stands in, by the first part of its path.
PANELS = {
    "network": "Network",
    "resources": "Cluster",
    "cluster": "Cluster",
    "final": "Final training",
    "final_seeds": "Final training",
    "baseline": "Final training",
}
# What every search takes that is no field of a configuration: its name here, its type and option.
COMMON: dict[str, Any] = {
    "preset": Annotated[str | None, typer.Option(help=PRESET)],
    "config": Annotated[Path | None, typer.Option(help="Configuration file: .toml, .json or .yaml.")],
    "assignments": Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any option by its path, e.g. train.lr=0.05."),
    ],
    "out": Annotated[
        str | None, typer.Option(help="Folder of the run, new; a path or s3://... Default: archray-runs/....")
    ],
    "time_budget_s": Annotated[
        float | None, typer.Option(help="Seconds after which the search stage ends with what it has.")
    ],
}

_ENTRY = re.compile(r"^ {4}((?:\w+, )*\w+): (.*)$")  # `lr, momentum: what they are`
_SECTION = re.compile(r"^(?:Fields|Attributes|Args):$")


def search_app(arguments: Sequence[str] | None, context_settings: dict[str, Any]) -> typer.Typer:
    """The commands of `archray search ARGUMENTS`: the one of the method that they name, or else all of them.

    arguments: None for another command, of which `search` is only a neighbour: no method is imported.
    Raises: UnknownName for an unknown method, with the nearest of the known ones.
    """
    app = typer.Typer(help=HELP, no_args_is_help=True, context_settings=context_settings)
    app.callback()(lambda: None)  # so that one command alone is a command of a group
    if arguments is None:
        return app
    from archray.platform.methods import METHODS

    named = bool(arguments) and not arguments[0].startswith("-")
    preset = next((value for flag, value in itertools.pairwise(arguments) if flag == "--preset"), None)
    for name in arguments[:1] if named else METHODS.names():
        run = search_function(name, preset) if named else lambda: None  # without a method there is only help
        app.command(name, help=f"{METHODS.summary(name)}.", context_settings=context_settings)(run)
    return app


def search_function(name: str, preset: str | None = None) -> Callable[..., None]:
    """What the command of a method calls, with the options in its signature. preset: whose values the help shows."""
    from archray.platform.config import merge, parse_assignment, read_config_file
    from archray.platform.methods import get_method
    from archray.platform.methods.configure import COMMON_FLAGS, make_config

    method = get_method(name)
    try:
        defaults = make_config(name, preset, None, {}).model_dump(mode="json")
    except InvalidInput:  # an unknown preset, which the search itself refuses
        defaults = {}
    paths = {**{path: path for path in ("space", "seed", "repeats")}, **COMMON_FLAGS, **method.flags}
    flags = [flag for key, path in paths.items() if (flag := flag_of(method.config, key, path)) is not None]
    options = {flag.name: _option(flag, method.flags, value_at(defaults, flag.path)) for flag in flags} | COMMON

    def search(
        *,
        preset: str | None,
        config: Path | None,
        assignments: list[str] | None,
        out: str | None,
        time_budget_s: float | None,
        **options: Any,
    ) -> None:
        from archray.platform.api import begin_run
        from archray.platform.engine.tune_options import TuneOptions

        layers = [read_config_file(config)] if config else []
        layers += [parse_assignment(text) for text in assignments or []]
        result = begin_run(
            name,
            options,
            preset=preset,
            config=merge(*layers),
            out=out,
            tune_options=TuneOptions(time_budget_s=time_budget_s),
            command="archray " + shlex.join(sys.argv[1:]),
        )
        archray.show(result.path)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(key, keyword, default=None, annotation=kind) for key, kind in options.items()]
    search.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # which typer reads
    search.__annotations__ = options
    return search


def _option(flag: Flag, own: Mapping[str, str], default: Any) -> Any:
    panel = PANELS.get(flag.path.partition(".")[0], "The method" if flag.name in own else None)
    place = flag.path if default is None else f"{flag.path}, default {default}"
    text = f"{flag.help} ({place})" if flag.help else f"{flag.path}, default {default}"
    option = typer.Option(f"--{flag.name.replace('_', '-')}", help=text, metavar=flag.metavar, rich_help_panel=panel)
    return Annotated[flag.type | None, option]


# The flags


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
    values += [name for kind in kinds if _is_family(kind) for name in kind.registry.names()]
    types = [kind for kind in kinds if isinstance(kind, type) and not _is_family(kind)]
    read_as = types[0] if types in ([int], [float]) and not values else str
    names = [{int: "INTEGER", float: "NUMBER", bool: "true|false"}.get(kind, "TEXT") for kind in types]
    return Flag(name, path, read_as, description_of(model, last), "|".join([*names, *map(str, values)]))


def _is_family(kind: Any) -> bool:
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
