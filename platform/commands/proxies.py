"""`archray proxies`: the command around the function of that name."""

from typing import Annotated

import typer

import archray
from archray.plurals import count


def proxy_names(text: str) -> list[str]:
    """The metrics of `--proxies`: names or references, separated by commas; `all` stands for archray's metrics."""
    from archray.trainables.proxies import PROXIES  # as in `proxies`

    names = [name.strip() for name in text.split(",")]
    if "all" not in names:
        return names
    return list(dict.fromkeys(proxy for name in names for proxy in (PROXIES.names() if name == "all" else [name])))


def proxies(
    space: Annotated[
        str, typer.Option("--space", help="A space ('archray list spaces'), or path.py:Class, module:Class.")
    ] = "nasbench201",
    data: Annotated[
        str,
        typer.Option(help="A data set ('archray list datasets'), folder:PATH, arrays:PATH.npz, or path.py:function."),
    ] = "digits",
    data_dir: Annotated[str | None, typer.Option(help="The folder of the data set's published files.")] = None,
    out: Annotated[str, typer.Option(help="The Parquet table to write; it must not exist.")] = "pool.parquet",
    size: Annotated[int | None, typer.Option(help="Canonical forms to score, drawn uniformly. Default: all.")] = None,
    chunk: Annotated[
        int | None, typer.Option(help="Architectures an actor gets at a time. Default: as many as take seconds.")
    ] = None,
    names: Annotated[
        str,
        typer.Option(
            "--proxies", help="Comma-separated names ('archray list proxies'), all of them (all), or path.py:function."
        ),
    ] = "grad_norm,snip,ntk_trace,kappa",
    seed: Annotated[int, typer.Option(help="Root of every random choice.")] = 0,
    batch_size: Annotated[int | None, typer.Option(help="Images in the batch for all scores.")] = None,
    channels: Annotated[int | None, typer.Option(help="Channels of the first stage, C.")] = None,
    cells: Annotated[int | None, typer.Option(help="Cells per stage of the network, N.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Height and width to resize the images to.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join: auto or ip:port. A local Ray by default.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any option of the scoring, e.g. network.init=he."),
    ] = None,
) -> None:
    """Score architectures of a space without training them. After an interruption the same command resumes."""
    # 0.1 s, which `archray --help` does without
    from archray.cluster.settings import ClusterSettings
    from archray.platform.config import merge, nested, parse_assignment, validate
    from archray.trainables.data import DataSettings
    from archray.trainables.proxies import ProxySettings

    network = {"network.channels": channels, "network.cells": cells}
    scoring = nested({"metrics": proxy_names(names), "batch_size": batch_size, **network})
    dataset = nested({"name": data, "data_dir": data_dir, "image_size": image_size, "seed": seed})
    table = archray.proxies(
        space,
        out=out,
        size=size,
        chunk=chunk,
        seed=seed,
        data_settings=validate(DataSettings, dataset),
        settings=validate(ProxySettings, merge(scoring, *map(parse_assignment, set_ or ()))),
        cluster=validate(ClusterSettings, nested({"address": address})),
    )
    failed = int(table["failure"].notna().sum())
    typer.echo(f"{out}: {count(len(table), 'architecture')}, {failed} of them with a failure in column 'failure'")
