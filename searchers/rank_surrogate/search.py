"""A search over a pool with several metrics that none of them can fool: ranks and codes under one surrogate."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import FloatArray, SearcherOptions, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.rank_surrogate.pool_search import PoolSearch
from archray.searchers.rank_surrogate.surrogate import KAPPA, KernelSetting, RankSurrogate, metric_scores
from archray.trainables.spaces import Space

SPREAD = 0.5  # of the weights that choose the first architecture, relative to their mean


class RankSurrogateSearch(PoolSearch):
    """Searches a pool for the architecture with the best result, by any number of metrics and by its own codes.

    Suggests: `architecture`, `seed`; each row of the pool at most once.
    Needs: the metric.
    Takes: a table with the column `architecture` and any number of metrics and costs.

    A metric may promise much on one table and mislead on the next, so that none is believed: each is a hint, weighed
    by the results. For suggestion k, with the results of suggestions 1 to k - q:
    1. metrics and results become normal scores of their ranks: units, scales and tails do not count;
    2. a Gaussian process (`RankKernel`) explains the results by weights of the metrics, about equal ones, by a smooth
       function of the metrics' ranks, and by which codes architectures share, place by place and wherever; a second
       believes no metric, a third no code, and each counts by how probable it makes the results;
    3. what is not yet evaluated and has the largest upper confidence bound is suggested.
    Where all metrics mislead, their weights fall to zero or below within a few results; where they say nothing, the
    second process is believed.

    The method is archray's own; `docs/methods/several-metrics.md` says what it was compared with.

    Args:
        pool: path or URI of a table (Parquet, CSV) with a column `architecture`, one row per canonical form, and any
            number of metrics and costs.
        metrics: the columns to look at; `-kappa` for one of which less promises more. None: every column of numbers
            but those in `results`. An empty list: the codes alone.
        encoding: how an architecture is made of categorical codes: `tokens` of its string, `columns:a,b,c` of the
            table, or `none`, for strings that say nothing; or the space that they are of.
        budget: the number of trainings.
        results: columns that hold what is searched for: `metrics=None` leaves them out.
        setting: variances of the surrogate; None: those that were chosen over all tables at hand.
        kappa: how many deviations above the mean the upper confidence bound lies.
        points_to_evaluate: `{"architecture"}`, suggested first; they count in budget.
        seed, metric, mode, max_concurrent, asynchronous: see `ArchraySearcher`.

    Raises: InvalidPool for a table that cannot serve, InvalidInput for any other argument.
    """

    opened: ClassVar[tuple[str, ...]] = (*PoolSearch.opened, "surrogate")

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
        """What was learnt last; made again after unpickling from the results themselves."""
        return RankSurrogate(metric_scores(self.pool.columns), self.pool.codes, self.setting, self.kappa)

    def propose(self, number: int) -> Proposal:
        suggested = self.suggested_rows()
        if suggested.all():
            return None
        rows, losses = self.observations(number)
        left = self.rng("rank-surrogate", "ties", number).permutation(np.flatnonzero(~suggested))  # ties: by chance
        promise = self.surrogate.promise(rows, losses) if rows else self._first_promise()
        return {"architecture": self.pool.architectures[left[np.argmax(promise[left])]]}

    def _first_promise(self) -> FloatArray:
        """(n,) the metrics' scores by weights drawn about equal ones; 0 without metrics."""
        scores = self.surrogate.scores
        deviations = self.rng("rank-surrogate", "first weights").standard_normal(scores.shape[1])
        return scores @ (1 + SPREAD * deviations)

    def trust(self) -> dict[str, float]:
        """The weight of each metric's normal score in what is expected, by all results that are in."""
        pairs = [(self._places[record.config["architecture"]], self.loss(record)) for record in self.records()]
        results = [(row, loss) for row, loss in pairs if loss is not None]
        weights = self.surrogate.metric_weights([row for row, _ in results], [loss for _, loss in results])
        return {name: float(weight) for name, weight in zip(self.metrics, weights, strict=True)}

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {"setting": asdict(self.setting), "kappa": self.kappa}
