"""Report sections of costs: costs of a run's networks, their bounds, and the error of latency lookups."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from archray.platform.quantities import MISSING, quantity_of, significant
from archray.platform.report import section
from archray.platform.report.page import MakeSection
from archray.platform.report.section import PERCENT, Column, Section, numbers, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.costs import COSTS, cost_column
from archray.trainables.costs.meter import Line, is_noise, left_out_errors
from archray.trainables.costs.networks import spread_column
from archray.trainables.spaces.constrained_space import Constraint, parse_constraints, violation

_text = texts_of(__package__)
# Stages whose networks the report shows, and the purpose of their training; the search first.
_STAGES = {
    "search": "search",
    "selection": "selection",
    "final": "final training",
    "members": "final training",
    "baseline": "comparison",
}
_VALUES = ("validation_accuracy", "objective")  # values of a training run of the search
_OPEN = 24  # maximum rows of an unfolded table
_DIGITS = 4  # significant digits of a cost


def cost_sections(names_of: section.NamesOf) -> tuple[MakeSection, ...]:
    """Returns the sections of costs with their bounds, and of latency lookups; None for a run without costs."""

    def networks(run: Run[Any]) -> Section | None:
        costs = _Costs.of(run.best)
        return None if costs is None else costs.written(names_of(run))

    def look_up(run: Run[Any]) -> Section | None:
        return _look_up(run.best, names_of(run))

    return networks, look_up


@dataclass(frozen=True)
class _Costs:
    """The networks that a run trained, with their costs.

    Args:
        networks: a row per network: architecture, stage, a column per cost and for its spread, and the value of its
            training run in the search.
        columns: columns of the costs.
        key: key of the value; None if the search trained no network alone.
        constraints: text and parsed form of each constraint.
        found: the result, and the architecture that the run found.
        others: mean cost of the architectures for comparison by column; NaN without them.
    """

    networks: pd.DataFrame
    columns: Sequence[str]
    key: str | None
    constraints: Sequence[tuple[str, Constraint]]
    found: Sequence[str]
    others: pd.Series

    @classmethod
    def of(cls, run: Run[Any]) -> "_Costs | None":
        """Reads the costs of a run; None for a run without costs, or without trained networks yet."""
        names = list(dict.fromkeys(map(cost_column, getattr(run.config, "cost_names", ()))))
        tables = {stage: run.table(stage, TRIALS) for stage in _STAGES} if names else {}
        read = (*names, *map(spread_column, names), *_VALUES)
        rows = [
            trials[["architecture"]].assign(stage=stage, **{name: numbers(trials, name) for name in read})
            for stage, trials in tables.items()
            if "architecture" in trials
        ]
        if not rows:
            return None
        every = pd.concat(rows, ignore_index=True).dropna(subset=["architecture"])
        networks, others = every.drop_duplicates("architecture"), every[every["stage"] == "baseline"]
        columns = [name for name in names if networks[name].notna().any()]
        in_search = networks[networks["stage"] == "search"]
        key = next((name for name in _VALUES if in_search[name].notna().any()), None)
        texts = getattr(run.config, "constraints", ())
        bounds = [(text, bound) for text in texts for bound in parse_constraints([text]) if bound.column in columns]
        if not columns:
            return None
        return cls(networks, columns, key, bounds, section.result_strings(run), others[columns].mean())

    def broken(self, row: Mapping[Any, Any]) -> list[str]:
        """Returns the bounds that a network does not meet."""
        return [text for text, bound in self.constraints if violation([bound], row) > 0]

    def written(self, names: section.ShortNames) -> Section:
        broken = sum(bool(self.broken(row)) for row in self.networks.to_dict("records"))
        spreads = [(self.networks[b.column], self.networks[spread_column(b.column)]) for _, b in self.constraints]
        noise = max((int(is_noise(*spread).sum()) for spread in spreads), default=0)
        bounds = bool(self.constraints)
        text = _text("costs", networks=len(self.networks), bounds=bounds, broken=broken, noise=noise)
        networks = self._networks(names)
        if len(self.networks) > _OPEN:
            networks = section.folded(f"All {count(len(self.networks), 'network')}", networks)
        return Section("costs", "Costs of the networks", paragraphs([text]) + self._summary() + networks)

    def _summary(self) -> str:
        """Creates a row per cost: its bounds, the found networks, and all trained networks."""
        found = self.networks[self.networks["architecture"].isin(self.found)]
        broken = {text for row in found.to_dict("records") for text in self.broken(row)}
        rows = []
        for column in self.columns:
            bounds = [text for text, bound in self.constraints if bound.column == column]
            met = ("no" if broken.intersection(bounds) else "yes") if bounds and len(found) else MISSING
            spread = (_range(self.networks[column]), significant(self.others[column], _DIGITS))
            rows.append((_heading(column), " and ".join(bounds) or "none", _range(found[column]), met, *spread))
        columns = [Column("Cost"), Column("Bound"), *numeric("Found"), Column("Met")]
        columns += numeric("Range", "Comparison, mean")
        return table(columns, rows, label="Costs of the found networks, and their bounds", sortable=False)

    def _networks(self, names: section.ShortNames) -> str:
        """Creates a row per network: found networks first, then the others in the order of training."""
        value = None if self.key is None else quantity_of(self.key)
        columns = [Column("Architecture", "name"), Column("Trained for")]
        columns += numeric(*([value.heading] if value else []), *map(_heading, self.columns))
        columns += [Column("Bounds")] if self.constraints else []
        first = ~self.networks["architecture"].isin(self.found)
        rows = []
        for row in self.networks.loc[first.sort_values(kind="stable").index].to_dict("records"):
            searched = row["stage"] == "search"
            cells = [value.bare(row[self.key] if searched else None)] if value else []
            cells += [significant(row[column], _DIGITS) for column in self.columns]
            if self.constraints:
                cells.append(f"not {', '.join(broken)}" if (broken := self.broken(row)) else "met")
            rows.append((names.of(row["architecture"]), _STAGES[row["stage"]], *cells))
        return table(columns, rows, label="Networks and their costs", marked=0 if not first.all() else None)


def _heading(column: str) -> str:
    """Formats a cost with its unit."""
    unit = COSTS.get(column).unit if column in COSTS else ""
    return f"{column} ({unit})" if unit and not column.endswith(f"_{unit}") else column


def _range(values: pd.Series) -> str:
    """Formats minimum and maximum, or one value if they are equal."""
    ends = [significant(value, _DIGITS) for value in (values.min(), values.max())]
    return " to ".join(dict.fromkeys(ends))


def _look_up(run: Run[Any], names: section.ShortNames) -> Section | None:
    """Creates the section of the line from sums over operations to latencies, with its errors; None without a line."""
    folder = run.folder / "costs"
    record = folder.read_json("latency.json") if folder.exists("latency.json") else {}
    if not (fitted := record.get("calibration")):
        return None
    sums, whole = zip(*fitted["networks"].values(), strict=True)
    line = Line(fitted["overhead"], fitted["factor"])
    missed = left_out_errors(sums, whole) if len(whole) > 2 else [math.nan] * len(whole)
    rows = [
        (names.of(name), *map(significant, (total, line(total), time)), PERCENT.show(error))
        for name, total, time, error in zip(fitted["networks"], sums, whole, missed, strict=True)
    ]
    columns = [Column("Architecture", "name"), *numeric("Sum (ms)", "Lookup (ms)", "Measured (ms)", "Error")]
    error = None if fitted["error"] is None else PERCENT.show(fitted["error"])
    text = _text("latencies", line=line, networks=len(rows), error=error)
    body = table(columns, rows, label="Networks to which the lookup is fitted")
    return Section("lookup", "Latency lookup", section.captioned(body, text))
