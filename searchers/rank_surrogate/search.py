"""A search over a pool with several metrics, by one surrogate of ranks and codes; and its base class."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import pandas as pd

from archray.errors import InvalidInput, InvalidPool
from archray.searchers.arguments import FloatArray, IntArray, SearcherOptions, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.bayesian_optimization import losses_of_answers
from archray.searchers.pool_file import PoolFile, check_names, read_numbers
from archray.searchers.rank_surrogate.surrogate import KAPPA, KernelSetting, RankSurrogate, metric_scores
from archray.searchers.space_search import PoolSearch
from archray.trainables.spaces import Space
from archray.trainables.spaces.encodings import word_rows

SMALLER = "-"  # before a metric's name: the smaller the better
SPREAD = 0.5  # of the weights that choose the first architecture, relative to their mean


@dataclass(frozen=True)
class MetricPool:
    """The rows of a table.

    Args:
        architectures: n strings.
        metrics: m names, with `-` before a metric whose small values are good.
        columns: (n, m) the metrics, the larger the better; not finite where one is missing.
        codes: (n, d) the architectures as categorical codes; a word has the same code in every place.
    """

    architectures: Sequence[str]
    metrics: tuple[str, ...]
    columns: FloatArray
    codes: IntArray


def load_metric_pool(
    file: PoolFile, metrics: Sequence[str] | None, encoding: str | Space, results: Sequence[str] = ()
) -> MetricPool:
    """Reads `file`. The other arguments are those of `RankSurrogateSearch`.

    Raises: InvalidPool for an unusable table: a column that is absent, or holds no numbers or only one number, or
        architectures that occur twice. InvalidInput for an encoding that does not fit, InvalidArchitecture for
        strings that are not of the space.
    """
    table = file.read()
    source = f"the pool {file.location}"
    columns = ", ".join(map(str, table.columns))
    if "architecture" not in table:
        raise InvalidPool(f"{source} has no column architecture; it has {columns}")
    check_names(table["architecture"], source)
    if metrics is None:
        metrics = [str(name) for name in table.select_dtypes("number").columns if name not in results]
    leaked = [name for name in metrics if name.removeprefix(SMALLER) in results]
    if leaked:
        raise InvalidPool(f"{', '.join(leaked)}: named both as a metric and as a result; a search must not see results")
    values = np.zeros((len(table), len(metrics)))
    for place, metric in enumerate(metrics):
        name, sign = (metric, 1.0) if metric in table else (metric.removeprefix(SMALLER), -1.0)
        if name not in table:
            raise InvalidPool(f"{source} has no column {name}; it has {columns}")
        values[:, place] = sign * read_numbers(table, name, source)
        finite = values[np.isfinite(values[:, place]), place]
        if len(np.unique(finite)) < 2:
            content = f"the same number, {finite[0]:g}, in every row" if len(finite) else "no finite number"
            raise InvalidPool(
                f"{source}: the column {name} has {content}, and says nothing about the architectures; name the "
                "metrics without it"
            )
    codes = _codes(table, encoding)
    if not metrics and not codes.shape[1]:
        raise InvalidPool(
            f"{source} has no metric, and the encoding is {encoding}: there is nothing to learn from; "
            "name a metric or an encoding, or use RandomSearch"
        )
    return MetricPool(table["architecture"].tolist(), tuple(metrics), values, codes)


def _codes(table: pd.DataFrame, encoding: str | Space) -> IntArray:
    """(n, d) the architectures as categorical codes, equal where their words are, in one place or in two."""
    names = table["architecture"].tolist()
    if isinstance(encoding, str):
        words = word_rows(names, encoding, table)
    else:
        words = np.array([encoding.decode(name)[: len(encoding.decisions)] for name in names], dtype=np.str_)
    return np.unique(words, return_inverse=True)[1].reshape(words.shape).astype(np.int64)


class MetricPoolSearch(PoolSearch):
    """Base of searchers over a pool with several metrics. Args: see `RankSurrogateSearch`."""

    def __init__(
        self,
        pool: str | Path,
        metrics: Sequence[str] | None,
        encoding: str | Space,
        budget: int,
        results: Sequence[str],
        **options: Unpack[SearcherOptions],
    ) -> None:
        for name, names in (("metrics", metrics), ("results", results)):
            if isinstance(names, str) or not all(isinstance(column, str) for column in names or ()):
                raise InvalidInput(f"{name}: expected a list of columns, got {names!r}")
        self._metrics = None if metrics is None else tuple(metrics)
        self._results = tuple(results)
        self.encoding = encoding
        super().__init__(pool, budget, **options)

    @cached_property
    def pool(self) -> MetricPool:
        return load_metric_pool(self._file, self._metrics, self.encoding, self._results)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns that the search uses."""
        return self.pool.metrics

    def observations(self, number: int) -> tuple[list[int], list[float | None]]:
        """The rows suggested or handed over before suggestion `number`, in order, and the losses that it may use.

        None: the result is pending. A failed trial has the worst loss so far; it is pending while there is none.
        """
        numbers = {self._rows[name]: k for name, k in self.suggested_numbers().items() if name in self._rows}
        return list(numbers), losses_of_answers(list(numbers.values()), self.usable_losses(number))

    def search_identity(self) -> dict[str, Any]:
        encoding = self.encoding if isinstance(self.encoding, str) else self.encoding.name
        return super().search_identity() | {"metrics": self.metrics, "encoding": encoding}


class RankSurrogateSearch(MetricPoolSearch):
    """Searches a pool for the architecture with the best result, by any number of metrics and by its own codes.

    Suggests: `architecture`, `seed`; each row of the pool at most once.
    Needs: the metric.
    Takes: a table with the column `architecture` and any number of metrics and costs.

    A metric may be good on one table and mislead on the next, so no metric is trusted: each is weighed by the results.
    For suggestion k, with the results of suggestions 1 to k - q:
    1. metrics and results become normal scores of their ranks: units, scales and tails do not count;
    2. a Gaussian process (`RankKernel`) explains the results by weights of the metrics, about equal ones, by a smooth
       function of the metrics' ranks, and by the codes that architectures share, place by place and anywhere; a second
       process uses no metric, a third no code, and each counts by the probability that it gives to the results;
    3. the architecture not yet suggested that has the largest upper confidence bound is suggested.
    Where all metrics mislead, their weights fall to zero or below within a few results; where they are uninformative,
    the second process dominates.

    The method is archray's own; `docs/methods/several-metrics.md` compares it with others.

    Args:
        pool: path or URI of a table (Parquet, CSV) with a column `architecture`, one row per canonical form, and any
            number of metrics and costs.
        metrics: the columns to use; `-kappa` for a metric whose small values are good. None: every column of numbers
            that is not in `results`. An empty list: the codes alone.
        encoding: how an architecture becomes categorical codes: `tokens` of its string, `columns:a,b,c` of the
            table, or `none`, for uninformative strings; or the space of the architectures: its decisions.
        budget: the number of training runs.
        results: columns that hold the result, which `metrics=None` leaves out.
        setting: variances of the surrogate; None: those of `KernelSetting`.
        kappa: standard deviations above the mean at the upper confidence bound.
        points_to_evaluate: `{"architecture"}`, suggested first; they count in budget.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other argument.
    """

    opened: ClassVar[tuple[str, ...]] = (*PoolSearch.opened, "surrogate")
    identity_fields: ClassVar[tuple[str, ...]] = ("kappa",)

    def __init__(
        self,
        pool: str | Path,
        metrics: Sequence[str] | None = None,
        encoding: str | Space = "tokens",
        budget: int = 20,
        results: Sequence[str] = (),
        setting: KernelSetting | None = None,
        kappa: float = KAPPA,
        **options: Unpack[SearcherOptions],
    ) -> None:
        if not is_finite_number(kappa) or kappa < 0:
            raise InvalidInput(f"kappa: expected a number of 0 or more, got {kappa!r}")
        self.setting = setting or KernelSetting()
        self.kappa = kappa
        super().__init__(pool, metrics, encoding, budget, results, **options)

    @cached_property
    def surrogate(self) -> RankSurrogate:
        """The surrogate with the latest results; after unpickling it is built again from the results."""
        return RankSurrogate(metric_scores(self.pool.columns), self.pool.codes, self.setting, self.kappa)

    def propose(self, number: int) -> Proposal:
        suggested = self.suggested_rows()
        if suggested.all():
            return None
        rows, losses = self.observations(number)
        left = self.rng("rank-surrogate", "ties", number).permutation(np.flatnonzero(~suggested))  # ties: by chance
        if rows:
            promise = self.surrogate.promise(rows, losses)
        else:  # (n,) by weights drawn about equal ones; 0 without metrics
            scores = self.surrogate.scores
            deviations = self.rng("rank-surrogate", "first weights").standard_normal(scores.shape[1])
            promise = scores @ (1 + SPREAD * deviations)
        return {"architecture": self.pool.architectures[left[np.argmax(promise[left])]]}

    def trust(self) -> dict[str, float]:
        """The weight of each metric's normal score in the posterior mean, by all results that are in."""
        pairs = [(self._rows[record.config["architecture"]], self.loss(record)) for record in self.records()]
        results = [(row, loss) for row, loss in pairs if loss is not None]
        weights = self.surrogate.metric_weights([row for row, _ in results], [loss for _, loss in results])
        return {name: float(weight) for name, weight in zip(self.metrics, weights, strict=True)}

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {"setting": asdict(self.setting)}
