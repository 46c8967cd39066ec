"""Commands for existing runs: resume, show, runs, watch, report, compare; and `archray list`."""

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
INTERRUPTED = 130  # the exit code that a shell reports after Ctrl-C

Trust = Annotated[bool, typer.Option("--trust", help=TRUST_HELP)]
RunFolder = Annotated[str, typer.Argument(metavar="DIR", help="Folder of a run.")]


def resume(
    run: RunFolder,
    budget: Annotated[int | None, typer.Option(help="Total number of training runs, or of sampled ensembles.")] = None,
    final_epochs: Annotated[int | None, typer.Option(help="Epochs of the final training.")] = None,
    final_seeds: Annotated[int | None, typer.Option(help="Number of final training runs, one seed each.")] = None,
    final_members: Annotated[
        str | None, typer.Option(metavar="N|all", help="Number of Pareto set members with final training runs.")
    ] = None,
    random: Annotated[
        int | None,
        typer.Option(help="Number of random architectures trained for comparison, besides the largest; 0 for none."),
    ] = None,
    correlation: Annotated[
        int | None, typer.Option(help="Number of feature maps solved alone to correlate with halving's shared solves.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Resume an interrupted run, or extend a finished run (--budget 40).

    A run that you did not start on this machine requires --trust if it contains Python files or joins a cluster.
    """
    options: dict[str, Any] = {"budget": budget, "final_epochs": final_epochs, "final_seeds": final_seeds}
    options |= {"random": random, "final_members": final_members, "correlation": correlation}
    archray.show(archray.resume(run, trust=trust, **options).path)


def show(
    run: RunFolder, as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all rows.")] = False
) -> None:
    """Print the state, result, accuracies and trials of a run."""
    # imports take 0.03 s, and `archray --help` does not need them
    from archray.platform.run.run_summary import RunSummary
    from archray.platform.show import detailed

    if as_json:
        _echo_json(detailed(RunSummary.read(run)).to_dict())
    else:
        archray.show(run)


def runs(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder that contains runs.")] = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the runs in a folder, newest first, with method, space, data, state, result and seconds."""
    from archray.platform.show import print_text, run_lines  # as in `show`

    if as_json:
        _echo_json([summary.to_dict() for summary in archray.runs(folder)])
    else:
        print_text("\n".join(run_lines(archray.runs(folder), folder)), Console())


def watch(
    run: RunFolder,
    interval: Annotated[float, typer.Option(help="Seconds between updates.", min=0.1)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one update and exit.")] = False,
) -> None:
    """Show the progress of a run until it ends: stage, trials, best value, curves, time left.

    Runs on any machine that can read the folder, and writes nothing. Exits with code 1 if the run does not finish.
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
    typer.echo(f"Writing the report of {printable(run)}", err=True)  # after many trials it takes some seconds
    typer.echo(archray.report(run, trust=trust))


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="DIR...", help="Folders of finished runs on the same data.")],
    out: Annotated[str | None, typer.Option(help="HTML file to write, with tables and figures.")] = None,
) -> None:
    """Compare runs on the same data: accuracies, parameters, multiply-adds, training runs, seconds.

    Feature map searches are also compared at equal solver calls and at equal seconds.
    """
    archray.compare(runs, out=out)


def list_(
    kind: Annotated[
        str, typer.Argument(metavar="spaces|architectures|datasets|proxies|methods|studies", help="Kind of names.")
    ],
) -> None:
    """List spaces, architectures, data sets, proxies, methods or studies."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, description in archray.list_names(kind).items():
        table.add_row(name, description)
    Console().print(table)
