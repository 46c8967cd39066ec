"""`archray bench info`: what a table of trained architectures holds, and which searches it can serve."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.stats import spearmanr

from archray.platform.methods.hnas.config import KAPPA
from archray.platform.quantities import MISSING, signed, significant, whole_number
from archray.platform.report.statistics import MIN_POINTS
from archray.plurals import count
from archray.trainables.spaces.encodings import NONE
from archray.trainables.tabular import Table, read_table


@dataclass(frozen=True)
class ColumnInfo:
    """A column that has a role, over the different networks.

    Attributes:
        missing: how many networks have no value, in none of their spellings.
        lowest, highest: of its values.
        spearman: with the objective; NaN for the objective itself, and for fewer than three networks.
    """

    column: str
    role: str
    missing: int
    lowest: float
    highest: float
    spearman: float


@dataclass(frozen=True)
class Spellings:
    """How far the objective is apart between the spellings of one network.

    Attributes:
        networks: of those with several spellings, of which the table has `rows`.
        deviation: standard deviation (n - 1) within a network, the root of the mean variance.
        widest: the largest range.
    """

    networks: int
    rows: int
    deviation: float
    widest: float


@dataclass(frozen=True)
class TableInfo:
    """What is in a table.

    Attributes:
        rows: with an architecture of their own. networks: different ones.
        space: the space whose strings they are, or None. encoding: what says which rows are near.
        mode: `max` if a larger value is better, or `min`.
        columns: those with a role, in the order objective, result, metrics, costs, and so on.
        others: columns without a role.
        spellings: None unless there are networks with several.
        trainings: of a value that was trained several times, how many times at most.
        serves: kinds of search, and in words whether the table can serve them.
    """

    file: str
    rows: int
    networks: int
    space: str | None
    encoding: str
    mode: str
    columns: tuple[ColumnInfo, ...]
    others: tuple[str, ...]
    spellings: Spellings | None
    trainings: Mapping[str, int]
    serves: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; what is not known is None."""
        told = asdict(self)
        for column in told["columns"]:
            column |= {key: None for key, value in column.items() if isinstance(value, float) and np.isnan(value)}
        return told


def table_info(file: str | Path, where: Mapping[str, str] | None = None, **roles: Any) -> TableInfo:
    """What is in a table. where, roles: see `archray.trainables.tabular.read_table`, which says what is refused."""
    table = read_table(file, where, **roles)
    known = table.roles
    columns = [ColumnInfo(*_column(table, column, role)) for column, role in _with_roles(table)]
    taken = {*known.columns, *known.architecture, "architecture", "canonical"}
    return TableInfo(
        file=table.location,
        rows=len(table),
        networks=len(table.rows),
        space=table.space.base.name if table.space.base else None,
        encoding=table.space.encoding,
        mode=table.mode,
        columns=tuple(columns),
        others=tuple(column for column in table.frame.columns if column not in taken),
        spellings=spread_over_spellings(table),
        trainings={value: trainings.shape[1] for value, trainings in table.trainings.items()},
        serves=_serves(table),
    )


def spread_over_spellings(table: Table) -> Spellings | None:
    """How far the objective is apart between spellings of one network (note H3); None if no network has several."""
    standing = table.space.representative
    sizes = np.bincount(standing, minlength=len(table))
    several = np.flatnonzero(sizes[standing] > 1)
    if not len(several):
        return None
    order = several[np.argsort(standing[several], kind="stable")]
    groups = np.split(table.objective[order], np.flatnonzero(np.diff(standing[order])) + 1)
    variance = float(np.mean([np.var(group, ddof=1) for group in groups]))
    return Spellings(len(groups), len(order), variance**0.5, max(float(np.ptp(group)) for group in groups))


def _with_roles(table: Table) -> list[tuple[str, str]]:
    roles = table.roles
    named = [(roles.objective, "objective"), (roles.result, "result")]
    named += [(column, f"after {count(epoch, 'epoch')}") for epoch, column in roles.epochs.items()]
    named += [(roles.seconds, "seconds")]
    named += [(column, "metric") for column in roles.metrics] + [(column, "cost") for column in roles.costs]
    return [(column, role) for column, role in named if column is not None]


def _column(table: Table, column: str, role: str) -> tuple[str, str, int, float, float, float]:
    values = {**table.metrics, **table.costs}.get(column)
    if values is None:
        values = table.frame[column].to_numpy(dtype=np.float64)
    values, objective = values[table.rows], table.objective[table.rows]
    finite = np.isfinite(values)
    few = finite.sum() < MIN_POINTS or role == "objective" or np.ptp(values[finite]) == 0
    spearman = np.nan if few else float(spearmanr(values[finite], objective[finite]).statistic)
    return column, role, int((~finite).sum()), float(np.nanmin(values)), float(np.nanmax(values)), spearman


def _serves(table: Table) -> dict[str, str]:
    """Kinds of search, and whether the table can serve them, in words."""
    encoding, base = table.space.encoding, table.space.base
    if base is not None:
        neighbours = f"yes, by the mutations of {base.name}"
    elif encoding == NONE:
        neighbours = "no: no encoding says which rows are near; name one (--encoding)"
    else:
        neighbours = f"yes, the nearest by the encoding {encoding}"
    metrics = count(len(table.metrics), "metric")
    kinds = {
        "random search": "yes",
        "neighbours (evolution, local search)": neighbours,
        "training-free metrics": f"yes, {metrics}" if table.metrics else "no: no metric has a column",
        "largest first": f"yes, by {', '.join(table.costs)}" if table.costs else "no: no cost has a column",
        "HNAS": "yes" if KAPPA in table.metrics and len(table.metrics) > 1 else "no: it needs kappa and another metric",
        "early stopping (epochs)": (
            f"yes, values after epoch {', '.join(map(str, table.epochs))}"
            if len(table.epochs) > 1
            else "no: one value each"
        ),
        "a budget in seconds": "yes" if table.seconds is not None else "no: no training seconds",
    }
    drawn = table.roles.objective in table.trainings
    kinds["trainings drawn by seed"] = "yes" if drawn else "no: one value of the objective each"
    return kinds


def print_info(info: TableInfo, console: Console) -> None:
    """A table's rows, columns, spread and uses, in lines."""

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False, emoji=False)

    better = "larger" if info.mode == "max" else "smaller"
    say(info.file)
    say(
        f"{count(info.rows, 'architecture')}, {count(info.networks, 'different network')}; "
        f"{f'strings of {info.space}' if info.space else 'a space of its own'}, encoding {info.encoding}; "
        f"a {better} value is better"
    )
    if info.spellings is not None:
        several = info.spellings
        say(
            f"{count(several.networks, 'network')} in several spellings, {count(several.rows, 'row')}: the objective's "
            f"standard deviation within one is {significant(several.deviation)}, its widest range "
            f"{significant(several.widest)}; the row with the lowest index stands for all"
        )
    for value, number in info.trainings.items():
        say(f"{value}: up to {count(number, 'training')} each")
    headings = ("column", "role", "missing", "lowest", "highest", "Spearman")
    cells = [
        (
            column.column,
            column.role,
            whole_number(column.missing) if column.missing else MISSING,
            significant(column.lowest, 5),
            significant(column.highest, 5),
            MISSING if np.isnan(column.spearman) else signed(f"{column.spearman:.2f}"),
        )
        for column in info.columns
    ]
    for line in _aligned([headings, *cells], words=2):
        say(line)
    if info.others:
        say(f"without a role: {', '.join(info.others)}")
    for line in _aligned(list(info.serves.items()), words=2):
        say(line)


def _aligned(rows: Sequence[Sequence[str]], words: int) -> list[str]:
    """Lines whose columns stand below each other, the first `words` of them to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [f"{cell:<{width}}" if place < words else f"{cell:>{width}}" for place, (cell, width) in enumerate(cells)]
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    return ["  ".join(cells).rstrip() for cells in aligned]
