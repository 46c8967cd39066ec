"""The commands of existing runs: resume, show, runs, watch, report, compare; and `archray list`."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import archray
from archray.errors import printable
from archray.platform.run.layout import RUNS
from archray.platform.run.trust import TRUST_HELP

CRASHED = 1
INTERRUPTED = 130  # as a shell reports a program that Ctrl-C ended

Trust = Annotated[bool, typer.Option("--trust", help=TRUST_HELP)]
RunFolder = Annotated[str, typer.Argument(metavar="DIR", help="The folder of a run.")]


def resume(
    run: RunFolder,
    budget: Annotated[int | None, typer.Option(help="Training runs of the search; sampled ensembles.")] = None,
    final_epochs: Annotated[int | None, typer.Option(help="Epochs of the final training.")] = None,
    final_seeds: Annotated[int | None, typer.Option(help="Final training runs, each with its own seed.")] = None,
    final_members: Annotated[
        str | None, typer.Option(metavar="N|all", help="Members of the set with a final training run.")
    ] = None,
    random: Annotated[int | None, typer.Option(help="Number of random architectures trained for comparison.")] = None,
    correlation: Annotated[int | None, typer.Option(help="Feature maps of the correlation of halving.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Resume even if the archray or Ray version differs.")] = False,
    trust: Trust = False,
) -> None:
    """Resume a run that was interrupted, or extend one that has ended (--budget 40).

    Resuming reads state that Tune pickled, which may execute code: a run that you did not start on this machine needs
    --trust.
    """
    options: dict[str, Any] = {"budget": budget, "final_epochs": final_epochs, "final_seeds": final_seeds}
    options |= {"random": random, "final_members": final_members, "correlation": correlation}
    archray.show(archray.resume(run, force=force, trust=trust, **options).path)


def show(
    run: RunFolder, as_json: Annotated[bool, typer.Option("--json", help="As JSON, with all rows.")] = False
) -> None:
    """Print the result of a run, its accuracies, its trials, and its state."""
    from archray.platform.run.run_summary import RunSummary  # 0.03 s, which `archray --help` does without

    if as_json:
        _echo_json(RunSummary.read(run).to_dict())
    else:
        archray.show(run)


def runs(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of runs.")] = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the runs in a folder, the newest first: method, space, data, state, result, seconds."""
    from archray.platform.show import print_text, run_lines  # as in `show`

    if as_json:
        _echo_json([summary.to_dict() for summary in archray.runs(folder)])
    else:
        print_text("\n".join(run_lines(archray.runs(folder), folder)), Console())


def watch(
    run: RunFolder,
    interval: Annotated[float, typer.Option(help="Seconds between two updates.", min=0.1)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show one update.")] = False,
) -> None:
    """Show the progress of a run until it ends: stage, trials, the best so far, curves, time left.

    It runs on any machine that reads the folder, and writes nothing. Exits with 1 if the run does not finish.
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
    """Rewrite the report of a run."""
    typer.echo(archray.report(run, trust=trust))


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Folders of runs that have ended, on the same data.")
    ],
    out: Annotated[str | None, typer.Option(help="An HTML file to write, with the figures.")] = None,
) -> None:
    """Compare runs on the same data: accuracies, parameters, multiply-adds, training runs, seconds.

    Searches for a feature map are also compared at equal solver calls and at equal seconds.
    """
    archray.compare(runs, out=out)


def list_(
    kind: Annotated[str, typer.Argument(metavar="spaces|architectures|datasets|proxies|methods|studies", help="Kind.")],
) -> None:
    """List spaces, architectures, data sets, proxies, methods or studies."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, description in archray.list_names(kind).items():
        table.add_row(name, description)
    Console().print(table)
