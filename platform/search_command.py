"""`archray search METHOD`: a command for each method, whose options are the method's own flags and configuration."""

from __future__ import annotations

import inspect
import itertools
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from archray.errors import InvalidInput
from archray.platform.flags import Flag, flag_of, value_at

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


def search_app(arguments: Sequence[str] | None, context_settings: dict[str, Any]) -> typer.Typer:
    """The commands of `archray search ARGUMENTS`: the one of the method that they name, or else all of them.

    arguments: None for another command, of which `search` is only a neighbour: no method is imported.
    Raises: UnknownName for an unknown method, with the nearest of the known ones.
    """
    app = typer.Typer(help=HELP, no_args_is_help=True, context_settings=context_settings)
    app.callback()(lambda: None)  # so that one command alone is a command of a group
    if arguments is None:
        return app
    from archray.platform.methods import METHODS, get_method

    named = bool(arguments) and not arguments[0].startswith("-")
    preset = next((value for flag, value in itertools.pairwise(arguments) if flag == "--preset"), None)
    for name in arguments[:1] if named else METHODS.names():
        method = get_method(name)
        app.command(name, help=f"{method.summary}.", context_settings=context_settings)(search_function(name, preset))
    return app


def search_function(name: str, preset: str | None = None) -> Callable[..., None]:
    """What the command of a method calls, with the options in its signature. preset: whose values the help shows."""
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

    def search(**given: Any) -> None:
        _search(name, **given)

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


def _search(
    method: str,
    *,
    preset: str | None,
    config: Path | None,
    assignments: list[str] | None,
    out: str | None,
    time_budget_s: float | None,
    **options: Any,
) -> None:
    from archray.platform import api
    from archray.platform.config import merge, parse_assignment, read_config_file

    layers = [read_config_file(config)] if config else []
    layers += [parse_assignment(text) for text in assignments or []]
    result = api.search(
        method,
        preset=preset,
        config=merge(*layers),
        out=out,
        time_budget_s=time_budget_s,
        console=Console(),
        command="archray " + shlex.join(sys.argv[1:]),
        **options,
    )
    api.show(result.path)
