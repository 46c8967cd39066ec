"""Multi-objective search over a pool with exact costs of all architectures.

The expected hypervolume improvement of a row follows Emmerich et al. 2006.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import pandas as pd
from scipy.stats import qmc

from archray.errors import InvalidInput, InvalidPool
from archray.searchers.arguments import BoolArray, FloatArray, IntArray, SearcherOptions, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.ledger import Record
from archray.searchers.pareto.front import front_places, read_objectives
from archray.searchers.pool_file import read_numbers
from archray.searchers.rank_surrogate import surrogate as ranks
from archray.searchers.rank_surrogate.search import MetricPoolSearch
from archray.searchers.rank_surrogate.surrogate import KernelSetting, metric_scores
from archray.trainables.spaces import Space

SAMPLES = 512  # sample points in the space of two costs or more; one cost needs none
# Three equally likely values with the mean and the variance of a standard normal variable.
STEPS = np.array([-np.sqrt(1.5), 0.0, np.sqrt(1.5)])
STEEPEST = 4  # the best 1/4 of the results determine the slope above the best result


def level_volumes(
    costs: FloatArray, result_costs: FloatArray, result_values: FloatArray, base: float, reference: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns, for every row and each level of the results, a volume in the space of costs.

    The volume of a row and a level is the part of the box between the row's costs and the reference where the best
    result that costs no more has the value of the level. With two costs or more it is estimated by a Sobol sequence.

    Args:
        costs: (n, k) the costs of every row.
        result_costs: (m, k) the costs of the results.
        result_values: (m,) the values of the results, larger is better.
        base: the lowest value of interest.
        reference: (k,) the largest costs of interest.

    Returns: (n, l) volumes and (l,) levels.
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
    best = np.maximum.accumulate(np.append(base, values[order]))  # (m + 1,) before each result, and after the last
    rises = np.append(True, best[1:] > best[:-1])
    starts = np.append(-np.inf, result_costs[order])[rises]
    ends = np.append(starts[1:], reference)
    volumes = ends[None] - np.maximum(costs[:, None], starts[None])
    return np.clip(volumes, 0.0, None), best[rises]


def expected_improvement(possible: FloatArray, volumes: FloatArray, levels: FloatArray) -> FloatArray:
    """Returns the expected hypervolume improvement, (n,): Emmerich et al. 2006 with exact costs, summed over levels.

    Args:
        possible: (s, n) equally likely values of each row.
        volumes: (n, l), see `level_volumes`.
        levels: (l,), see `level_volumes`.
    """
    gain = np.zeros(possible.shape[1])
    for level, volume in zip(levels, volumes.T, strict=True):
        gain += volume * np.maximum(possible - level, 0.0).mean(axis=0)
    return gain


class ValueScale:
    """An estimate of the function from normal scores of results to their values.

    The function is linear between the results and constant below the lowest result. Above the best result its slope is
    that of the best quarter. Without two different results it is the identity.

    Args:
        scores: (t,) the normal scores of the results.
        values: (t,) the values of the results, larger is better.
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

FIRST_BASE = -1.5  # the lowest normal score of interest while there are few results
LOWEST = 0.1  # the share of results below the values of interest
FEW = 5  # with fewer results, their quantiles and units are unreliable
NEGLIGIBLE = 1e-3  # hypotheses with a smaller weight are skipped
# This setting must rank a whole front, not only the top of the pool. Compared with the setting for one objective, the
# ranks of metrics count more than their scores, codes count less unless the results favor them, and results count more.
SETTING = KernelSetting(linear=0.8, smooth=1.0, encoding=0.15, counts=0.3, noise=0.03)
BY_CODES = replace(SETTING, encoding=0.6, counts=1.2)
HYPOTHESES = (SETTING, BY_CODES, replace(BY_CODES, linear=0.0, smooth=0.0, prior=0.0))  # the last uses no metrics


class FrontSurrogate:
    """A mixture of Gaussian processes over n architectures that predicts the hypervolume improvement of each.

    Args:
        scores: (n, m) normal scores of the metrics, see `RankKernel`.
        codes: (n, d) categorical codes, see `RankKernel`.
        costs: (n, k) exact costs, smaller is better; NaN for a row that cannot be suggested.
        reference: (k,) the largest costs of interest.
        base: the lowest value of interest (larger is better); None: the predicted 0.1 quantile of the results.
    """

    def __init__(
        self, scores: FloatArray, codes: IntArray, costs: FloatArray, reference: FloatArray, base: float | None = None
    ) -> None:
        self._surrogate = ranks.RankSurrogate(scores, codes, hypotheses=HYPOTHESES)
        self._reference = reference
        # Infinite costs add nothing.
        self._costs = np.where(np.isfinite(costs).all(axis=1, keepdims=True), costs, np.inf)
        self._base = base

    def first_gain(self, rows: Sequence[int]) -> FloatArray:
        """Returns the hypervolume improvement of each architecture if its value were its mean metric, (n,).

        Args:
            rows: the architectures evaluated or in flight.
        """
        metrics = self._surrogate.scores
        values = metrics.sum(axis=1) / max(metrics.shape[1], 1)
        base, indices = float(np.quantile(values, LOWEST)), np.array(rows, dtype=np.int64)
        volumes, levels = level_volumes(self._costs, self._costs[indices], values[indices], base, self._reference)
        gain = expected_improvement(values[None], volumes, levels)
        return gain if gain.max() > 0 else values

    def gain(self, rows: Sequence[int], losses: Sequence[float | None], exploration: float = 1.0) -> FloatArray:
        """Returns the expected hypervolume improvement of each architecture, in the unit of value times costs, (n,).

        Args:
            rows: the architectures evaluated or in flight, in the order of suggestion.
            losses: their losses, smaller is better; None for a pending result. At least one is a number.
            exploration: factor of the posterior standard deviations.
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

FIRST = 4  # training runs on the front of (mean metric, cost); fewer results can lead the surrogate to useless rows
EXPLORATION = 1.0
FALL = 0.5  # decrease of the exploration over the budget: few training runs can use a late result


class ParetoPoolSearch(MetricPoolSearch):
    """Multi-objective search: finds the best architecture of a pool at each cost.

    Suggests: `architecture`, `seed`; each row of the pool at most once.
    Needs: the metric.
    Takes: a table with the columns `architecture`, the objectives that `further` names, and any number of metrics.

    A Tune run has one metric, which the trials report. `further` names columns of the pool that are further objectives.
    Suggestions 1 to 4, and all before the first result, are on the front of (mean normal score of the metrics, cost):
    each is the row that adds the most hypervolume if its value is its mean score. For a later suggestion k, with the
    results of suggestions 1 to k - q:
    1. A `FrontSurrogate` of the metrics and the architectures' codes, without costs, predicts the value of every row
       and its standard deviation.
    2. Rows that are trained or in flight count with their predicted value, which smooths the noise of single training
       runs.
    3. The row with the largest expected hypervolume improvement is suggested. The improvement is the amount by which
       the row exceeds the best value, over all costs between its costs and the reference, averaged over its possible
       values.

    This method was developed for archray; `docs/pareto.md` compares it with others.

    Args:
        pool: path or URI of a table (Parquet, CSV) with a column `architecture`, one row per canonical form, the
            columns of `further`, and any number of metrics. A row without a finite number in each column of `further`
            is never suggested.
        further: the columns that are objectives; `-latency_ms` if less is better.
        metrics: as for `RankSurrogateSearch`; None: every numeric column that is not in `results` or `further`.
        encoding, budget, results, points_to_evaluate: as for `RankSurrogateSearch`.
        reference: the worst values of interest, by objective. Default for an objective in `further`: the worst value of
            the pool; for the metric: the predicted 0.1 quantile of the results.
        exploration: factor of the surrogate's standard deviations at the start; it decreases linearly with the budget
            to half of this value. 0 disables exploration.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other invalid argument.

    Example:
        ```python
        search = ParetoPoolSearch("pool.csv", "-flops", ["snip"], budget=20, metric="accuracy", mode="max")
        tune.Tuner(train, tune_config=tune.TuneConfig(search_alg=search, num_samples=-1)).fit()
        print(search.front()[["architecture", "value", "flops"]])
        ```
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
            raise InvalidInput(f"exploration: expected a non-negative number, got {exploration!r}")
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
        """(n, k) the columns of `further` as losses; NaN where there is no finite number."""
        names = [objective.name for objective in self.further]
        source = f"The pool {self._file.location}"
        table = self._file.read(["architecture", *names])
        costs = np.stack([o.loss(read_numbers(table, o.name, source)) for o in self.further], axis=1)
        costs[~np.isfinite(costs)] = np.nan
        if not np.isfinite(costs).all(axis=1).any():
            raise InvalidPool(f"{source} has no row with a finite number in each of {', '.join(names)}")
        return costs

    @cached_property
    def surrogate(self) -> FrontSurrogate:
        """The surrogate with the latest results; it is rebuilt from the results after unpickling."""
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
        left = self.rng("pareto-pool", "ties", number).permutation(left)  # breaks ties
        rows, losses = self.observations(number)
        if number <= FIRST or all(loss is None for loss in losses):
            gain = self.surrogate.first_gain(rows)
        else:
            assert self.budget is not None
            gain = self.surrogate.gain(rows, losses, self.exploration * (1 - FALL * (number - 1) / self.budget))
        return {"architecture": self.pool.architectures[left[np.argmax(gain[left])]]}

    def vector(self, record: Record) -> FloatArray | None:
        """Returns the objectives of a trial as losses, (1 + k,); None if a value is missing."""
        row, loss = self._rows.get(record.config["architecture"]), self.loss(record)
        if row is None or loss is None or not self._usable[row]:
            return None
        return np.array([loss, *self.costs[row]])

    def front(self) -> pd.DataFrame:
        """Returns the non-dominated trials as rows of `history`, the best by the metric first."""
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
