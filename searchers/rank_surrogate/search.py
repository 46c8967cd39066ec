"""Search a pool with several metrics by one surrogate of ranks and codes; and the base class of such searchers."""

from collections.abc import Callable, Sequence
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

SMALLER = "-"  # prefix of a metric whose small values are good
WHOLE = 2**14  # the largest pool that is searched as a whole; with 1,000 results its surrogate takes 400 MB
SHORTLIST = 2**13  # the rows of a larger pool that are searched
SPREAD = 0.5  # standard deviation of the weights that choose the first architecture, relative to their mean


@dataclass(frozen=True)
class MetricPool:
    """The rows of a table with several metrics.

    Args:
        architectures: n strings.
        metrics: m names, with the prefix `-` for a metric whose small values are good.
        columns: (n, m) the metrics, larger is better; not finite where a value is missing.
        rows: (s,) the rows that can be suggested.
        codes: (s, d) their architectures as categorical codes; a word has the same code at every position.
    """

    architectures: Sequence[str]
    metrics: tuple[str, ...]
    columns: FloatArray
    rows: IntArray
    codes: IntArray


def load_metric_pool(
    file: PoolFile,
    metrics: Sequence[str] | None,
    encoding: str | Space,
    results: Sequence[str] = (),
    shortlist: Callable[[FloatArray], IntArray] | None = None,
) -> MetricPool:
    """Reads the pool in `file`. The other arguments are those of `RankSurrogateSearch`.

    shortlist: function from the metrics (n, m) to `MetricPool.rows`; None: all rows.

    Raises: InvalidPool for an unusable table: a missing, non-numeric or constant column, or repeated architectures.
    InvalidInput for an encoding that does not fit, InvalidArchitecture for strings outside of the space.
    """
    table = file.read()
    source = f"The pool {file.location}"
    columns = ", ".join(map(str, table.columns))
    if "architecture" not in table:
        raise InvalidPool(f"{source} has no column architecture; it has {columns}")
    check_names(table["architecture"], source)
    if metrics is None:
        metrics = [str(name) for name in table.select_dtypes("number").columns if name not in results]
    leaked = [name for name in metrics if name.removeprefix(SMALLER) in results]
    if leaked:
        raise InvalidPool(
            f"Expected metrics that are not results, got {', '.join(leaked)} in both. Remove them from metrics: a "
            "search must not use results."
        )
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
                f"{source}: expected different numbers in the column {name}, got {content}. Leave it out of metrics."
            )
    names = table["architecture"].tolist()
    rows = np.arange(len(table)) if shortlist is None else shortlist(values)
    codes = _codes(table.iloc[rows], encoding)
    if not metrics and not codes.shape[1]:
        raise InvalidPool(
            f"{source} has no metric, and the encoding is {encoding}. Add a metric or an encoding, or use RandomSearch."
        )
    return MetricPool(names, tuple(metrics), values, rows, codes)


def _codes(table: pd.DataFrame, encoding: str | Space) -> IntArray:
    """Returns the architectures as categorical codes, (n, d); equal words have equal codes at every position."""
    names = table["architecture"].tolist()
    if isinstance(encoding, str):
        words = word_rows(names, encoding, table)
    else:
        words = np.array([encoding.decode(name)[: len(encoding.decisions)] for name in names], dtype=np.str_)
    return np.unique(words, return_inverse=True)[1].reshape(words.shape).astype(np.int64)


class MetricPoolSearch(PoolSearch):
    """Base class of searchers over a pool with several metrics.

    Args:
        pool, metrics, encoding, budget, results: see `RankSurrogateSearch`.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.
    """

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
        return load_metric_pool(self._file, self._metrics, self.encoding, self._results, self.shortlist)

    def shortlist(self, columns: FloatArray) -> IntArray:
        """Returns the rows that can be suggested: all."""
        return np.arange(len(columns))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns that the search uses."""
        return self.pool.metrics

    def observations(self, number: int) -> tuple[list[int], list[float | None]]:
        """Returns the rows evaluated or in flight before suggestion `number`, in order, and the losses that it may use.

        A pending result has the loss None. A failed trial has the worst loss so far, and None before the first loss.
        """
        numbers = {self._rows[name]: k for name, k in self.suggested_numbers().items() if name in self._rows}
        return list(numbers), losses_of_answers(list(numbers.values()), self.usable_losses(number))

    def search_identity(self) -> dict[str, Any]:
        encoding = self.encoding if isinstance(self.encoding, str) else self.encoding.name
        return super().search_identity() | {"metrics": self.metrics, "encoding": encoding}


class RankSurrogateSearch(MetricPoolSearch):
    """Searches a pool for the best architecture with a surrogate of several metrics and of the architectures' codes.

    Suggests: `architecture`, `seed`; each row of the pool at most once.
    Needs: the metric.
    Takes: a table with the column `architecture` and any number of metrics and costs.

    A metric may be informative on one table and misleading on another, so the results determine the weight of each
    metric. For suggestion k, with the results of suggestions 1 to k - q:
    1. Metrics and results become normal scores of their ranks, which removes units, scales and tails.
    2. A Gaussian process (`RankKernel`) explains the results by weights of the metrics with equal prior means, by a
       smooth function of the metrics' ranks, and by the codes that architectures share, at the same position or
       anywhere. A second process uses no metrics, a third no codes. Each process is weighted by its evidence.
    3. The architecture with the largest upper confidence bound that was not suggested yet is suggested.
    If all metrics mislead, their weights fall to zero or below within a few results. If they are uninformative, the
    second process dominates.

    Of a pool with more than 16,384 rows, only a shortlist of 8,192 is searched: the rows with the best mean score, the
    best rows by each metric, and random rows. If all metrics mislead, it may lack the best rows. Other rows in
    `points_to_evaluate` are trained, but their results are not used.

    This method was developed for archray; `docs/methods/several-metrics.md` compares it with others.

    Args:
        pool: path or URI of a table (Parquet, CSV) with a column `architecture`, one row per canonical form, and any
            number of metrics and costs.
        metrics: the columns to use, with the prefix `-` (`-kappa`) for a metric whose small values are good. None:
            every numeric column that is not in `results`. An empty list: only the codes.
        encoding: the categorical codes of an architecture: `tokens` of its string, `columns:a,b,c` of the table,
            `none` for uninformative strings, or the architectures' space, for its decisions.
        budget: the number of training runs.
        results: columns with results, which `metrics=None` leaves out.
        setting: variances of the surrogate; None: the defaults of `KernelSetting`.
        kappa: the number of standard deviations above the mean in the upper confidence bound.
        points_to_evaluate: `{"architecture"}` to suggest first; they count in the budget.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other invalid argument.

    Example:
        ```python
        metrics = ["snip", "-kappa", "flops"]  # a small kappa is good
        search = RankSurrogateSearch("pool.csv", metrics, budget=20, metric="accuracy", mode="max")
        tune.Tuner(train, tune_config=tune.TuneConfig(search_alg=search, num_samples=-1)).fit()
        print(search.best(), search.trust())
        ```
    """

    opened: ClassVar[tuple[str, ...]] = (*PoolSearch.opened, "surrogate", "_places")
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
            raise InvalidInput(f"kappa: expected a non-negative number, got {kappa!r}")
        self.setting = setting or KernelSetting()
        self.kappa = kappa
        super().__init__(pool, metrics, encoding, budget, results, **options)

    @cached_property
    def surrogate(self) -> RankSurrogate:
        """The surrogate with the latest results; it is rebuilt from the results after unpickling."""
        scores = metric_scores(self.pool.columns)[self.pool.rows]
        return RankSurrogate(scores, self.pool.codes, self.setting, self.kappa)

    @cached_property
    def _places(self) -> dict[int, int]:
        """The places of rows in the shortlist."""
        return {int(row): place for place, row in enumerate(self.pool.rows)}

    def shortlist(self, columns: FloatArray) -> IntArray:
        if len(columns) <= WHOLE:
            return np.arange(len(columns))
        scores, rng = metric_scores(columns), self.rng("rank-surrogate", "shortlist")
        parts = [np.zeros(0, dtype=np.int64)]
        if scores.shape[1]:
            parts.append(np.argsort(-scores.mean(axis=1), kind="stable")[: SHORTLIST // 2])
            each = SHORTLIST // 4 // scores.shape[1]
            parts += [np.argsort(-column, kind="stable")[:each] for column in scores.T]
        chosen = np.unique(np.concatenate(parts))
        rest = np.setdiff1d(rng.permutation(len(columns))[:SHORTLIST], chosen)
        return np.sort(np.append(chosen, rng.permutation(rest)[: max(0, SHORTLIST - len(chosen))]))

    def propose(self, number: int) -> Proposal:
        suggested = self.suggested_rows()[self.pool.rows]
        if suggested.all():
            return None
        rows, losses = self._observed(*self.observations(number))
        left = self.rng("rank-surrogate", "ties", number).permutation(np.flatnonzero(~suggested))  # breaks ties
        if rows:
            bounds = self.surrogate.upper_bounds(rows, losses)
        else:  # (n,) a sum of scores with random, nearly equal weights; 0 without metrics
            scores = self.surrogate.scores
            deviations = self.rng("rank-surrogate", "first weights").standard_normal(scores.shape[1])
            bounds = scores @ (1 + SPREAD * deviations)
        return {"architecture": self.pool.architectures[self.pool.rows[left[np.argmax(bounds[left])]]]}

    def _observed(self, rows: Sequence[int], losses: Sequence[Any]) -> tuple[list[int], list[Any]]:
        """Returns the places and losses of rows that are in the shortlist."""
        inside = [(self._places[row], loss) for row, loss in zip(rows, losses, strict=True) if row in self._places]
        return [place for place, _ in inside], [loss for _, loss in inside]

    def trust(self) -> dict[str, float]:
        """Returns the weight of each metric's normal score in the posterior mean, given all available results."""
        pairs = [(self._rows[record.config["architecture"]], self.loss(record)) for record in self.records()]
        results = [(row, loss) for row, loss in pairs if loss is not None]
        observed = self._observed([row for row, _ in results], [loss for _, loss in results])
        weights = self.surrogate.metric_weights(*observed)
        return {name: float(weight) for name, weight in zip(self.metrics, weights, strict=True)}

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {"setting": asdict(self.setting)}
