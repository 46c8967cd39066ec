"""`archray bench`: compare methods and metrics on a table of results; `import` and `info` prepare such tables."""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from typer.core import TyperGroup

import archray
from archray.errors import InvalidInput

RUN = "run"
HELP = """Compare methods on a table of results, where a lookup replaces a training run.

\b
  archray bench import nasbench201.csv.gz --out nb201.parquet
  archray bench evolution --table nb201.parquet --seeds 100 --budget 300 --out bench/evolution
  archray bench hnas --table nb201.parquet --proxy snip,synflow --budget 20,100 --out bench/hnas
  archray bench proxies --table nb201.parquet

'archray bench METHOD...' is short for 'archray bench run METHOD...'. See 'archray bench run --help' for its options.
"""

TABLES = "Columns"  # the help panel of the options that assign roles to a table's columns

File = Annotated[str, typer.Argument(metavar="FILE", help="CSV (.csv, .csv.gz) or Parquet table.")]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN=VALUE", help="Use only rows with this value, e.g. task=jigsaw. Repeatable."),
]
Objective = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column that the search optimizes.", rich_help_panel=TABLES)
]
Result = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column that rates the found architecture.", rich_help_panel=TABLES),
]


def _role(help_text: str, *names: str, metavar: str | None = None, kind: Any = str | None) -> Any:
    return Annotated[kind, typer.Option(*names, metavar=metavar, help=help_text, rich_help_panel=TABLES)]


# Options that assign roles to a table's columns, by name: a role, or `minimize`.
ROLES: dict[str, Any] = {
    "architecture": _role(
        "Column, or columns, that identify an architecture; 'row' uses the row number.", metavar="COLUMN,..."
    ),
    "objective": Objective,
    "result": Result,
    "minimize": _role("Treat smaller objectives as better, e.g. for errors.", "--minimize", kind=bool),
    "metrics": _role("Columns of training-free metrics.", "--proxies", metavar="COLUMN,..."),
    "costs": _role("Columns of costs: parameters, FLOPs, latency.", metavar="COLUMN,..."),
    "seconds": _role("Column of the training time in seconds.", metavar="COLUMN"),
    "epochs": _role(
        "Column of the objective after this epoch. Repeatable.", metavar="EPOCH=COLUMN", kind=list[str] | None
    ),
    "seeds": _role(
        "Columns of the training runs whose mean is the column VALUE. Repeatable.",
        metavar="VALUE=COLUMN,...",
        kind=list[str] | None,
    ),
    "space": _role("Space of the architecture strings ('archray list spaces'), or none.", "--space"),
    "encoding": _role("Encoding that defines which rows are similar: tokens, columns:a,b, or none."),
}
TableFile = Annotated[
    str,
    typer.Option("--table", help="Table written by 'archray bench import', or CSV or Parquet with known column names."),
]


class _MethodsToo(TyperGroup):
    """A command group whose default command is `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


def bench_app() -> typer.Typer:
    """Builds the command group `archray bench`."""
    app = typer.Typer(cls=_MethodsToo, help=HELP, no_args_is_help=True)
    for name, function in ((RUN, run), ("proxies", proxies), ("import", import_), ("info", info)):
        app.command(name)(function)
    return app


def run(
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD...",
            help="Method names ('archray list methods'), with searcher options if needed: evolution:population=50.",
        ),
    ],
    table: TableFile,
    out: Annotated[str, typer.Option(help="Output folder. If it contains this bench, the bench resumes.")],
    seeds: Annotated[int, typer.Option(help="Number of searches per row, with seeds 0, 1, ....")] = 20,
    budget: Annotated[
        str | None, typer.Option(help="Evaluations per search. 20,100 runs separate searches for each budget. [20]")
    ] = None,
    budget_seconds: Annotated[
        float | None,
        typer.Option(help="Training seconds per search, as listed in the table. Replaces --budget."),
    ] = None,
    proxy: Annotated[
        str, typer.Option(help="Metric columns, a,b, for methods that use one metric. Adds one row per column.")
    ] = "",
    against: Annotated[str, typer.Option(help="Row that the other rows are compared with, seed by seed.")] = "random",
    where: Where = None,
    objective: Objective = None,
    result: Result = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join: auto or ip:port. Default: start Ray locally.")
    ] = None,
) -> None:
    """Run methods on a table with many seeds, and compare them with simple baselines.

    The baselines are random search, largest first, and each metric first. Writes summary.csv, searches.csv,
    differences.csv, bench.md and bench.html (tables, regret over the budget). After an interruption, run the same
    command again to resume.
    """
    # Imports in functions keep `archray --help` fast: it needs neither pandas nor the settings. So below.
    from archray.cluster.settings import ClusterSettings
    from archray.platform.bench.page import CAVEAT, lead, notes, written_differences, written_summary
    from archray.platform.config import validate

    bench = archray.bench(
        methods,
        table=table,
        out=out,
        seeds=seeds,
        budget=None if budget is None else [_whole(text) for text in budget.split(",")],
        budget_seconds=budget_seconds,
        proxy=[name.strip() for name in proxy.split(",") if name.strip()],
        against=against,
        where=pairs("--where", where),
        objective=objective,
        result=result,
        cluster=None
        if address is None
        else validate(ClusterSettings, {"address": address, "dashboard": False, "warm_workers": False}),
    )
    typer.echo(lead(bench))
    for size in bench.question.budgets:
        _print(written_summary(bench, size))
        _print(written_differences(bench, size, against))
    for note in (*notes(bench), CAVEAT):
        typer.echo(f"\n{note}")
    typer.echo(f"\n{bench.folder}/bench.html")


def proxies(
    table: TableFile,
    out: Annotated[str | None, typer.Option(help="Output folder for proxies.csv and proxies.md.")] = None,
    where: Where = None,
    objective: Objective = None,
    result: Result = None,
) -> None:
    """Correlate every metric M of a table with its values, in four forms: M, 1/M, κ/M and HNAS's trade-off."""
    from archray.platform.bench.correlations import NOTE, written_correlations

    correlations = archray.bench_proxies(
        table, out=out, where=pairs("--where", where), objective=objective, result=result
    )
    _print(written_correlations(correlations))
    typer.echo(f"\n{NOTE}")


def _whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidInput(f"budget: expected whole numbers such as 20 or 20,100, got {text!r}")
    return int(text)


def _print(words: Any) -> None:
    """Prints a table of text; its first column is left-aligned."""
    from archray.platform.show import aligned  # as in `run`

    rows = [list(words.columns), *words.astype(str).to_numpy().tolist()]
    for line in ("", *aligned(rows)):
        typer.echo(line)


def _with_roles(command: Callable[..., None]) -> Callable[..., None]:
    """Appends the options of ROLES to a command, which receives them as `roles`, the arguments of `Roles`."""
    annotations = get_type_hints(command, include_extras=True)

    @wraps(command)
    def with_roles(**options: Any) -> None:
        roles = {name: options.pop(name) for name in ROLES}
        roles["mode"] = "min" if roles.pop("minimize") else None
        roles |= {name: pairs(f"--{name}", roles[name]) or None for name in ("epochs", "seeds")}
        command(**options, roles=roles)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        parameter.replace(annotation=annotations[name], kind=keyword)
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "roles"
    ]
    parameters += [
        inspect.Parameter(name, keyword, default=False if name == "minimize" else None, annotation=kind)
        for name, kind in ROLES.items()
    ]
    with_roles.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    with_roles.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_roles


@_with_roles
def import_(
    file: File,
    out: Annotated[
        str | None, typer.Option(help="Parquet file to write. Default: the name of FILE, in the current folder.")
    ] = None,
    where: Where = None,
    join: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Table of the same architectures with further columns. Repeatable."),
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column to join on. Default: index, or architecture.")
    ] = None,
    nats_bench: Annotated[
        bool, typer.Option("--nats-bench", help="Read FILE as NATS-Bench: its folder, or its single .pickle.pbz2 file.")
    ] = False,
    dataset: Annotated[
        str, typer.Option(metavar="cifar10|cifar100|ImageNet16-120", help="Data set of NATS-Bench.")
    ] = "cifar10",
    missing: Annotated[
        str, typer.Option(metavar="raise|drop", help="Action on rows without a value: reject the table, or drop them.")
    ] = "raise",
    *,
    roles: dict[str, Any],
) -> None:
    """Check a table, join other tables to it, and write it as Parquet with the roles of its columns."""
    from archray.platform.bench.table_import import import_nats_bench, import_table
    from archray.platform.bench.table_info import print_info, table_info

    options: dict[str, Any] = {**roles, "missing": missing}
    if nats_bench:
        if join or where or on:
            raise InvalidInput(
                "expected --nats-bench without --join, --where and --on. Import NATS-Bench first; then import the "
                "resulting table with these options"
            )
        table = import_nats_bench(file, out, dataset=dataset, **options)
    else:
        table = import_table(file, out, where=pairs("--where", where), join=join or (), on=on, **options)
    print_info(table_info(table.location), Console())


@_with_roles
def info(
    file: File,
    where: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    roles: dict[str, Any],
) -> None:
    """Print the content of a table, and the methods that can search it.

    The output has the numbers of rows, distinct networks and their spellings, and each column's role, missing values
    and Spearman correlation with the objective over distinct networks. Roles without an option come from the import,
    or from the names of the columns.
    """
    from archray.platform.bench.table_info import print_info, table_info

    content = table_info(file, pairs("--where", where), **roles)
    if as_json:
        typer.echo(json.dumps(content.to_dict(), indent=2, ensure_ascii=False))
    else:
        print_info(content, Console())


def pairs(option: str, texts: list[str] | None) -> Mapping[str, str]:
    """Parses `["task=jigsaw"]` to `{"task": "jigsaw"}`. Raises: InvalidInput for a text without `=`."""
    read = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InvalidInput(f"{option}: expected NAME=VALUE, got {text!r}")
        read[name] = value
    return read
