"""`archray bench`: methods and metrics on a table of results; `import` and `info` for these tables."""

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

'archray bench METHOD...' is 'archray bench run METHOD...'; 'archray bench run --help' has its options.
"""

TABLES = "Columns"  # the panel of options that say what a table's columns are for

File = Annotated[str, typer.Argument(metavar="FILE", help="A CSV (also .csv.gz) or Parquet table.")]
Where = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value, e.g. task=jigsaw.")
]
Objective = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column that a search optimizes.", rich_help_panel=TABLES)
]
Result = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="What a search is judged by.", rich_help_panel=TABLES)
]


def _role(help_text: str, *names: str, metavar: str | None = None, kind: Any = str | None) -> Any:
    return Annotated[kind, typer.Option(*names, metavar=metavar, help=help_text, rich_help_panel=TABLES)]


# The options that say what a table's columns are for, by name: a role, or `minimise`.
ROLES: dict[str, Any] = {
    "architecture": _role("What names an architecture: a column, several, or row, its number.", metavar="COLUMN,..."),
    "objective": Objective,
    "result": Result,
    "minimise": _role("A smaller value is better, as of errors.", "--minimise", kind=bool),
    "metrics": _role("Training-free metrics.", "--proxies", metavar="COLUMN,..."),
    "costs": _role("Parameters, FLOPs, latencies.", metavar="COLUMN,..."),
    "seconds": _role("Seconds that a training takes.", metavar="COLUMN"),
    "epochs": _role("The value after so many epochs.", metavar="EPOCH=COLUMN", kind=list[str] | None),
    "seeds": _role("Of a value the columns of its trainings.", metavar="VALUE=COLUMN,...", kind=list[str] | None),
    "space": _role("The space whose strings these are ('archray list spaces'), or none.", "--space"),
    "encoding": _role("What says which rows are near: tokens, columns:a,b, or none."),
}
TableFile = Annotated[
    str, typer.Option("--table", help="What 'archray bench import' wrote, or a CSV or Parquet with well-known names.")
]


class _MethodsToo(TyperGroup):
    """A group whose command `run` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


def bench_app() -> typer.Typer:
    """The commands of `archray bench`."""
    app = typer.Typer(cls=_MethodsToo, help=HELP, no_args_is_help=True)
    for name, function in ((RUN, run), ("proxies", proxies), ("import", import_), ("info", info)):
        app.command(name)(function)
    return app


def run(
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD...",
            help="Names ('archray list methods'), each with options of its searcher: evolution:population=50.",
        ),
    ],
    table: TableFile,
    out: Annotated[str, typer.Option(help="Folder of the bench. If it holds this bench, the bench resumes.")],
    seeds: Annotated[int, typer.Option(help="Searches of each row; their seeds are 0, 1, ....")] = 20,
    budget: Annotated[
        str | None, typer.Option(help="Evaluations of a search; several, 20,100, are searches of their own. [20]")
    ] = None,
    budget_seconds: Annotated[
        float | None, typer.Option(help="Training seconds of a search, as the table has them, in their place.")
    ] = None,
    proxy: Annotated[str, typer.Option(help="The columns, a,b, for methods that go by one: a row for each.")] = "",
    against: Annotated[str, typer.Option(help="The row that the others are compared with, seed by seed.")] = "random",
    where: Where = None,
    objective: Objective = None,
    result: Result = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join: auto or ip:port. A local Ray by default.")
    ] = None,
) -> None:
    """Run methods on a table with many seeds, beside random search, the largest first and each metric first.

    Writes summary.csv, searches.csv, differences.csv, bench.md and bench.html (tables, regret over the budget).
    After an interruption or a kill, the same command resumes.
    """
    # pandas, and settings: `archray --help` does without them, and so in the other commands here
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
    out: Annotated[str | None, typer.Option(help="A folder for proxies.csv and proxies.md.")] = None,
    where: Where = None,
    objective: Objective = None,
    result: Result = None,
) -> None:
    """Correlate every metric of a table with its values: as it is, 1/M, κ/M, with trade-off."""
    from archray.platform.bench.correlations import NOTE, written_correlations

    correlations = archray.bench_proxies(
        table, out=out, where=pairs("--where", where), objective=objective, result=result
    )
    _print(written_correlations(correlations))
    typer.echo(f"\n{NOTE}")


def _whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidInput(f"budget: expected whole numbers, as 20 or 20,100, got {text!r}")
    return int(text)


def _print(words: Any) -> None:
    """A table of text, its first column to the left."""
    from archray.platform.show import aligned  # as in `run`

    rows = [list(words.columns), *words.astype(str).to_numpy().tolist()]
    for line in ("", *aligned(rows)):
        typer.echo(line)


def _with_roles(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of ROLES after its own; it receives them as `roles`, the arguments of `Roles`."""
    annotations = get_type_hints(command, include_extras=True)

    @wraps(command)
    def with_roles(**options: Any) -> None:
        roles = {name: options.pop(name) for name in ROLES}
        roles["mode"] = "min" if roles.pop("minimise") else None
        roles |= {name: pairs(f"--{name}", roles[name]) or None for name in ("epochs", "seeds")}
        command(**options, roles=roles)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        parameter.replace(annotation=annotations[name], kind=keyword)
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "roles"
    ]
    parameters += [
        inspect.Parameter(name, keyword, default=False if name == "minimise" else None, annotation=kind)
        for name, kind in ROLES.items()
    ]
    with_roles.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # which typer reads
    with_roles.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_roles


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

    content = table_info(file, pairs("--where", where), **roles)
    if as_json:
        typer.echo(json.dumps(content.to_dict(), indent=2, ensure_ascii=False))
    else:
        print_info(content, Console())


def pairs(option: str, texts: list[str] | None) -> Mapping[str, str]:
    """`["task=jigsaw"]` -> `{"task": "jigsaw"}`. Raises: InvalidInput for a text without `=`."""
    read = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InvalidInput(f"{option}: expected NAME=VALUE, got {text!r}")
        read[name] = value
    return read
