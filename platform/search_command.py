"""`archray search METHOD`, `understand STUDY`, `config NAME`: a command for each method, with its own options."""

from __future__ import annotations

import inspect
import itertools
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

import archray
from archray.errors import InvalidInput
from archray.platform.method_flags import Flag, flag_of, value_at
from archray.platform.run.trust import TRUST_HELP
from archray.registry import CatalogueRegistry

if TYPE_CHECKING:
    from archray.platform.methods import Method

SEARCH = "Search an architecture, train it, and write a report. 'archray search METHOD --help' has a method's options."
UNDERSTAND = (
    "Explain: run a study of cells, of architecture parameters or of validation data, and write a report. "
    "'archray understand STUDY --help' has a study's options."
)
CONFIG = "Print the whole configuration of a search, with the meaning of each key, as YAML that --config takes."
PRESET = (
    "smoke (seconds), demo (minutes on two cores, the default), paper. Other options override it; the defaults shown "
    "here are those of the preset, and of the space, that are named."
)
# The panel of the help that an option stands in, by the first part of its path.
PANELS = {
    "network": "Network",
    "resources": "Cluster",
    "cluster": "Cluster",
    "final": "Final training",
    "final_seeds": "Final training",
    "final_members": "Final training",
    "baseline": "Final training",
}
WORDS = "words"  # of a command: those after the method's name, see `Method.words`
# What every method takes that is no field of its configuration: its name here, its type and option.
COMMON: dict[str, Any] = {
    "preset": Annotated[str | None, typer.Option(help=PRESET)],
    "config": Annotated[Path | None, typer.Option(help="A file as 'archray config METHOD' prints, or .toml, .json.")],
    "assignments": Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any option by its path, e.g. train.lr=0.05."),
    ],
}
OF_SEARCH: dict[str, Any] = {
    "out": Annotated[
        str | None, typer.Option(help="Folder of the run, new; a path or s3://... Default: archray-runs/METHOD-TIME.")
    ],
    "time_budget_s": Annotated[
        float | None, typer.Option(help="Seconds after which the search stage ends with what it has. Default: no end.")
    ],
    "or_resume": Annotated[
        bool,
        typer.Option("--or-resume", help="Continue the run in --out if this search began one there, else begin it."),
    ],
    "trust": Annotated[bool, typer.Option("--trust", help=f"With --or-resume. {TRUST_HELP}")],
    "dry_run": Annotated[
        bool, typer.Option("--dry-run", help="Print what it would do, and its configuration; write and start nothing.")
    ],
}


def search_app(arguments: Sequence[str] | None, context_settings: dict[str, Any]) -> typer.Typer:
    """The commands of `archray search ARGUMENTS`; see `_app`."""
    return _app(SEARCH, ("Methods",), _search, OF_SEARCH, arguments, context_settings)


def understand_app(arguments: Sequence[str] | None, context_settings: dict[str, Any]) -> typer.Typer:
    """The commands of `archray understand ARGUMENTS`; see `_app`."""
    return _app(UNDERSTAND, ("Studies",), _search, OF_SEARCH, arguments, context_settings)


def config_app(arguments: Sequence[str] | None, context_settings: dict[str, Any]) -> typer.Typer:
    """The commands of `archray config ARGUMENTS`; see `_app`."""
    return _app(CONFIG, ("Methods", "Studies"), _config, {}, arguments, context_settings)


def _app(
    text: str,
    panels: Sequence[str],
    call: Callable[..., None],
    further: Mapping[str, Any],
    arguments: Sequence[str] | None,
    context_settings: dict[str, Any],
) -> typer.Typer:
    """The command of the method that the arguments name, or else one for each method, of which there is only help.

    Args:
        text: the help. panels: of it, `Methods` and `Studies`: what may be named.
        call: what a command calls, with the method's name. further: options beside those of a method.
        arguments: None for another command, of which this is only a neighbour.

    Raises: UnknownName for an unknown method, with the nearest of the known ones.
    """
    app = typer.Typer(
        help=text,
        no_args_is_help=True,
        context_settings=context_settings,
        subcommand_metavar=f"{'METHOD' if 'Methods' in panels else 'STUDY'} [OPTIONS]",
    )
    app.callback()(lambda: None)  # so that one command alone is a command of a group
    if arguments is None:
        return app
    from archray.platform.methods import METHODS, STUDIES

    registries = {"Methods": METHODS, "Studies": STUDIES}
    named = arguments[0] if arguments and not arguments[0].startswith("-") else None
    if named is not None:
        panels = [panel for panel in panels if named in registries[panel]] or panels[:1]
    for panel in panels:
        registry = registries[panel]
        for name in registry if named is None else [named]:
            run = _command(name, registry, call, further, arguments) if named else lambda: None
            app.command(
                name, help=f"{registry.summary(name)}.", context_settings=context_settings, rich_help_panel=panel
            )(run)
    return app


def _command(
    name: str,
    registry: CatalogueRegistry[Method],
    call: Callable[..., None],
    further: Mapping[str, Any],
    arguments: Sequence[str],
) -> Callable[..., None]:
    """A function with the options of a method in its signature, which typer reads."""
    from archray.platform.methods.configure import COMMON_FLAGS

    method, defaults = registry.get(name), _defaults(name, arguments)
    paths = {**{path: path for path in ("space", "seed", "repeats")}, **COMMON_FLAGS, **method.flags}
    flags = [flag for key, path in paths.items() if (flag := flag_of(method.config, key, path)) is not None]
    options = {flag.name: _option(flag, method.flags, defaults) for flag in flags} | COMMON | dict(further)
    if method.words is not None:
        [of_words] = [flag for flag in flags if flag.name == method.words]
        metavar = f"[{of_words.name.upper()}]..."
        options[WORDS] = Annotated[list[str] | None, typer.Argument(metavar=metavar, help=of_words.help)]

    def command(*, preset: str | None, config: Path | None, assignments: list[str] | None, **options: Any) -> None:
        from archray.platform.config import family_paths, merge, parse_assignment, read_config_file

        if method.words is not None and (words := options.pop(WORDS)):
            options[method.words] = [*words, *(options[method.words] or [])]
        layers = [read_config_file(config)] if config else []
        layers += [parse_assignment(text) for text in assignments or []]
        call(name, preset, merge(*layers, families=frozenset(family_paths(method.config))), options)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(key, keyword, default=False if get_args(kind)[0] is bool else None, annotation=kind)
        for key, kind in options.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # which typer reads
    command.__annotations__ = options
    return command


def _defaults(name: str, arguments: Sequence[str]) -> Mapping[str, Any]:
    """What the help shows as defaults: those of the preset and the space that are named; none if they are unknown."""
    from archray.platform.methods.configure import make_config

    try:
        options = {"space": _value("--space", arguments)}
        return make_config(name, _value("--preset", arguments), None, options).model_dump(mode="json")
    except InvalidInput:  # which the command itself refuses
        return {}


def _value(flag: str, arguments: Sequence[str]) -> str | None:
    """What the arguments give for a flag: `--preset smoke`, or `--preset=smoke`."""
    split = [word for text in arguments for word in (text.split("=", 1) if text.startswith(f"{flag}=") else [text])]
    return next((value for word, value in itertools.pairwise(split) if word == flag), None)


def _option(flag: Flag, own: Mapping[str, str], defaults: Mapping[str, Any]) -> Any:
    panel = PANELS.get(flag.path.partition(".")[0], "The method" if flag.name in own else None)
    place = f"{flag.path}, default {value_at(defaults, flag.path)}" if defaults else flag.path
    text = f"{flag.help} ({place})" if flag.help else place
    option = typer.Option(f"--{flag.name.replace('_', '-')}", help=text, rich_help_panel=panel)
    return Annotated[flag.type | None, option]


# What the commands do


def _search(name: str, preset: str | None, config: Mapping[str, Any], options: dict[str, Any]) -> None:
    out, time_budget_s, or_resume, trust, dry = (options.pop(key) for key in OF_SEARCH)
    if dry:
        from archray.platform.dry_run import dry_run

        typer.echo(dry_run(name, options, preset=preset, config=config, out=out, or_resume=or_resume), nl=False)
        return
    from archray.platform.api import begin_run
    from archray.platform.engine.tune_options import TuneOptions

    result = begin_run(
        name,
        options,
        preset=preset,
        config=config,
        out=out,
        tune_options=TuneOptions(time_budget_s=time_budget_s),
        command="archray " + shlex.join(sys.argv[1:]),
        or_resume=or_resume,
        trust=trust,
    )
    archray.show(result.path)


def _config(name: str, preset: str | None, config: Mapping[str, Any], options: dict[str, Any]) -> None:
    from archray.platform.config_text import comment, config_text
    from archray.platform.methods.configure import make_config

    chosen = make_config(name, preset, config, options)
    command = "search" if chosen.kind == "method" else "understand"
    title = comment(f"Of archray {shlex.join(sys.argv[1:])}; for archray {command} {name} --config FILE. None is null.")
    typer.echo("\n".join([*title, config_text(chosen)]), nl=False)
