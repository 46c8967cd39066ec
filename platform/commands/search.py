"""`archray search [METHOD]`, `understand STUDY`, `config NAME`: one command per method, with its options."""

import inspect
import itertools
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperGroup

import archray
from archray.errors import InvalidInput
from archray.platform.run.trust import TRUST_HELP

# Imports in functions: the configurations and the catalog take 0.1 s, and the other commands do not need them.

DEFAULT = "rank-surrogate"  # the best mean rank over the tables of docs/benchmarks/several-metrics.md
SEARCH = (
    "Search for an architecture, train it, and write a report. See 'archray search METHOD --help' for the options of "
    f"a method. Without METHOD, the method is {DEFAULT}."
)
UNDERSTAND = (
    "Run a study of cells, architecture parameters or validation data, and write a report. See 'archray understand "
    "STUDY --help' for the options of a study."
)
CONFIG = "Print the full configuration of a search as YAML for --config, with a description of each key."
PRESET = (
    "Preset: smoke (a minute or two), demo (minutes on two cores, the default) or paper. Other options override it. "
    "The defaults in this help apply to the given preset and space."
)
# The help panel of an option, by the first part of its path.
PANELS = {"network": "Network", "resources": "Cluster", "cluster": "Cluster"}
PANELS |= dict.fromkeys(("final", "final_seeds", "final_members", "baseline"), "Final training")
WORDS = "words"  # positional words after the method's name, see `Method.words`
# Options of every method that are not fields of its configuration.
COMMON: dict[str, Any] = {
    "preset": Annotated[str | None, typer.Option(help=PRESET)],
    "config": Annotated[Path | None, typer.Option(help="Configuration file: .yaml, .toml or .json.")],
    "assignments": Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any option by its path, e.g. train.lr=0.05; overrides flags. Repeatable.",
        ),
    ],
}
OF_SEARCH: dict[str, Any] = {
    "out": Annotated[
        str | None,
        typer.Option(help="New folder of the run: a path or s3://... Default: archray-runs/METHOD-DATE-TIME."),
    ],
    "time_budget_s": Annotated[
        float | None, typer.Option(help="Time limit of the search stage in seconds. Default: no limit.")
    ],
    "or_resume": Annotated[
        bool,
        typer.Option("--or-resume", help="Resume the run in --out if it has this configuration; else start it."),
    ],
    "trust": Annotated[bool, typer.Option("--trust", help=f"With --or-resume: {TRUST_HELP}")],
    "dry_run": Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the stages, an estimate of the time, and the configuration, without starting the run.",
        ),
    ],
    "no_estimate": Annotated[
        bool, typer.Option("--no-estimate", help="With --dry-run: skip the estimate, which trains some batches.")
    ],
}


def with_method(words: Sequence[str]) -> list[str]:
    """Returns the words after `search`, with the default method if they start with an option other than the help."""
    named = words and (words[0] in ("-h", "--help") or not words[0].startswith("-"))
    return [*words] if named else [DEFAULT, *words]


class _MethodOptional(TyperGroup):
    """The command group of the methods, with a default method."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = with_method(args)
        if len(words) > len(args):
            typer.echo(f"No method given: using {DEFAULT} ('archray list methods' prints all)", err=True)
        return super().parse_args(ctx, words)


def method_app(command: str, arguments: Sequence[str] | None) -> typer.Typer:
    """Builds the command of the method in the arguments, or one command per method for the help.

    Args:
        command: one of GROUPS.
        arguments: the words after it; None if the command line has another command.

    Raises: UnknownName for an unknown method, with the nearest name.
    """
    text, panels, call, further = GROUPS[command]
    optional = command == "search"
    metavar = "[METHOD]" if optional else "METHOD" if "Methods" in panels else "STUDY"
    app = typer.Typer(
        help=text,
        cls=_MethodOptional if optional else None,
        no_args_is_help=not optional,
        subcommand_metavar=f"{metavar} [OPTIONS]",
    )
    app.callback()(lambda: None)  # so that a single command is a command of a group
    if arguments is None:
        return app
    from archray.platform.methods import METHODS, STUDIES

    registries = {"Methods": METHODS, "Studies": STUDIES}
    if optional:
        arguments = with_method(arguments)
    method = arguments[0] if arguments and not arguments[0].startswith("-") else None
    if method is not None:
        panels = [panel for panel in panels if method in registries[panel]] or panels[:1]
    for panel in panels:
        registry = registries[panel]
        for name in registry if method is None else [method]:
            registry.check(name)
            run = _command(name, call, further, arguments) if method else lambda: None
            app.command(name, help=f"{registry.summary(name)}.", rich_help_panel=panel)(run)
    return app


def _command(
    name: str, call: Callable[..., None], further: dict[str, Any], arguments: Sequence[str]
) -> Callable[..., None]:
    """Builds a function whose signature has the options of a method; typer reads the signature.

    Args:
        call: function that receives the configuration and the options of `further`.
        further: options in addition to the method's.
        arguments: the command line, for the defaults in the help.
    """
    from archray.platform.config import flag_at, value_at
    from archray.platform.methods import get_method
    from archray.platform.methods.configure import COMMON_FLAGS, make_config

    method = get_method(name)
    try:
        space, preset = option_value("--space", arguments), option_value("--preset", arguments)
        defaults = make_config(name, preset, None, {"space": space}).model_dump(mode="json")
    except InvalidInput:  # an unknown preset or space; the command itself raises the error
        defaults = {}
    paths = {**{path: path for path in ("space", "seed", "repeats")}, **COMMON_FLAGS, **method.flags}
    kinds: dict[str, Any] = {}
    for flag, path in paths.items():
        if (field := flag_at(method.config, path)) is None:
            continue
        kind, meaning = field
        panel = PANELS.get(path.partition(".")[0], "The method" if flag in method.flags else None)
        place = f"{path}, default {value_at(defaults, path)}" if defaults else path
        text = f"{meaning} ({place})" if meaning else place
        option = typer.Option(f"--{flag.replace('_', '-')}", help=text, rich_help_panel=panel)
        kinds[flag] = Annotated[kind | None, option]
        if flag == method.words:
            argument = typer.Argument(metavar=f"[{flag.upper()}]...", help=meaning)
            kinds[WORDS] = Annotated[list[str] | None, argument]
    for flag in method.rejects:  # accepted for the error with the reason
        kinds[flag] = Annotated[list[str] | None, typer.Option(f"--{flag.replace('_', '-')}", hidden=True)]
    kinds |= COMMON | further

    def command(*, preset: str | None, config: Path | None, assignments: list[str] | None, **values: Any) -> None:
        if method.words is not None and (words := values.pop(WORDS)):
            values[method.words] = [*words, *(values[method.words] or [])]
        others = {key: values.pop(key) for key in further}
        call(make_config(name, preset, config, values, assignments or ()), **others)

    keyword = inspect.Parameter.KEYWORD_ONLY
    defaults = {key: False if get_args(kind)[0] is bool else None for key, kind in kinds.items()}
    parameters = [inspect.Parameter(key, keyword, default=defaults[key], annotation=kinds[key]) for key in kinds]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = kinds
    return command


def option_value(option: str, words: Sequence[str]) -> str | None:
    """Returns the value of an option on a command line: `--preset smoke` or `--preset=smoke`."""
    split = [part for word in words for part in (word.split("=", 1) if word.startswith(f"{option}=") else [word])]
    return next((value for word, value in itertools.pairwise(split) if word == option), None)


def _search(
    config: Any,
    *,
    out: str | None,
    time_budget_s: float | None,
    or_resume: bool,
    trust: bool,
    dry_run: bool,
    no_estimate: bool,
) -> None:
    from archray.platform import api
    from archray.platform.engine.settings import TuneOptions

    tune_options = TuneOptions(time_budget_s=time_budget_s)
    if dry_run:
        typer.echo(api.dry_run(config, out=out, or_resume=or_resume, estimated=not no_estimate), nl=False)
        return
    result = api.begin_run(
        config,
        out=out,
        tune_options=tune_options,
        command="archray " + shlex.join(sys.argv[1:]),
        or_resume=or_resume,
        trust=trust,
    )
    archray.show(result.path)


def _config(config: Any) -> None:
    from archray.platform.config import comment, config_text

    command = "search" if config.kind == "method" else "understand"
    words = f"for archray {command} {config.method} --config FILE. Write None as null."
    title = comment(f"Written by archray {shlex.join(sys.argv[1:])}, {words}")
    typer.echo("\n".join([*title, config_text(config)]), nl=False)


# Commands that take a method's name: help, panels of methods, function, further options.
GROUPS: dict[str, tuple[str, list[str], Callable[..., None], dict[str, Any]]] = {
    "search": (SEARCH, ["Methods"], _search, OF_SEARCH),
    "understand": (UNDERSTAND, ["Studies"], _search, OF_SEARCH),
    "config": (CONFIG, ["Methods", "Studies"], _config, {}),
}
