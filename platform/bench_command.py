"""`archray bench import` and `info`: the commands around tables of trained architectures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from archray.errors import InvalidInput

TABLES = "Columns"  # the panel of options that say what a table's columns are for

File = Annotated[str, typer.Argument(metavar="FILE", help="A CSV (also .csv.gz) or Parquet table.")]
Where = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value, e.g. task=jigsaw.")
]
Architecture = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN,...",
        help="What names an architecture: a column, several, or row, its number.",
        rich_help_panel=TABLES,
    ),
]
Objective = Annotated[str | None, typer.Option(metavar="COLUMN", help="What a search is told.", rich_help_panel=TABLES)]
Result = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="What a search is judged by.", rich_help_panel=TABLES)
]
Minimise = Annotated[
    bool, typer.Option("--minimise", help="A smaller value is better, as of errors.", rich_help_panel=TABLES)
]
Metrics = Annotated[
    str | None, typer.Option(metavar="COLUMN,...", help="Training-free metrics.", rich_help_panel=TABLES)
]
Costs = Annotated[
    str | None, typer.Option(metavar="COLUMN,...", help="Parameters, FLOPs, latencies.", rich_help_panel=TABLES)
]
Seconds = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Seconds that a training takes.", rich_help_panel=TABLES)
]
Epochs = Annotated[
    list[str] | None,
    typer.Option(metavar="EPOCH=COLUMN", help="The value after so many epochs.", rich_help_panel=TABLES),
]
Seeds = Annotated[
    list[str] | None,
    typer.Option(metavar="VALUE=COLUMN,...", help="Of a value the columns of its trainings.", rich_help_panel=TABLES),
]
SpaceName = Annotated[
    str | None,
    typer.Option(
        "--space", help="The space whose strings these are ('archray list spaces'), or none.", rich_help_panel=TABLES
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="What says which rows are near: tokens, columns:a,b, or none.", rich_help_panel=TABLES),
]


def import_(
    file: File,
    out: Annotated[
        Path | None, typer.Option(help="The Parquet file to write. Default: the name of FILE, in this folder.")
    ] = None,
    where: Where = None,
    join: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="A table of the same architectures, with further columns.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What rows are joined on. Default: index, or architecture.")
    ] = None,
    nats_bench: Annotated[
        bool, typer.Option("--nats-bench", help="FILE is of NATS-Bench: its folder, or its one .pickle.pbz2 file.")
    ] = False,
    dataset: Annotated[str, typer.Option(metavar="cifar10|cifar100|ImageNet16-120", help="Of NATS-Bench.")] = "cifar10",
    missing: Annotated[
        str, typer.Option(metavar="refuse|drop", help="Rows without a value: refuse the table, or leave them out.")
    ] = "refuse",
    architecture: Architecture = None,
    objective: Objective = None,
    result: Result = None,
    minimise: Minimise = False,
    metrics: Metrics = None,
    costs: Costs = None,
    seconds: Seconds = None,
    epochs: Epochs = None,
    seeds: Seeds = None,
    space: SpaceName = None,
    encoding: Encoding = None,
) -> None:
    """Check a table, join others to it, and write it as Parquet with what its columns are for."""
    from archray.platform.bench.table_import import import_nats_bench, import_table
    from archray.platform.bench.table_info import print_info, table_info

    roles = named_roles(
        architecture, objective, result, minimise, metrics, costs, seconds, epochs, seeds, space, encoding
    )
    options: dict[str, Any] = {**roles, "missing": missing}
    if nats_bench:
        if join or where or on:
            raise InvalidInput("--nats-bench: import its files alone; then import that table, with --join and --where")
        table = import_nats_bench(file, out, dataset=dataset, **options)
    else:
        table = import_table(file, out, where=pairs("--where", where), join=join or (), on=on, **options)
    print_info(table_info(table.location), Console())


def info(
    file: File,
    where: Where = None,
    architecture: Architecture = None,
    objective: Objective = None,
    result: Result = None,
    minimise: Minimise = False,
    metrics: Metrics = None,
    costs: Costs = None,
    seconds: Seconds = None,
    epochs: Epochs = None,
    seeds: Seeds = None,
    space: SpaceName = None,
    encoding: Encoding = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print what a table holds, and which searches it can serve.

    Rows, networks and their spellings; columns with their roles, what is missing, and their Spearman correlation with
    the objective, over different networks. Columns that are not named are what the import wrote, or else known by
    their names.
    """
    from archray.platform.bench.table_info import print_info, table_info

    told = table_info(
        file,
        pairs("--where", where),
        **named_roles(
            architecture, objective, result, minimise, metrics, costs, seconds, epochs, seeds, space, encoding
        ),
    )
    if as_json:
        typer.echo(json.dumps(told.to_dict(), indent=2, ensure_ascii=False))
    else:
        print_info(told, Console())


def named_roles(
    architecture: str | None,
    objective: str | None,
    result: str | None,
    minimise: bool,
    metrics: str | None,
    costs: str | None,
    seconds: str | None,
    epochs: list[str] | None,
    seeds: list[str] | None,
    space: str | None,
    encoding: str | None,
) -> dict[str, Any]:
    """What the options say of a table's columns, as `Roles` takes it; None where they say nothing."""
    return {
        "architecture": architecture,
        "objective": objective,
        "result": result,
        "mode": "min" if minimise else None,
        "metrics": metrics,
        "costs": costs,
        "seconds": seconds,
        "epochs": pairs("--epochs", epochs) or None,
        "seeds": pairs("--seeds", seeds) or None,
        "space": space,
        "encoding": encoding,
    }


def pairs(option: str, texts: list[str] | None) -> Mapping[str, str]:
    """`["task=jigsaw"]` -> `{"task": "jigsaw"}`. Raises: InvalidInput for a text without `=`."""
    read = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InvalidInput(f"{option}: expected NAME=VALUE, got {text!r}")
        read[name] = value
    return read
