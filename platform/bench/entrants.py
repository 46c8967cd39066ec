"""The rows of a bench: methods as they are named on the command line, and those that stand in every table unasked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from archray.errors import ArchrayError, InvalidInput
from archray.platform.methods import METHODS, get_method
from archray.platform.methods.method import SearchProblem
from archray.trainables.proxies import low_is_good
from archray.trainables.tabular import Table
from archray.trainables.tabular.table_file import is_size

if TYPE_CHECKING:
    from ray.tune.search import Searcher

RANDOM_SEARCH = "random"  # the row of random search


@dataclass(frozen=True)
class Entrant:
    """A row of a bench.

    Attributes:
        label: what the tables call it, and what names it on the command line.
        name: of the method whose searcher it is; None for random search and for a column.
        options: what that searcher is told.
        column: the pool in the order of this column of the table, best first; None for a searcher.
        asked: whether the user named it.
    """

    label: str
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    column: str | None = None
    asked: bool = False

    def searcher(self, problem: SearchProblem, budget: int, seed: int) -> Searcher:
        """A new searcher. Raises: InvalidInput if the method cannot be told this, or not with this table."""
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
    """The rows of a bench: what was asked for and what stands beside it; random search; each column first.

    Args:
        words: `METHOD` or `METHOD:OPTION=VALUE,...`.
        proxies: the columns by which those methods go that go by one and name none.

    Raises: InvalidInput for a method that a table cannot answer, or a column that is not there.
    """
    for proxy in proxies:
        table.check_metric(proxy)
    rows = [row for word in words for row in _named(word, table, proxies)]
    rows += [Entrant(RANDOM_SEARCH), *(Entrant(f"{column} first", column=column) for column in columns_of(table))]
    return list({row.label: row for row in reversed(rows)}.values())[::-1]


def columns_of(table: Table) -> dict[str, np.ndarray]:
    """What every table is ranked by without being asked: costs that say how large a network is, then every metric."""
    sizes = {name: values for name, values in table.costs.items() if is_size(name)}
    return {**sizes, **table.metrics}


def _named(word: str, table: Table, proxies: Sequence[str]) -> list[Entrant]:
    name, _, text = word.partition(":")
    options = _options(word, text)
    method = METHODS.get(name)
    if method.searcher_at is None:
        able = [known for known in METHODS if METHODS.get(known).searcher_at is not None]
        raise InvalidInput(
            f"{name} cannot be run on a table here: it trains weights that architectures share, or ends trainings "
            f"early, and in a bench whole trainings are answered; choose one of {', '.join(able)}"
        )
    if not method.by_proxy:
        told = [(word, options)]
    elif "proxy" in options:
        table.check_metric(options["proxy"])
        told = [(word, options)]
    elif proxies:
        told = [(f"{word}{',' if text else ':'}proxy={proxy}", options | {"proxy": proxy}) for proxy in proxies]
    else:
        raise InvalidInput(
            f"{name} goes by one training-free metric: name one or several with --proxy, or one as "
            f"{name}:proxy=NAME; the table has {', '.join(table.metrics) or 'none'}"
        )
    rows = []
    for label, own in told:
        rows.append(Entrant(label, name, own, asked=True))
        rows += [Entrant(f"{label}, {beside}", name, {**own, **more}) for beside, more in method.beside.items()]
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
    """Whether a row depends on the seed: all but those of a column without equal values among its first."""
    if entrant.column is None:
        return True
    values = columns_of(table)[entrant.column][table.rows]
    values = np.sort(values[~np.isnan(values)])
    first = values[: budget + 1] if low_is_good(entrant.column) else values[-budget - 1 :]
    return len(np.unique(first)) < len(first)
