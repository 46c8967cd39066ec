"""The rows of a bench: methods of the command line, and rows that every table has."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from archray.errors import ArchrayError, InvalidInput
from archray.platform.methods import METHODS, get_method
from archray.platform.methods.method import SearchProblem
from archray.trainables.proxies import low_is_good
from archray.trainables.tabular import Table
from archray.trainables.tabular.table_file import is_size

RANDOM_SEARCH = "random"  # the row of random search


@dataclass(frozen=True)
class Entrant:
    """A row of a bench.

    Attributes:
        label: its name in tables and on the command line.
        name: of the searcher's method; None for random search and for a column.
        options: of the searcher.
        column: the pool in the order of this column of the table, best first; None for a searcher.
        asked: whether the user named it.
    """

    label: str
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    column: str | None = None
    asked: bool = False

    def searcher(self, problem: SearchProblem, budget: int, seed: int) -> Any:
        """A new Tune searcher. Raises: InvalidInput for wrong options, also for this table."""
        if self.name is None:
            from archray.searchers import MetricFirst, RandomSearch

            if self.column is None:
                return RandomSearch(problem.space, budget, seed=seed)
            order: Literal["largest", "smallest"] = "smallest" if low_is_good(self.column) else "largest"
            return MetricFirst(problem.pool, self.column, budget, order, seed=seed)
        make = get_method(self.name).make_searcher
        assert make is not None  # `entrants` saw to it
        try:
            return make(problem, budget, seed, self.options)
        except TypeError as error:
            unknown = re.search(r"unexpected keyword argument ('\w+')", str(error))
            reason = f"{self.name} has no option {unknown[1]} in a bench; leave it out" if unknown else error
            raise InvalidInput(f"{self.label}: {reason}") from error
        except ArchrayError as error:
            raise InvalidInput(f"{self.label}: {error}") from error

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "options": dict(self.options)}


def entrants(words: Sequence[str], table: Table, proxies: Sequence[str] = ()) -> list[Entrant]:
    """The rows of a bench: the user's methods with their variants; random search; each column first.

    Args:
        words: `METHOD` or `METHOD:OPTION=VALUE,...`.
        proxies: columns for methods that use one and name none.

    Raises: InvalidInput for a method that a table cannot serve, or an unknown column.
    """
    for proxy in proxies:
        table.check_metric(proxy)
    rows = [row for word in words for row in _named(word, table, proxies)]
    rows += [Entrant(RANDOM_SEARCH), *(Entrant(f"{column} first", column=column) for column in columns_of(table))]
    return list({row.label: row for row in reversed(rows)}.values())[::-1]


def columns_of(table: Table) -> dict[str, np.ndarray]:
    """The columns with a row in every bench: costs that measure the size of a network, then every metric."""
    sizes = {name: values for name, values in table.costs.items() if is_size(name)}
    return {**sizes, **table.metrics}


def _named(word: str, table: Table, proxies: Sequence[str]) -> list[Entrant]:
    name, _, text = word.partition(":")
    options = _options(word, text)
    method = METHODS.get(name)
    if method.searcher_at is None:
        names = [other for other in METHODS if METHODS.get(other).searcher_at is not None]
        raise InvalidInput(
            f"{name} cannot run on a table: it trains shared weights, or stops training runs early, and a table has "
            f"results of whole training runs; choose one of {', '.join(names)}"
        )
    variants = [(word, options)]
    if method.by_proxy and "proxy" in options:
        table.check_metric(options["proxy"])
    elif method.by_proxy and proxies:
        variants = [(f"{word}{',' if text else ':'}proxy={proxy}", options | {"proxy": proxy}) for proxy in proxies]
    elif method.by_proxy:
        raise InvalidInput(
            f"{name} uses one training-free metric: name one or several with --proxy, or one as "
            f"{name}:proxy=NAME; the table has {', '.join(table.metrics) or 'none'}"
        )
    rows = []
    for label, values in variants:
        rows.append(Entrant(label, name, values, asked=True))
        rows += [Entrant(f"{label}, {beside}", name, {**values, **more}) for beside, more in method.beside.items()]
    return rows


def _options(word: str, text: str) -> dict[str, Any]:
    """`a=1,b=x` -> `{"a": 1, "b": "x"}`; a value that is JSON is read as such. Raises: InvalidInput."""
    options: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise InvalidInput(f"expected METHOD or METHOD:OPTION=VALUE,OPTION=VALUE, got {word!r}")
        try:
            options[name.strip()] = json.loads(value)
        except ValueError:
            options[name.strip()] = value
    return options


def is_drawn(entrant: Entrant, table: Table, budget: int) -> bool:
    """Whether a row depends on the seed: all rows except a column without equal values among its first ones."""
    if entrant.column is None:
        return True
    values = columns_of(table)[entrant.column][table.rows]
    values = np.sort(values[~np.isnan(values)])
    first = values[: budget + 1] if low_is_good(entrant.column) else values[-budget - 1 :]
    return len(np.unique(first)) < len(first)
