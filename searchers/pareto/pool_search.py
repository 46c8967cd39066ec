"""A search for the best results at every cost, over a pool with exact costs of all architectures.

The hypervolume that a row is expected to add follows Emmerich et al. 2006.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import pandas as pd
from scipy.stats import qmc, rankdata

from archray.errors import InvalidInput, InvalidPool
from archray.searchers.arguments import BoolArray, FloatArray, IntArray, SearcherOptions, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.ledger import Record
from archray.searchers.pareto.front import front_places, read_objectives
from archray.searchers.pool_file import read_numbers
from archray.searchers.rank_surrogate import surrogate as ranks
from archray.searchers.rank_surrogate.search import SPREAD, MetricPoolSearch
from archray.searchers.rank_surrogate.surrogate import KernelSetting, metric_scores
from archray.trainables.spaces import Space

SAMPLES = 512  # points in the space of two costs or more; one cost needs none
# Three equally likely values with the mean and the variance of a normal one.
STEPS = np.array([-np.sqrt(1.5), 0.0, np.sqrt(1.5)])
STEEPEST = 4  # the slope above the best result is that of the best quarter


def level_volumes(
    costs: FloatArray, result_costs: FloatArray, result_values: FloatArray, base: float, reference: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The volume of costs over each level of the results, for every row.

    Args:
        costs: (n, k) of every row. result_costs: (m, k). result_values: (m,) the larger the better.
        base: the lowest value of interest. reference: (k,) the largest costs of interest.

    Returns: (n, l) volumes and (l,) levels. A volume is a part of the costs between those of the row and the reference:
    the part where the best result that costs no more has the value of the level. Two costs or more by a Sobol sequence.
    """
    values = np.maximum(result_values, base)
    if costs.shape[1] == 1:
        return _one_cost(costs[:, 0], result_costs[:, 0], values, base, float(reference[0]))
    low = np.minimum(costs.min(axis=0), reference)
    unit = qmc.Sobol(costs.shape[1], scramble=False).random(SAMPLES)
    places = low + unit * (reference - low)  # (s, k)
    covered = (result_costs[None] <= places[:, None]).all(axis=2)  # (s, m)
    best = np.where(covered, values, base).max(axis=1, initial=base)  # (s,)
    levels, positions = np.unique(best, return_inverse=True)
    within = np.ones((len(costs), SAMPLES), dtype=bool)
    for column, at in zip(costs.T, places.T, strict=True):
        within &= column[:, None] <= at[None]
    volumes = np.stack([within[:, positions == level].sum(axis=1) for level in range(len(levels))], axis=1)
    return volumes * float(np.prod(reference - low)) / SAMPLES, levels


def _one_cost(
    costs: FloatArray, result_costs: FloatArray, values: FloatArray, base: float, reference: float
) -> tuple[FloatArray, FloatArray]:
    order = np.lexsort((-values, result_costs))
    best = np.maximum.accumulate(np.append(base, values[order]))  # (m + 1,): before each, and after the last
    rises = np.append(True, best[1:] > best[:-1])
    starts = np.append(-np.inf, result_costs[order])[rises]
    ends = np.append(starts[1:], reference)
    volumes = ends[None] - np.maximum(costs[:, None], starts[None])
    return np.clip(volumes, 0.0, None), best[rises]


def expected_improvement(possible: FloatArray, volumes: FloatArray, levels: FloatArray) -> FloatArray:
    """(n,) hypervolume added on average: Emmerich et al. 2006 with exact costs, a sum over the levels of the front.

    possible: (s, n) equally likely values. volumes: (n, l). levels: (l,).
    """
    gain = np.zeros(possible.shape[1])
    for level, volume in zip(levels, volumes.T, strict=True):
        gain += volume * np.maximum(possible - level, 0.0).mean(axis=0)
    return gain


class ValueScale:
    """A function from normal scores of results to their values, as an estimate from the results so far.

    It is linear between the results, constant below the lowest, and above the best as steep as among the best quarter.
    Without two different results it is the identity.

    Args:
        scores: (t,) of the results. values: (t,) the larger the better.
    """

    def __init__(self, scores: FloatArray, values: FloatArray) -> None:
        self._scores, first = np.unique(scores, return_index=True)
        self._values = values[first]
        self._slope = 0.0
        if len(self._scores) > 1:
            back = min(len(self._scores) - 1, max(2, len(self._scores) // STEEPEST))
            rise, run = self._values[-1] - self._values[-1 - back], self._scores[-1] - self._scores[-1 - back]
            self._slope = float(rise / run)

    def __call__(self, scores: FloatArray) -> FloatArray:
        if len(self._scores) < 2:
            return scores
        above = np.maximum(scores - self._scores[-1], 0.0)
        return np.interp(scores, self._scores, self._values) + self._slope * above


# Surrogate

FIRST_BASE = -1.5  # a normal score: the lowest of interest while there are few results
LOWEST = 0.1  # the share of the results below the values of interest
FEW = 5  # results: with fewer, their quantiles and units are unreliable
NEGLIGIBLE = 1e-3  # the weight of a hypothesis that is left out
# The setting ranks a whole front, not only the head of the pool: compared with the setting for one objective, ranks of
# metrics count more than their scores, codes count less, unless the results favor them, and results count more.
SETTING = KernelSetting(linear=0.8, smooth=1.0, encoding=0.15, counts=0.3, noise=0.03)
BY_CODES = replace(SETTING, encoding=0.6, counts=1.2)
HYPOTHESES = (SETTING, BY_CODES, replace(BY_CODES, linear=0.0, smooth=0.0, prior=0.0))  # the last is without metrics


class FrontSurrogate:
    """A mixture of Gaussian processes over n architectures, and the hypervolume that each may add.

    Args:
        scores: (n, m) normal scores of the metrics. codes: (n, d). See `RankKernel`.
        costs: (n, k) less is better, exact; NaN for a row that cannot be suggested.
        reference: (k,) the largest costs of interest.
        base: the lowest value of interest, the larger the better; None: the value that a tenth of the results is
            expected to be below.
    """

    def __init__(
        self, scores: FloatArray, codes: IntArray, costs: FloatArray, reference: FloatArray, base: float | None = None
    ) -> None:
        self._surrogate = ranks.RankSurrogate(scores, codes, hypotheses=HYPOTHESES)
        self._reference = reference
        self._costs = np.where(np.isfinite(costs).all(axis=1, keepdims=True), costs, np.inf)  # these add nothing
        self._base = base

    def gain(self, rows: Sequence[int], losses: Sequence[float | None], exploration: float = 1.0) -> FloatArray:
        """(n,) the hypervolume that each architecture is expected to add, in the unit of value times costs.

        Args:
            rows: the architectures evaluated, or in flight, in the order of suggestion.
            losses: of each, the smaller the better; None: pending. At least one is a number.
            exploration: standard deviations by which a value may deviate.
        """
        targets = ranks.result_scores(losses)
        pairs = zip(targets, losses, strict=True)
        results = [(score, -loss) for score, loss in pairs if score is not None and loss is not None]
        few = len(results) < FEW
        scale = ValueScale(*np.array([] if few else results).reshape(-1, 2).T)
        posteriors = self._surrogate.posteriors(rows, targets)
        weights = ranks.mixture([posterior.evidence for posterior in posteriors])
        means = [posterior.mean[list(rows)] for posterior in posteriors]
        lowest = FIRST_BASE if few else float(np.quantile(np.concatenate(means), LOWEST))
        base = float(scale(np.array(lowest))) if self._base is None or few else self._base
        gain = np.zeros(len(self._costs))
        for weight, posterior, mean in zip(weights, posteriors, means, strict=True):
            if weight > NEGLIGIBLE:
                possible = scale(posterior.mean + exploration * STEPS[:, None] * posterior.deviation)  # (s, n)
                result_costs = self._costs[list(rows)]
                volumes, levels = level_volumes(self._costs, result_costs, scale(mean), base, self._reference)
                gain += weight * expected_improvement(possible, volumes, levels)
        if gain.max() > 0:
            return gain
        return np.sum([w * p.mean for w, p in zip(weights, posteriors, strict=True)], axis=0)


# Searcher

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
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

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
        names = [*(objective.name for objective in self.further), *([self._metric] if self._metric else self.reference)]
        for name, value in self.reference.items():
            if name not in names:
                raise InvalidInput(f"reference: expected values of {', '.join(names)}, got {name!r}")
            if not is_finite_number(value):
                raise InvalidInput(f"reference: expected a finite number for {name}, got {value!r}")
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
