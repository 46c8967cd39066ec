"""`archray bench info`: the content of a table of trained architectures, and the methods that can search it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.stats import spearmanr

from archray.platform.methods.hnas.config import KAPPA
from archray.platform.quantities import MISSING, signed, significant, whole_number
from archray.platform.report.statistics import MIN_POINTS
from archray.platform.show import aligned, print_text
from archray.plurals import count
from archray.trainables.spaces.encodings import NONE
from archray.trainables.tabular import Table, read_table


@dataclass(frozen=True)
class ColumnInfo:
    """Statistics of a column with a role, over the distinct networks.

    Attributes:
        missing: number of networks without a value in any of their spellings.
        lowest, highest: minimum and maximum.
        spearman: Spearman correlation with the objective; NaN for the objective itself, and for fewer than three
            networks.
    """

    column: str
    role: str
    missing: int
    lowest: float
    highest: float
    spearman: float


@dataclass(frozen=True)
class Spellings:
    """The spread of the objective over the spellings of one network.

    Attributes:
        networks: number of networks with several spellings.
        rows: number of rows of these networks.
        deviation: standard deviation (n - 1) within a network, the root of the mean variance.
        widest: largest range within a network.
    """

    networks: int
    rows: int
    deviation: float
    widest: float


@dataclass(frozen=True)
class TableInfo:
    """The content of a table.

    Attributes:
        rows: number of distinct architectures.
        networks: number of distinct networks.
        space: space of the architectures, or None.
        encoding: encoding that defines the distance between rows.
        mode: `max` if larger values are better, or `min`.
        columns: columns with a role, in the order objective, result, metrics, costs, and so on.
        others: columns without a role.
        spellings: spread over spellings; None unless networks have several spellings.
        trainings: largest number of training runs, for values with several runs.
        serves: kinds of search, with a text that describes whether they can use the table.
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
        """Returns JSON-serializable content; NaN becomes None."""
        document = asdict(self)
        for column in document["columns"]:
            column |= {key: None for key, value in column.items() if isinstance(value, float) and np.isnan(value)}
        return document


def table_info(file: str | Path, where: Mapping[str, str] | None = None, **roles: Any) -> TableInfo:
    """Reads the content of a table.

    Args:
        file, where, roles: as in `archray.trainables.tabular.read_table`.

    Raises: the errors of `read_table`.
    """
    table = read_table(file, where, **roles)
    columns = [ColumnInfo(*_column(table, column, role)) for column, role in _with_roles(table)]
    columns_with_roles = {*table.roles.columns, *table.roles.architecture, "architecture", "canonical"}
    return TableInfo(
        file=table.location,
        rows=len(table),
        networks=len(table.rows),
        space=table.space.base.name if table.space.base else None,
        encoding=table.space.encoding,
        mode=table.mode,
        columns=tuple(columns),
        others=tuple(column for column in table.frame.columns if column not in columns_with_roles),
        spellings=spread_over_spellings(table),
        trainings={value: runs.shape[1] for value, runs in table.trainings.items()},
        serves=_serves(table),
    )


def spread_over_spellings(table: Table) -> Spellings | None:
    """Computes the objective's spread over spellings of one network (note H3); None if no network has several."""
    representative = table.space.representative
    sizes = np.bincount(representative, minlength=len(table))
    several = np.flatnonzero(sizes[representative] > 1)
    if not len(several):
        return None
    order = several[np.argsort(representative[several], kind="stable")]
    groups = np.split(table.objective[order], np.flatnonzero(np.diff(representative[order])) + 1)
    variance = float(np.mean([np.var(group, ddof=1) for group in groups]))
    return Spellings(len(groups), len(order), variance**0.5, max(float(np.ptp(group)) for group in groups))


def _with_roles(table: Table) -> list[tuple[str, str]]:
    roles = table.roles
    columns = [(roles.objective, "objective"), (roles.result, "result")]
    columns += [(column, f"after {count(epoch, 'epoch')}") for epoch, column in roles.epochs.items()]
    columns += [(roles.seconds, "seconds")]
    columns += [(column, "metric") for column in roles.metrics] + [(column, "cost") for column in roles.costs]
    return [(column, role) for column, role in columns if column is not None]


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
    """Returns kinds of search, with a text that describes whether they can use the table."""
    encoding, base = table.space.encoding, table.space.base
    if base is not None:
        neighbors = f"yes, by the mutations of {base.name}"
    elif encoding == NONE:
        neighbors = "no: the table has no encoding (set --encoding)"
    else:
        neighbors = f"yes, nearest rows by the encoding {encoding}"
    metrics, epochs = count(len(table.metrics), "metric"), ", ".join(map(str, table.epochs))
    runs = table.roles.objective in table.trainings
    return {
        "random search": "yes",
        "neighbors (evolution, local search)": neighbors,
        "training-free metrics": f"yes, {metrics}" if table.metrics else "no: the table has no metric column",
        "largest first": f"yes, by {', '.join(table.costs)}" if table.costs else "no: the table has no cost column",
        "HNAS": "yes" if KAPPA in table.metrics and len(table.metrics) > 1 else "no: requires kappa and another metric",
        "early stopping (epochs)": f"yes, values after epoch {epochs}"
        if len(table.epochs) > 1
        else "no: one value per architecture",
        "a budget in seconds": "yes" if table.seconds is not None else "no: the table has no training times",
        "training runs drawn by seed": "yes" if runs else "no: one objective value per architecture",
    }


def print_info(info: TableInfo, console: Console) -> None:
    """Prints a table's rows, columns, spread and uses."""
    numbers = f"{count(info.rows, 'architecture')}, {count(info.networks, 'distinct network')}"
    space = f"{f'space {info.space}' if info.space else 'separate space'}, encoding {info.encoding}"
    lines = [info.file, f"{numbers}; {space}; {'larger' if info.mode == 'max' else 'smaller'} is better"]
    if (several := info.spellings) is not None:
        lines.append(
            f"{count(several.networks, 'network')} with several spellings ({count(several.rows, 'row')}): within a "
            f"network, the objective's standard deviation is {significant(several.deviation)}, and its largest range "
            f"{significant(several.widest)}; archray uses the row with the lowest index"
        )
    lines += [f"{value}: up to {count(number, 'training run')} each" for value, number in info.trainings.items()]
    rows = [("column", "role", "missing", "lowest", "highest", "Spearman")]
    for column in info.columns:
        missing = whole_number(column.missing) if column.missing else MISSING
        spearman = MISSING if np.isnan(column.spearman) else signed(f"{column.spearman:.2f}")
        values = significant(column.lowest, 5), significant(column.highest, 5)
        rows.append((column.column, column.role, missing, *values, spearman))
    lines += aligned(rows, left=2)
    if info.others:
        lines.append(f"without a role: {', '.join(info.others)}")
    print_text("\n".join([*lines, *aligned(list(info.serves.items()), left=2)]), console)
