"""A search for the best results at every cost, over a pool whose costs are known before anything is trained."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from archray.errors import InvalidInput, InvalidPool
from archray.searchers.arguments import BoolArray, FloatArray, IntArray, SearcherOptions, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.ledger import Record
from archray.searchers.pareto.front import check_reference, front_places, read_objectives
from archray.searchers.pareto.improvement import FrontSurrogate
from archray.searchers.pool_file import read_numbers
from archray.searchers.rank_surrogate.search import SPREAD, MetricPoolSearch
from archray.searchers.rank_surrogate.surrogate import metric_scores
from archray.trainables.spaces import Space

EXPLORATION = 1.0
FALL = 0.5  # of the exploration, over the budget: a late result is of use to few training runs


class ParetoPoolSearch(MetricPoolSearch):
    """Searches a pool for the best architecture at each cost.

    Suggests: `architecture`, `seed`; each row of the pool at most once.
    Needs: the metric.
    Takes: a table with the columns `architecture`, the objectives that `further` names, and any number of metrics.

    Tune has one metric per run. The trials report it; `further` names columns of the pool, with a value for every row,
    that are further objectives. For suggestion k, with the results of suggestions 1 to k - q:
    1. a `FrontSurrogate` of the metrics and the architectures' codes, without costs, predicts a value of every row and
       its deviation;
    2. rows trained or in flight count at their predicted value, which smooths the noise of single training runs;
    3. the row is suggested that is expected to add most hypervolume: over all costs from its own to the reference, how
       far it surpasses the best there, on average over its possible values.
    Before the first result the metrics alone choose, by weights drawn about equal ones, among the cheaper half.

    The method is archray's own; `docs/pareto.md` compares it with others.

    Args:
        pool: path or URI of a table (Parquet, CSV) with a column `architecture`, one row per canonical form, the
            columns of `further`, and any number of metrics. A row without a finite number in each of `further` is
            never suggested.
        further: the columns that are objectives: `-latency_ms` if less is better.
        metrics: as for `RankSurrogateSearch`; None: every column of numbers that is not in `results` or `further`.
        encoding, budget, results, points_to_evaluate: as for `RankSurrogateSearch`.
        reference: the worst values of interest, by objective. Default for one of `further`: the worst of the pool; for
            the metric: the value that a tenth of the results is expected to fall below.
        exploration: the surrogate's standard deviations by which a value may deviate at first; it falls evenly with the
            budget, to a half. At 0 nothing unexpected is tried.
        options: see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other argument.
    """

    opened: ClassVar[tuple[str, ...]] = (*MetricPoolSearch.opened, "surrogate", "costs")
    identity_fields: ClassVar[tuple[str, ...]] = ("reference", "exploration")

    def __init__(
        self,
        pool: str | Path,
        further: str | Iterable[str],
        metrics: Sequence[str] | None = None,
        encoding: str | Space = "tokens",
        budget: int = 20,
        results: Sequence[str] = (),
        reference: Mapping[str, float] | None = None,
        exploration: float = EXPLORATION,
        **options: Unpack[SearcherOptions],
    ) -> None:
        if not is_finite_number(exploration) or exploration < 0:
            raise InvalidInput(f"exploration: expected a number of 0 or more, got {exploration!r}")
        self.further = read_objectives(further)
        self.reference = dict(reference or {})
        self.exploration = float(exploration)
        if metrics is None and not isinstance(results, str):
            results = (*results, *(objective.name for objective in self.further))
        super().__init__(pool, metrics, encoding, budget, results, **options)

    def prepare(self) -> None:
        super().prepare()
        names = [objective.name for objective in self.further]
        check_reference(self.reference, [*names, *([self._metric] if self._metric else self.reference)])
        _ = self.costs

    @cached_property
    def costs(self) -> FloatArray:
        """(n, k) the columns of `further`, less is better; NaN where there is no finite number."""
        names = [objective.name for objective in self.further]
        source = f"the pool {self._file.location}"
        table = self._file.read(["architecture", *names])
        costs = np.stack([o.loss(read_numbers(table, o.name, source)) for o in self.further], axis=1)
        costs[~np.isfinite(costs)] = np.nan
        if not np.isfinite(costs).all(axis=1).any():
            raise InvalidPool(f"{source} has no row with a finite number in each of {', '.join(names)}")
        return costs

    @cached_property
    def surrogate(self) -> FrontSurrogate:
        """The surrogate with the latest results; after unpickling it is built again from the results."""
        bound = self.reference.get(self._metric or "")
        base = None if bound is None else (bound if self._mode == "max" else -bound)
        scores = metric_scores(self.pool.columns)
        return FrontSurrogate(scores, self.pool.codes, self.costs, self._worst, base)

    @property
    def _worst(self) -> FloatArray:
        """(k,) the largest costs of interest."""
        worst = np.nanmax(self.costs[self._usable], axis=0)
        for place, objective in enumerate(self.further):
            if objective.name in self.reference:
                worst[place] = objective.loss(self.reference[objective.name])
        return worst

    @property
    def _usable(self) -> BoolArray:
        return np.asarray(np.isfinite(self.costs).all(axis=1), dtype=bool)

    def propose(self, number: int) -> Proposal:
        left = np.flatnonzero(~self.suggested_rows() & self._usable)
        if not len(left):
            return None
        left = self.rng("pareto-pool", "ties", number).permutation(left)  # ties: by chance
        rows, losses = self.observations(number)
        if all(loss is None for loss in losses):
            return {"architecture": self.pool.architectures[self._first(left, number)]}
        assert self.budget is not None
        gain = self.surrogate.gain(rows, losses, self.exploration * (1 - FALL * (number - 1) / self.budget))
        return {"architecture": self.pool.architectures[left[np.argmax(gain[left])]]}

    def _first(self, left: IntArray, number: int) -> int:
        """The best row of the cheaper half within the reference, by weights drawn about equal ones."""
        within = left[(self.costs[left] < self._worst).all(axis=1)]
        left = within if len(within) else left
        costs = rankdata(self.costs[left], axis=0).mean(axis=1)
        left = left[costs <= np.median(costs)]
        deviations = self.rng("pareto-pool", "first weights", number).standard_normal(len(self.metrics))
        return int(left[np.argmax(metric_scores(self.pool.columns)[left] @ (1 + SPREAD * deviations))])

    def vector(self, record: Record) -> FloatArray | None:
        """(1 + k,) the objectives of a trial, less is better; None if one of them has no value."""
        row, loss = self._rows.get(record.config["architecture"]), self.loss(record)
        if row is None or loss is None or not self._usable[row]:
            return None
        return np.array([loss, *self.costs[row]])

    def front(self) -> pd.DataFrame:
        """The trials that no other dominates, as rows of `history`, the best by the metric first."""
        return self.history().iloc[front_places(map(self.vector, self.records()))].reset_index(drop=True)

    def row(self, record: Record) -> dict[str, Any]:
        row = self._rows.get(record.config["architecture"])
        values = [np.nan] * len(self.further) if row is None else self.costs[row]
        costs = {o.name: float(o.loss(value)) for o, value in zip(self.further, values, strict=True)}
        return super().row(record) | costs

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {
            "further": [str(objective) for objective in self.further],
        }
