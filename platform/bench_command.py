"""`archray bench import` and `info`: the commands around tables of trained architectures."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from archray.errors import InvalidInput

TABLES = "Columns"  # the panel of options that say what a table's columns are for

File = Annotated[str, typer.Argument(metavar="FILE", help="A CSV (also .csv.gz) or Parquet table.")]
Where = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value, e.g. task=jigsaw.")
]
Objective = Annotated[str | None, typer.Option(metavar="COLUMN", help="What a search is told.", rich_help_panel=TABLES)]
Result = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="What a search is judged by.", rich_help_panel=TABLES)
]


# The options that say what a table's columns are for, by name: a role, or `minimise`.
ROLES: dict[str, Any] = {
    "architecture": Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,...",
            help="What names an architecture: a column, several, or row, its number.",
            rich_help_panel=TABLES,
        ),
    ],
    "objective": Objective,
    "result": Result,
    "minimise": Annotated[
        bool, typer.Option("--minimise", help="A smaller value is better, as of errors.", rich_help_panel=TABLES)
    ],
    "metrics": Annotated[
        str | None, typer.Option(metavar="COLUMN,...", help="Training-free metrics.", rich_help_panel=TABLES)
    ],
    "costs": Annotated[
        str | None, typer.Option(metavar="COLUMN,...", help="Parameters, FLOPs, latencies.", rich_help_panel=TABLES)
    ],
    "seconds": Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Seconds that a training takes.", rich_help_panel=TABLES)
    ],
    "epochs": Annotated[
        list[str] | None,
        typer.Option(metavar="EPOCH=COLUMN", help="The value after so many epochs.", rich_help_panel=TABLES),
    ],
    "seeds": Annotated[
        list[str] | None,
        typer.Option(
            metavar="VALUE=COLUMN,...", help="Of a value the columns of its trainings.", rich_help_panel=TABLES
        ),
    ],
    "space": Annotated[
        str | None,
        typer.Option(
            "--space",
            help="The space whose strings these are ('archray list spaces'), or none.",
            rich_help_panel=TABLES,
        ),
    ],
    "encoding": Annotated[
        str | None,
        typer.Option(help="What says which rows are near: tokens, columns:a,b, or none.", rich_help_panel=TABLES),
    ],
}


def _with_roles(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of ROLES behind its own, which is told them as `roles`; see `_named`."""
    own = get_type_hints(command, include_extras=True)

    @wraps(command)
    def told(**options: Any) -> None:
        roles = {name: options.pop(name) for name in ROLES}
        command(**options, roles=_named(**roles))

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        parameter.replace(annotation=own[name], kind=keyword)
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "roles"
    ]
    parameters += [
        inspect.Parameter(name, keyword, default=False if name == "minimise" else None, annotation=kind)
        for name, kind in ROLES.items()
    ]
    told.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # which typer reads
    told.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return told


@_with_roles
def import_(
    file: File,
    out: Annotated[
        str | None, typer.Option(help="The Parquet file to write. Default: the name of FILE, in this folder.")
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
    *,
    roles: dict[str, Any],
) -> None:
    """Check a table, join others to it, and write it as Parquet with what its columns are for."""
    from archray.platform.bench.table_import import import_nats_bench, import_table
    from archray.platform.bench.table_info import print_info, table_info

    options: dict[str, Any] = {**roles, "missing": missing}
    if nats_bench:
        if join or where or on:
            raise InvalidInput("--nats-bench: import its files alone; then import that table, with --join and --where")
        table = import_nats_bench(file, out, dataset=dataset, **options)
    else:
        table = import_table(file, out, where=pairs("--where", where), join=join or (), on=on, **options)
    print_info(table_info(table.location), Console())


@_with_roles
def info(
    file: File,
    where: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    *,
    roles: dict[str, Any],
) -> None:
    """Print what a table holds, and which searches it can serve.

    Rows, networks and their spellings; columns with their roles, what is missing, and their Spearman correlation with
    the objective, over different networks. Columns that are not named are what the import wrote, or else known by
    their names.
    """
    from archray.platform.bench.table_info import print_info, table_info

    told = table_info(file, pairs("--where", where), **roles)
    if as_json:
        typer.echo(json.dumps(told.to_dict(), indent=2, ensure_ascii=False))
    else:
        print_info(told, Console())


def _named(*, minimise: bool, epochs: list[str] | None, seeds: list[str] | None, **roles: str | None) -> dict[str, Any]:
    """What the options say of a table's columns, as `Roles` takes it; None where they say nothing."""
    return {
        **roles,
        "mode": "min" if minimise else None,
        "epochs": pairs("--epochs", epochs) or None,
        "seeds": pairs("--seeds", seeds) or None,
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
