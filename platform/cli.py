"""The `archray` command. Every command calls `archray`'s function of that name; `submit` sends one as a job."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

import archray
from archray.disks import is_full
from archray.errors import ArchrayError, DiskFull, RunInterrupted, TrialCrashed, printable
from archray.files import local_path
from archray.platform.attack_command import attack
from archray.platform.bench_run_command import bench_app
from archray.platform.predict_command import export, predict
from archray.platform.proxies_command import proxies
from archray.platform.run.command_time import command
from archray.platform.run.layout import RUNS
from archray.platform.run.trust import TRUST_HELP
from archray.platform.search_command import config_app, search_app, understand_app
from archray.platform.submit_command import submit

CRASHED = 1
BAD_INPUT = 2
INTERRUPTED = 130  # as a shell reports a program that Ctrl-C ended

CONTEXT = {"help_option_names": ["-h", "--help"]}
Trust = Annotated[bool, typer.Option("--trust", help=TRUST_HELP)]
RunFolder = Annotated[str, typer.Argument(metavar="DIR", help="The folder of a run.")]


def resume(
    run: RunFolder,
    budget: Annotated[int | None, typer.Option(help="Trainings in the search; ensembles that are sampled.")] = None,
    final_epochs: Annotated[int | None, typer.Option(help="Epochs of the final training.")] = None,
    final_seeds: Annotated[int | None, typer.Option(help="Final trainings, each from its own random numbers.")] = None,
    final_members: Annotated[
        str | None, typer.Option(metavar="N|all", help="Members of the set that have the final training.")
    ] = None,
    random: Annotated[int | None, typer.Option(help="Random architectures trained beside the found one.")] = None,
    correlation: Annotated[int | None, typer.Option(help="Feature maps of the correlation of halving.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also if another version of archray or Ray made it.")] = False,
    trust: Trust = False,
) -> None:
    """Continue a run that was interrupted, or extend one that has ended (--budget 40).

    Resuming reads state that Tune pickled, which may execute code: a run that you did not start on this machine needs
    --trust.
    """
    options: dict[str, Any] = {
        "budget": budget,
        "final_epochs": final_epochs,
        "final_seeds": final_seeds,
        "random": random,
    }
    options |= {"final_members": final_members, "correlation": correlation}
    archray.show(archray.resume(run, force=force, trust=trust, **options).path)


def show(
    run: RunFolder, as_json: Annotated[bool, typer.Option("--json", help="As JSON, with all rows.")] = False
) -> None:
    """Print what a run found, how good it is, what was tried, and how far it is."""
    from archray.platform.run.run_summary import RunSummary

    if as_json:
        _echo_json(RunSummary.read(run).to_dict())
    else:
        archray.show(run)


def runs(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where runs lie.")] = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the runs in a folder, the newest first: method, space, data, state, result, seconds."""
    from archray.platform.show_runs import print_runs

    if as_json:
        _echo_json([summary.to_dict() for summary in archray.runs(folder)])
    else:
        print_runs(folder)


def watch(
    run: RunFolder,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
) -> None:
    """Show how far a run is, until it ends: stage, trials, the best so far, curves, time left.

    From any terminal or machine that reads its folder; it writes nothing. Exits with 1 if the run ends undone.
    """
    try:
        state = archray.watch(run, interval=interval, once=once).state
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if state in ("interrupted", "failed"):
        raise typer.Exit(CRASHED)


def _echo_json(value: Any) -> None:
    typer.echo(printable(json.dumps(value, indent=2, ensure_ascii=False)))


def report(run: RunFolder, trust: Trust = False) -> None:
    """Write the report of a run anew."""
    typer.echo(archray.report(run, trust=trust))


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Folders of runs that have ended, on the same data.")
    ],
    out: Annotated[str | None, typer.Option(help="An HTML file to write, with the figures.")] = None,
) -> None:
    """Compare runs on the same data: accuracies, parameters, multiply-adds, trainings, seconds.

    Searches for a feature map are compared at equal solver calls and at equal seconds, too.
    """
    archray.compare(runs, out=out)


def list_(
    kind: Annotated[
        str, typer.Argument(metavar="spaces|architectures|datasets|proxies|methods|studies", help="Which.")
    ],
) -> None:
    """List what there is to search, train on, score with, search by, and explain by."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, description in archray.list_names(kind).items():
        table.add_row(name, description)
    Console().print(table)


COMMANDS = (watch, show, runs, resume, report, compare, export, predict, attack, list_, proxies, submit)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"archray {archray.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


class _Commands(TyperGroup):
    """The commands in the order of a first day."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = ["search", *(function.__name__.rstrip("_") for function in COMMANDS), "bench", "understand"]
        return sorted(self.commands, key=lambda name: (*order, name).index(name))


def application(arguments: Sequence[str]) -> typer.Typer:
    """The command for these arguments: its `search` has the options of the method that they name.

    Raises: UnknownName for a search by an unknown method.
    """
    app = typer.Typer(
        name="archray",
        cls=_Commands,
        help="Neural architecture search with shared weights, on Ray.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )
    app.callback()(_options)
    for name, app_of in (("search", search_app), ("understand", understand_app), ("config", config_app)):
        app.add_typer(app_of(arguments[1:] if arguments[:1] == [name] else None, CONTEXT), name=name)
    app.add_typer(bench_app(CONTEXT), name="bench")
    for function in COMMANDS:
        app.command(function.__name__.rstrip("_"))(function)
    return app


def main() -> None:
    """Runs the command. Exit codes: 2 for bad input, 1 where trials crashed or a disk is full, 130 after Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # as stderr has it: a terminal may lack a letter
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not is_full(error) and not isinstance(error, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # which Python flushes once more as it ends
        if is_full(error):
            reason = f"archray: expected room for the output, got: {error.strerror}; free space, or write it elsewhere"
            Console(stderr=True, highlight=False).print(reason, markup=False, soft_wrap=True)
        sys.exit(CRASHED)


def _run() -> None:
    error_console = Console(stderr=True, highlight=False)
    try:
        local_path(".")  # whose error a deleted current folder is
        with command():
            application(sys.argv[1:])()
    except RunInterrupted as error:
        error_console.print(str(error), markup=False, soft_wrap=True)
        sys.exit(CRASHED if isinstance(error, DiskFull) else INTERRUPTED)
    except KeyboardInterrupt:
        error_console.print("Interrupted; what was finished is saved. Continue with: archray resume DIR")
        sys.exit(INTERRUPTED)
    except ArchrayError as error:
        error_console.print(f"archray: {error}", markup=False, soft_wrap=True)
        sys.exit(CRASHED if isinstance(error, TrialCrashed) else BAD_INPUT)


if __name__ == "__main__":
    main()
