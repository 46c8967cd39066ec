"""The `archray` command. Each subcommand calls the function with its name in `archray`; `submit` runs one as a job."""

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

import archray
from archray.disks import is_full
from archray.errors import ArchrayError, DiskFull, RunInterrupted, TrialCrashed
from archray.files import local_path
from archray.platform.commands.bench import bench_app
from archray.platform.commands.check import check
from archray.platform.commands.models import attack, export, predict
from archray.platform.commands.proxies import proxies
from archray.platform.commands.runs import CRASHED, INTERRUPTED, compare, list_, report, resume, runs, show, watch
from archray.platform.commands.search import GROUPS, method_app
from archray.platform.commands.submit import submit
from archray.platform.run.layout import timed_command

BAD_INPUT = 2
CONTEXT = {"help_option_names": ["-h", "--help"]}
COMMANDS = (watch, show, runs, resume, report, compare, export, predict, attack, list_, check, proxies, submit)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"archray {archray.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


class _Commands(TyperGroup):
    """The command group, which lists its commands in the order of their first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = ["search", *(function.__name__.rstrip("_") for function in COMMANDS), "bench", "understand"]
        return sorted(self.commands, key=lambda name: (*order, name).index(name))


def application(arguments: Sequence[str]) -> typer.Typer:
    """Builds the command line for these arguments; `search` has the options of its method.

    Raises: UnknownName for an unknown method.
    """
    app = typer.Typer(
        name="archray",
        cls=_Commands,
        help="Neural architecture search on Ray.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )
    app.callback()(_options)
    for name in GROUPS:
        app.add_typer(method_app(name, arguments[1:] if arguments[:1] == [name] else None), name=name)
    app.add_typer(bench_app(), name="bench")
    for function in COMMANDS:
        app.command(function.__name__.rstrip("_"))(function)
    return app


def main() -> None:
    """Runs the command. Exit codes: 2 for bad input, 1 if trials crashed or a disk is full, 130 after Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # as for stderr: a terminal may lack a character
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not is_full(error) and not isinstance(error, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout again at exit
        if is_full(error):
            reason = f"archray: cannot write the output: {error.strerror}. Free space, or write to another disk"
            Console(stderr=True, highlight=False).print(reason, markup=False, soft_wrap=True)
        sys.exit(CRASHED)


def _run() -> None:
    error_console = Console(stderr=True, highlight=False)
    try:
        local_path(".")  # raises an error if the current folder was deleted
        with timed_command():
            application(sys.argv[1:])()
    except RunInterrupted as error:
        error_console.print(str(error), markup=False, soft_wrap=True)
        sys.exit(CRASHED if isinstance(error, DiskFull) else INTERRUPTED)
    except KeyboardInterrupt:
        error_console.print("Interrupted. Finished work is saved. Continue with: archray resume DIR")
        sys.exit(INTERRUPTED)
    except ArchrayError as error:
        error_console.print(f"archray: {error}", markup=False, soft_wrap=True)
        sys.exit(CRASHED if isinstance(error, TrialCrashed) else BAD_INPUT)


if __name__ == "__main__":
    main()
