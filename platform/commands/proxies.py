"""`archray proxies`: score architectures without training."""

from typing import Annotated

import typer

import archray
from archray.plurals import count


def proxy_names(text: str) -> list[str]:
    """Parses `--proxies`: comma-separated names or references; `all` stands for all metrics of archray."""
    from archray.trainables.proxies import PROXIES  # as in `proxies`

    names = [name.strip() for name in text.split(",")]
    if "all" not in names:
        return names
    return list(dict.fromkeys(proxy for name in names for proxy in (PROXIES.names() if name == "all" else [name])))


def proxies(
    space: Annotated[
        str, typer.Option("--space", help="Space ('archray list spaces'), or path.py:Class, module:Class.")
    ] = "nasbench201",
    data: Annotated[
        str,
        typer.Option(help="Data set ('archray list datasets'), folder:PATH, arrays:PATH.npz, or path.py:function."),
    ] = "digits",
    data_dir: Annotated[str | None, typer.Option(help="Folder of the data set's published files.")] = None,
    out: Annotated[str, typer.Option(help="Parquet file to write. It must not exist.")] = "pool.parquet",
    size: Annotated[
        int | None, typer.Option(help="Number of distinct architectures to draw uniformly and score. Default: all.")
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(help="Architectures per task of an actor. Default: as many as it scores in a few seconds."),
    ] = None,
    names: Annotated[
        str,
        typer.Option("--proxies", help="Comma-separated metrics ('archray list proxies'), 'all', or path.py:function."),
    ] = "grad_norm,snip,ntk_trace,kappa",
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the draw of --size architectures. Seeds of the split of the data and of the metrics: "
            "--set data.seed=0 --set seed=42."
        ),
    ] = 0,
    batch_size: Annotated[int | None, typer.Option(help="Number of images in the batch of all scores.")] = None,
    channels: Annotated[int | None, typer.Option(help="Channels C of the network's first stage.")] = None,
    cells: Annotated[int | None, typer.Option(help="Cells N per stage of the network.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Height and width to resize the images to.")] = None,
    cpus_per_trial: Annotated[
        float | None, typer.Option(help="CPUs, and threads of torch, for each actor. Default: 1.")
    ] = None,
    gpus_per_trial: Annotated[
        float | None, typer.Option(help="GPUs, or the share of one, for each actor. Default: 1 if there are GPUs.")
    ] = None,
    actors: Annotated[
        int | None, typer.Option(help="Number of actors that score. Default: as many as fit on the cluster.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join: auto or ip:port. Default: start Ray locally.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any option by its path, e.g. network.init=he, data.limit=1000 or cluster.num_cpus=4. Repeatable.",
        ),
    ] = None,
) -> None:
    """Score architectures of a space without training. After an interruption, run the command again to resume."""
    # imports take 0.1 s, and `archray --help` does not need them
    from archray.cluster.settings import ClusterSettings, ResourceSettings
    from archray.platform.config import merge, nested, parse_assignment, validate
    from archray.trainables.data import DataSettings
    from archray.trainables.proxies import ProxySettings

    class Options(ProxySettings):
        data: DataSettings
        resources: ResourceSettings = ResourceSettings()
        cluster: ClusterSettings = ClusterSettings()

    flags = {
        "metrics": proxy_names(names),
        "batch_size": batch_size,
        "network.channels": channels,
        "network.cells": cells,
        "data.name": data,
        "data.data_dir": data_dir,
        "data.image_size": image_size,
        "resources.cpus_per_trial": cpus_per_trial,
        "resources.gpus_per_trial": gpus_per_trial,
        "resources.actors": actors,
        "cluster.address": address,
    }
    options = validate(Options, merge(nested(flags), *map(parse_assignment, set_ or ())))
    table = archray.proxies(
        space,
        out=out,
        size=size,
        chunk=chunk,
        seed=seed,
        data_settings=options.data,
        settings=ProxySettings(**{name: getattr(options, name) for name in ProxySettings.model_fields}),
        resources=options.resources,
        cluster=options.cluster,
    )
    failed = int(table["failure"].notna().sum())
    typer.echo(f"{out}: {count(len(table), 'architecture')}, {failed} failed (see column 'failure')")
