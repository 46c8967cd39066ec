"""`archray bench METHOD...` and `archray bench proxies`: methods, and metrics, on a table of results."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import archray
from archray.errors import InvalidInput
from archray.platform.bench_command import Objective, Result, Where, import_, info, pairs

RUN = "run"
HELP = """Compare methods on a table of results, where a look-up stands for a training.

\b
  archray bench import nasbench201.csv.gz --out nb201.parquet
  archray bench evolution --table nb201.parquet --seeds 100 --budget 300 --out bench/evolution
  archray bench hnas --table nb201.parquet --metric snip,synflow --budget 20,100 --out bench/hnas
  archray bench proxies --table nb201.parquet

'archray bench METHOD...' is 'archray bench run METHOD...'; 'archray bench run --help' has its options.
"""

TableFile = Annotated[
    str, typer.Option("--table", help="What 'archray bench import' wrote, or a CSV or Parquet with well-known names.")
]


class _MethodsToo(TyperGroup):
    """A group whose command `run` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


def bench_app(context_settings: dict[str, Any]) -> typer.Typer:
    """The commands of `archray bench`."""
    app = typer.Typer(cls=_MethodsToo, help=HELP, no_args_is_help=True, context_settings=context_settings)
    for name, function in ((RUN, run), ("proxies", proxies), ("import", import_), ("info", info)):
        app.command(name, context_settings=context_settings)(function)
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
    metric: Annotated[str, typer.Option(help="The columns, a,b, for methods that go by one: a row for each.")] = "",
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
    Interrupted or killed, the same command goes on.
    """
    from archray.cluster.cluster_settings import ClusterSettings
    from archray.platform.bench.bench_tables import CAVEAT, lead, notes, written_differences, written_summary
    from archray.platform.config import validate

    told = archray.bench(
        methods,
        table=table,
        out=out,
        seeds=seeds,
        budget=None if budget is None else [_whole(text) for text in budget.split(",")],
        budget_seconds=budget_seconds,
        metric=[name.strip() for name in metric.split(",") if name.strip()],
        against=against,
        where=pairs("--where", where),
        objective=objective,
        result=result,
        cluster=None
        if address is None
        else validate(ClusterSettings, {"address": address, "dashboard": False, "warm_workers": False}),
    )
    typer.echo(lead(told))
    for each in told.question.budgets:
        _print(written_summary(told, each))
        _print(written_differences(told, each, against))
    for note in (*notes(told), CAVEAT):
        typer.echo(f"\n{note}")
    typer.echo(f"\n{told.folder}/bench.html")


def proxies(
    table: TableFile,
    out: Annotated[str | None, typer.Option(help="A folder for proxies.csv and proxies.md.")] = None,
    where: Where = None,
    objective: Objective = None,
    result: Result = None,
) -> None:
    """Correlate every metric of a table with its values: as it is, 1/M, κ/M, with trade-off."""
    from archray.platform.bench.correlation_tables import NOTE, written_correlations

    told = archray.bench_proxies(table, out=out, where=pairs("--where", where), objective=objective, result=result)
    _print(written_correlations(told))
    typer.echo(f"\n{NOTE}")


def _whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidInput(f"budget: expected whole numbers, as 20 or 20,100, got {text!r}")
    return int(text)


def _print(words: Any) -> None:
    """A table of text, its first column to the left."""
    rows = [list(words.columns), *words.astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    typer.echo("")
    for row in rows:
        cells = [
            f"{row[0]:<{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        typer.echo("  ".join(cells).rstrip())
