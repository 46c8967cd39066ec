"""The `archray` command. Every command calls the function of the same name in `archray`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import archray
from archray.errors import ArchrayError, RunInterrupted

BAD_INPUT = 2
INTERRUPTED = 130  # as a shell reports a program that Ctrl-C ended

app = typer.Typer(
    name="archray",
    help="Neural architecture search with shared weights, on Ray.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Cells = Annotated[int | None, typer.Option(help="Cells per stage of the network, N.", rich_help_panel="Network")]
Channels = Annotated[int | None, typer.Option(help="Channels of the first stage, C.", rich_help_panel="Network")]
Data = Annotated[
    str | None,
    typer.Option(help="A data set ('archray list datasets'), folder:PATH, arrays:PATH.npz, or path.py:function."),
]
DataDir = Annotated[str | None, typer.Option(help="Where the published files of the data set lie.")]
SpaceName = Annotated[
    str | None, typer.Option("--space", help="A space ('archray list spaces'), or path.py:Class, module:Class.")
]
Seed = Annotated[int | None, typer.Option(help="Root of every random choice.")]
ENSEMBLES = "Ensembles"
Budget = Annotated[int | None, typer.Option(help="Trainings in the search; ensembles that are sampled.")]
FinalEpochs = Annotated[int | None, typer.Option(help="Epochs of the final training.")]
FinalSeeds = Annotated[int | None, typer.Option(help="Final trainings, each from its own initial parameters.")]
RandomCount = Annotated[int | None, typer.Option("--random", help="Random architectures trained beside the found one.")]
Address = Annotated[
    str | None,
    typer.Option(help="Ray cluster to join: auto or ip:port. A local Ray by default.", rich_help_panel="Cluster"),
]
RunFolder = Annotated[str, typer.Argument(metavar="DIR", help="The folder of a run.")]


@app.command()
def search(
    method: Annotated[str, typer.Argument(help="The method; 'archray list methods' names them.")],
    space: SpaceName = None,
    data: Data = None,
    data_dir: DataDir = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="smoke (seconds), demo (minutes on two cores), paper. Other options override it. Default: demo."
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file: .toml, .json or .yaml.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any option by its path, e.g. train.lr=0.05.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Folder of the run, new; a path or s3://... Default: archray-runs/....")
    ] = None,
    seed: Seed = None,
    repeats: Annotated[int | None, typer.Option(help="Whole runs, with the seeds SEED, SEED + 1, ...")] = None,
    proxy: Annotated[
        str | None, typer.Option(help="Training-free metric to search with.", rich_help_panel="HNAS")
    ] = None,
    budget: Budget = None,
    pool: Annotated[
        str | None,
        typer.Option(help="A table that 'archray proxies' made, instead of scoring one.", rich_help_panel="HNAS"),
    ] = None,
    pool_size: Annotated[
        int | None, typer.Option(help="Architectures to score, drawn from the space.", rich_help_panel="HNAS")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of a trial of the search.")] = None,
    search_seeds: Annotated[
        int | None, typer.Option(help="Searches at the same time, each with its own seed.", rich_help_panel="Supernets")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="bilevel (the architecture learns from its own half of the training data), bilevel-second-order, or "
            "erm (both from all).",
            rich_help_panel="Supernets",
        ),
    ] = None,
    search_channels: Annotated[
        int | None, typer.Option(help="Channels of the supernet.", rich_help_panel="Supernets")
    ] = None,
    search_cells: Annotated[
        int | None, typer.Option(help="Cells per stage of the supernet.", rich_help_panel="Supernets")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Random architectures that rs-ws scores.", rich_help_panel="Supernets")
    ] = None,
    ensemble_size: Annotated[
        int | None, typer.Option(help="Members of the ensemble, n.", rich_help_panel=ENSEMBLES)
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(
            help="Of all members of deep-ensemble, snapshot and mc-droppath; else the best of a small pool.",
            rich_help_panel=ENSEMBLES,
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(help="mc (draws from the posterior) or svgd-rd (particles).", rich_help_panel=ENSEMBLES),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Of the posterior: below 1 sharpens, above 1 flattens it.", rich_help_panel=ENSEMBLES),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(
            help="Diversity of svgd-rd's particles: a number, grid, or bo (it is searched).", rich_help_panel=ENSEMBLES
        ),
    ] = None,
    posterior_epochs: Annotated[
        int | None, typer.Option(help="Epochs of the posterior.", rich_help_panel=ENSEMBLES)
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Feature maps, or architectures, that halving chooses from.")
    ] = None,
    dimension: Annotated[
        int | None, typer.Option(help="Features of a full solve.", rich_help_panel="Feature maps")
    ] = None,
    replicas: Annotated[int | None, typer.Option(help="Shared solves, or supernets, of a round of halving.")] = None,
    loss: Annotated[str | None, typer.Option(help="ridge, svm or logistic.", rich_help_panel="Feature maps")] = None,
    correlation: Annotated[
        int | None,
        typer.Option(help="Feature maps to compare shared and standalone accuracy of.", rich_help_panel="Feature maps"),
    ] = None,
    final_epochs: FinalEpochs = None,
    final_seeds: FinalSeeds = None,
    random: RandomCount = None,
    channels: Channels = None,
    cells: Cells = None,
    address: Address = None,
    max_concurrent: Annotated[
        int | None, typer.Option(help="Trials at a time. Default: what the resources hold.", rich_help_panel="Cluster")
    ] = None,
    cpus_per_trial: Annotated[float | None, typer.Option(help="CPUs of a trial.", rich_help_panel="Cluster")] = None,
    gpus_per_trial: Annotated[
        float | None, typer.Option(help="GPUs of a trial, fractions allowed.", rich_help_panel="Cluster")
    ] = None,
    time_budget_s: Annotated[
        float | None, typer.Option(help="Seconds after which the search stage ends with what it has.")
    ] = None,
) -> None:
    """Search an architecture, train it, and write a report."""
    from archray.platform import api
    from archray.platform.config import merge, parse_assignment, read_config_file

    layers = [read_config_file(config)] if config else []
    layers += [parse_assignment(text) for text in set_ or []]
    result = api.search(
        method,
        space=space,
        data=data,
        preset=preset,
        config=merge(*layers),
        out=out,
        time_budget_s=time_budget_s,
        console=Console(),
        command="archray " + shlex.join(sys.argv[1:]),
        seed=seed,
        repeats=repeats,
        data_dir=data_dir,
        proxy=proxy,
        budget=budget,
        pool=pool,
        pool_size=pool_size,
        epochs=epochs,
        search_seeds=search_seeds,
        objective=objective,
        search_channels=search_channels,
        search_cells=search_cells,
        samples=samples,
        ensemble_size=ensemble_size,
        architecture=architecture,
        sampler=sampler,
        temperature=temperature,
        delta=delta,
        posterior_epochs=posterior_epochs,
        candidates=candidates,
        dimension=dimension,
        replicas=replicas,
        loss=loss,
        correlation=correlation,
        final_epochs=final_epochs,
        final_seeds=final_seeds,
        random=random,
        channels=channels,
        cells=cells,
        address=address,
        max_concurrent=max_concurrent,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
    )
    api.show(result.path)


@app.command()
def resume(
    run: RunFolder,
    budget: Budget = None,
    final_epochs: FinalEpochs = None,
    final_seeds: FinalSeeds = None,
    random: RandomCount = None,
    force: Annotated[bool, typer.Option("--force", help="Also if another version of archray or Ray made it.")] = False,
) -> None:
    """Continue a run that was interrupted, or extend one that has ended (--budget 40).

    Resuming reads state that Tune pickled: resume only folders that you trust.
    """
    from archray.platform import api

    result = api.resume(
        run, force=force, budget=budget, final_epochs=final_epochs, final_seeds=final_seeds, random=random
    )
    api.show(result.path)


@app.command()
def show(run: RunFolder) -> None:
    """Print what a run found, and how far it is."""
    from archray.platform import api

    api.show(run)


@app.command()
def report(run: RunFolder) -> None:
    """Write the report of a run anew."""
    from archray.platform import api

    typer.echo(api.report(run))


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="DIR...", help="Folders of runs, one for each method.")],
    out: Annotated[Path | None, typer.Option(help="An HTML file to write, with the curves.")] = None,
) -> None:
    """Compare runs that select a feature map: test error at equal solver calls, and at equal seconds."""
    from archray.platform import api

    api.compare(runs, out=out)


@app.command()
def export(
    run: RunFolder,
    to: Annotated[str | None, typer.Option(help="Where to; a new folder. Default: DIR/export.")] = None,
) -> None:
    """Write the trained network: state_dict, architecture, a loader, and a torch.export program."""
    from archray.platform import api

    for path in api.export(run, to):
        typer.echo(path)


@app.command("list")
def list_(kind: Annotated[str, typer.Argument(help="spaces, datasets, proxies or methods.")]) -> None:
    """List what there is to search, train on, score with, and search by."""
    from archray.platform import api

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, description in api.list_names(kind).items():
        table.add_row(name, description)
    Console().print(table)


@app.command()
def proxies(
    space: SpaceName = None,
    data: Data = None,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(help="The Parquet table to write; it must not exist.")] = Path("pool.parquet"),
    size: Annotated[int | None, typer.Option(help="Canonical forms to score, drawn uniformly. Default: all.")] = None,
    chunk: Annotated[
        int | None, typer.Option(help="Architectures an actor gets at a time. Default: as many as take seconds.")
    ] = None,
    metrics: Annotated[
        str, typer.Option(help="Comma-separated; 'archray list proxies' names them.")
    ] = "grad_norm,snip,ntk_trace,kappa",
    seed: Seed = None,
    batch_size: Annotated[int | None, typer.Option(help="Images in the batch that all are scored on.")] = None,
    channels: Channels = None,
    cells: Cells = None,
    image_size: Annotated[int | None, typer.Option(help="Height and width to resize the images to.")] = None,
    address: Address = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any option of the scoring, e.g. network.init=he."),
    ] = None,
) -> None:
    """Score architectures of a space without training them. Interrupted, the same command continues."""
    from archray.cluster.connect import ClusterSettings
    from archray.platform import api
    from archray.platform.config import merge, nest, parse_assignment, validate
    from archray.trainables.data import DataSettings
    from archray.trainables.proxies import ProxySettings

    def told(paths: dict[str, Any]) -> dict[str, Any]:
        return merge(*(nest(path, value) for path, value in paths.items() if value is not None))

    scoring = told(
        {
            "metrics": [name.strip() for name in metrics.split(",")],
            "batch_size": batch_size,
            "network.channels": channels,
            "network.cells": cells,
        }
    )
    table = api.proxies(
        space or "nasbench201",
        out=out,
        size=size,
        chunk=chunk,
        seed=seed or 0,
        data_settings=validate(
            DataSettings, told({"name": data, "data_dir": data_dir, "image_size": image_size, "seed": seed})
        ),
        settings=validate(ProxySettings, merge(scoring, *(parse_assignment(text) for text in set_ or []))),
        cluster=validate(ClusterSettings, told({"address": address})),
    )
    failed = int(table["failure"].notna().sum())
    typer.echo(f"{out}: {len(table)} architectures, {failed} of them with a failure in column 'failure'")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"archray {archray.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command. Exit codes: 2 for bad input, 130 after Ctrl-C."""
    error_console = Console(stderr=True, highlight=False)
    try:
        app()
    except RunInterrupted as error:
        error_console.print(str(error), markup=False, soft_wrap=True)
        sys.exit(INTERRUPTED)
    except KeyboardInterrupt:
        error_console.print("Interrupted; what was finished is saved. Continue with: archray resume DIR")
        sys.exit(INTERRUPTED)
    except ArchrayError as error:
        error_console.print(f"archray: {error}", markup=False, soft_wrap=True)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
