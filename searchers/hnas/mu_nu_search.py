"""HNAS: Bayesian optimization of (mu, nu). Shu 2022, ch. 7, Alg. 7.1, Eq. 7.7."""

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve, cholesky
from scipy.stats import rankdata

from archray.errors import InvalidInput
from archray.searchers.arguments import BoolArray, FloatArray, SearcherOptions
from archray.searchers.base import Proposal
from archray.searchers.bayesian_optimization import (
    Library,
    check_library,
    losses_of_answers,
    next_point,
    normal_scores,
    random_point,
)
from archray.searchers.hnas import objective
from archray.searchers.hnas.objective import Coordinates, Penalty, Points, Pool, Selection
from archray.searchers.ledger import Record
from archray.searchers.space_search import PoolSearch
from archray.seeds import named_seed

# Surrogate

POINTS = 48  # points drawn for each suggestion; they select about 10 to 40 different rows
LENGTH_SCALE = 0.3  # in quantiles of M and of kappa
NOISE = 0.1  # variance of a result's normal score that M and kappa do not explain
JITTER = 1e-5  # added to the diagonal of the sampled covariance: rows may have the same ranks


class SelectionSurrogate:
    """Chooses the next (mu, nu) by Thompson sampling over the rows that points of the square select.

    1. Draw points uniformly. Each selects the row with the lowest objective that was not suggested yet.
    2. Draw one function from the Gaussian process over rows, given the values of the trained rows.
    3. Choose the point whose row has the largest function value.

    Results are piecewise constant over (mu, nu), so a Gaussian process over (mu, nu) would have to learn the steps.
    This Gaussian process is over the rows of the pool, by their ranks in M and in kappa. So a result informs every
    point that selects a similar row. Its parameters are fixed, since twenty training runs are too few to fit them.

    Args:
        square: the square of (mu, nu) over the pool.
        selection: maps (mu, nu) to the row of the pool that it selects.
    """

    def __init__(self, square: Coordinates, selection: Selection) -> None:
        self.square = square
        self.selection = selection
        pool = square.pool
        self.places: FloatArray = np.stack([rankdata(pool.metric), rankdata(pool.kappa)], axis=1) / len(pool)  # (n, 2)

    def next_point(self, losses: Mapping[int, float], mask: BoolArray, seed: int) -> list[float]:
        """Returns the next point.

        Args:
            losses: losses of the trained rows.
            mask: (n,) True for rows that a point cannot select; at least one entry is False.
            seed: seed of the points and of the drawn function.
        """
        if not losses:
            return random_point(self.square.bounds, seed)
        rng = np.random.default_rng(seed)
        points: dict[int, list[float]] = {}
        for place, weight in zip(*(rng.uniform(low, high, POINTS) for low, high in self.square.bounds), strict=True):
            row = self.selection.lowest(*self.square.mu_nu([place, weight]), mask)
            assert row is not None  # the mask leaves a row
            points.setdefault(row, [float(place), float(weight)])
        values = thompson_sample(
            self.places[list(losses)], standard_scores(-np.array(list(losses.values()))), self.places[list(points)], rng
        )
        return list(points.values())[int(np.argmax(values))]


def standard_scores(values: FloatArray) -> FloatArray:
    """Returns the values' normal scores with mean 0 and standard deviation 1, (n,); they reduce the effect of tails."""
    scores = normal_scores(values)
    return (scores - scores.mean()) / (scores.std() or 1.0)


def thompson_sample(
    places: FloatArray, values: FloatArray, elsewhere: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draws a function given values (n,) at places (n, d), and returns it at the places `elsewhere` (k, d), (k,)."""
    factor = cho_factor(matern(places, places) + NOISE * np.eye(len(places)))
    across = matern(elsewhere, places)  # (k, n)
    mean = across @ cho_solve(factor, values)
    covariance = matern(elsewhere, elsewhere) - across @ cho_solve(factor, across.T)
    root = cholesky(covariance + JITTER * np.eye(len(elsewhere)), lower=True)
    return mean + root @ rng.standard_normal(len(elsewhere))


def matern(left: FloatArray, right: FloatArray) -> FloatArray:
    """Returns the Matern 5/2 kernel of places (n, d) and (k, d) with unit variance, (n, k)."""
    squares = ((left[:, None] - right[None]) ** 2).sum(axis=-1)
    distance = np.sqrt(5 * squares) / LENGTH_SCALE
    return (1 + distance + distance**2 / 3) * np.exp(-distance)


# Searcher

MAX_REPEATS = 5  # known values to pass without a training run until the next best new architecture is taken


class HNASSearch(PoolSearch):
    """HNAS: searches a pool for the architecture with the best validation performance (Algorithm 7.1).

    For steps k = 1, ..., K:
    1. Choose mu_k and nu_k in a square of T = sqrt(nu) and log10 mu (`coordinates`), by the method `points`.
    2. Find A_k, the architecture of the pool that minimizes kappa/M + mu F(M^2 - nu) (`objective`).
    3. Suggest A_k as a trial, which reports its validation performance.
    4. Pass the performance to the Gaussian process, in the order of suggestion.
    `best()` returns the architecture with the best validation performance.

    Suggests: `architecture`, `mu`, `nu` (in units of scaled M^2), `seed`.
    Needs: the metric.
    Takes: a table with the columns `architecture`, `kappa` and a training-free metric.

    Deviations from the paper: M is |M| divided by the pool's maximum. The ranges of (mu, nu), which the paper does not
    give, are derived from the pool (`PoolCoordinates`). The Gaussian process is over the selected rows. If several
    (mu, nu) select one architecture, which the paper does not discuss, only the first trains it (`on_repeat`).

    Args:
        pool: path or URI of a table with the columns `architecture`, `kappa` and `proxy`, one row per canonical form.
        proxy: the column of the metric M.
        budget: K, the number of training runs.
        penalty: F(x) = x^2 (`square`, Eq. 7.7 at t = 1) or |x| (`absolute`); None: `square`.
        points: the method that chooses (mu, nu). `selections`: five fixed points, then alternately at random and by a
            Gaussian process over the selected rows (`SelectionSurrogate`). `bayesian`: a Gaussian process over
            (mu, nu), as in the paper. `uniform`: at random, independent of results. None: `bayesian` for `paper-code`
            and for `reuse`, else `selections`.
        preset: `paper-code` follows the authors' code: absolute penalty, kappa/(M + 1e-6), `PaperCodeCoordinates`, and
            candidates that grow by 2,000 random rows of the pool with each step.
        on_repeat: `next-best` (default, as in the authors' code) takes the objective's best architecture that was not
            suggested yet. `reuse` passes the known value to the Bayesian optimizer without a training run and chooses
            again, at most 5 times per training run; then it takes the next best architecture too.
        points_to_evaluate: `{"architecture"}` or `{"mu", "nu"}` or all three, to suggest first; they count in the
            budget.
        log10_mu: range of log10 mu in the units of the coordinates; None: (-4, 0) for `paper-code`, else (-2, 2).
        library: fits the Gaussian process of `bayesian`, `scikit-optimize` or `scikit-learn`.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other invalid argument.

    Example:
        ```python
        search = HNASSearch("pool.parquet", proxy="snip", budget=20, metric="accuracy", mode="max")
        tune.Tuner(train, tune_config=tune.TuneConfig(search_alg=search, num_samples=-1)).fit()
        print(search.questions()[["architecture", "mu", "nu", "value"]])
        ```
    """

    opened: ClassVar[tuple[str, ...]] = (*PoolSearch.opened, "coordinates", "selection", "surrogate")
    identity_fields: ClassVar[tuple[str, ...]] = ("proxy", "points", "penalty", "preset", "on_repeat", "library")
    state_fields: ClassVar[tuple[str, ...]] = ("_observations",)

    def __init__(
        self,
        pool: str | Path,
        proxy: str = "ntk_trace",
        budget: int = 20,
        points: Points | None = None,
        penalty: Penalty | None = None,
        preset: Literal["paper-code"] | None = None,
        on_repeat: Literal["reuse", "next-best"] | None = None,
        log10_mu: tuple[float, float] | None = None,
        library: Library = "scikit-optimize",
        **options: Unpack[SearcherOptions],
    ) -> None:
        objective.check_options(points=points, penalty=penalty, preset=preset, on_repeat=on_repeat)
        self._preset = objective.PRESETS[preset]
        low, high = log10_mu if log10_mu is not None else self._preset.coordinates.default_log10_mu
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InvalidInput(f"log10_mu: expected (low, high) with low < high, got {log10_mu!r}")
        self.points: Points = points or ("bayesian" if on_repeat == "reuse" else self._preset.points)
        self.depends_on_results = self.points != "uniform"  # type: ignore[misc]  # set for this searcher alone
        self.penalty: Penalty = penalty or self._preset.penalty
        self.on_repeat = on_repeat or "next-best"
        self.proxy = proxy
        self.preset = preset
        check_library(library)
        self.library: Library = library
        self._log10_mu = (float(low), float(high))
        self._observations: list[dict[str, Any]] = []  # the optimizer's observations, see `questions`
        super().__init__(pool, budget, **options)

    @cached_property
    def pool(self) -> Pool:
        return objective.load_pool(self._file, self.proxy)

    @cached_property
    def coordinates(self) -> Coordinates:
        return self._preset.coordinates(self.pool, self.penalty, self._log10_mu)

    @property
    def log10_mu(self) -> tuple[float, float]:
        """The range of log10 mu of the search, in the units of the scaled objective."""
        low, high = self.coordinates.mu_bounds()
        return math.log10(low), math.log10(high)

    @property
    def epsilon(self) -> float:
        """The constant added to the scaled M in the quotient."""
        return self._preset.epsilon / self.pool.factor

    @cached_property
    def selection(self) -> Selection:
        return Selection(self.pool, self.penalty, self.epsilon)

    @cached_property
    def surrogate(self) -> SelectionSurrogate:
        return SelectionSurrogate(self.coordinates, self.selection)

    def candidates(self, number: int) -> BoolArray:
        """Returns a mask of the rows that suggestion `number` may take if they were not suggested before, (n,)."""
        rows, growth = len(self.pool), self._preset.growth
        candidates = np.ones(rows, dtype=bool)
        if growth is not None and growth * number < rows:
            candidates[self.rng("hnas", "candidates").permutation(rows)[growth * number :]] = False
        return candidates

    def propose(self, number: int) -> Proposal:
        numbers = self.suggested_numbers()
        excluded = ~self.candidates(number)
        suggested = self.suggested_rows()
        if (suggested | excluded).all():
            return None
        observations = list(self._observations)
        repeats: list[dict[str, Any]] = []
        while True:
            point = self._next_point(observations, number, suggested | excluded)
            mu, nu = self.coordinates.mu_nu(point)
            question = {"point": point, "mu": mu, "nu": nu, "for": number}
            if self.on_repeat == "reuse" and len(repeats) < MAX_REPEATS:
                row = self.selection.lowest(mu, nu, excluded)
                assert row is not None
                first = numbers.get(self.pool.architectures[row])
                if first is not None:
                    repeats.append({**question, "number": first})
                    observations.append(repeats[-1])
                    continue
            row = self.selection.lowest(mu, nu, suggested | excluded)
            assert row is not None  # a row is left to suggest
            self._observations += [*repeats, {**question, "number": number}]
            return {"architecture": self.pool.architectures[row], "mu": mu, "nu": nu}

    def _next_point(self, observations: list[dict[str, Any]], number: int, mask: BoolArray) -> list[float]:
        """Returns the next point of the square. mask: (n,) True for the rows that suggestion `number` cannot take."""
        seed, bounds = named_seed(self.seed, "hnas", "points", len(observations), bits=31), self.coordinates.bounds
        position = sum(not observation.get("given", False) for observation in observations)
        if self.points == "uniform":
            return random_point(bounds, seed)
        if position < objective.FIRST_POINTS:
            return self.coordinates.first_point(position)
        if self.points == "selections":
            if position % 2 == 0:  # half of the points are random, since M and kappa may mislead
                return random_point(bounds, seed)
            return self.surrogate.next_point(self._losses_of_rows(number), mask, seed)
        losses = losses_of_answers([observation["number"] for observation in observations], self.usable_losses(number))
        points = [observation["point"] for observation in observations]
        return next_point(points, losses, bounds, seed, self.library)

    def _losses_of_rows(self, number: int) -> dict[int, float]:
        """Returns the losses that suggestion `number` may use, by row; a failed trial has the worst loss."""
        records = self.usable_records(number)
        losses = zip(records.values(), losses_of_answers(list(records), self.usable_losses(number)), strict=True)
        by_name = {record.config["architecture"]: loss for record, loss in losses if loss is not None}
        return {self._rows[name]: loss for name, loss in by_name.items() if name in self._rows}

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        """Returns the complete point: `architecture`, `mu`, `nu`; absent entries become None."""
        name, mu, nu = point.get("architecture"), point.get("mu"), point.get("nu")
        if name is None and ("mu" not in point or "nu" not in point):
            raise InvalidInput(f"Expected a point with architecture, or with mu and nu, got {point!r}")
        if name is not None and not isinstance(name, str):
            raise InvalidInput(f"Expected architecture to be a string, got {name!r}")
        if (mu is None) != (nu is None) or (mu is not None and nu is not None and not (mu > 0 and nu >= 0)):
            raise InvalidInput(f"Expected mu > 0 and nu >= 0, or neither, got mu={mu!r}, nu={nu!r}")
        return {"architecture": name, "mu": mu, "nu": nu}

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        numbers = self.suggested_numbers()
        config = dict(point)
        if config["architecture"] is None:
            mask = self.suggested_rows() & (self.on_repeat != "reuse")
            row = self.selection.lowest(config["mu"], config["nu"], mask)
            if row is None:
                return None
            config["architecture"] = self.pool.architectures[row]
        first = numbers.get(config["architecture"])
        self._add_observation(config, number if first is None else first, number)
        return config if first is None else None

    def on_evaluated_point(self, record: Record) -> None:
        if record.config["architecture"] is None:
            raise InvalidInput("Expected an evaluation of an architecture, got only mu and nu")
        self._add_observation(record.config, record.number, record.number)

    def _add_observation(self, config: Mapping[str, Any], number: int, suggestion: int) -> None:
        mu, nu = config["mu"], config["nu"]
        if mu is not None:
            observation = {"point": self.coordinates.point(mu, nu), "mu": mu, "nu": nu, "number": number}
            self._observations.append({**observation, "for": suggestion, "given": True})

    def questions(self) -> pd.DataFrame:
        """Returns a table with one row per choice of (mu, nu), in order, repeats without a training run included.

        Columns: number (from 0; -1 for an external evaluation), trial (the number of the trial that has the value),
        architecture, mu, nu, value (NaN if it failed), failure, repeat (True without a training run), given (True for
        an external evaluation).
        """
        columns = ["number", "trial", "architecture", "mu", "nu", "value", "failure", "repeat", "given"]
        table, number = [], 0
        for record in self.records():
            repeats = [o for o in self._observations if o["for"] == record.number != o["number"]]
            answers = [(self.ledger.records[o["number"]], o["mu"], o["nu"], True) for o in repeats]
            for answer, mu, nu, repeat in [*answers, (record, record.config["mu"], record.config["nu"], False)]:
                entry = self.row(answer) | {"trial": answer.number, "mu": mu, "nu": nu, "repeat": repeat}
                entry |= {"number": -1 if entry["given"] and not repeat else number}
                number += entry["number"] >= 0
                table.append(entry)
        return pd.DataFrame(table, columns=columns).astype({"mu": float, "nu": float, "value": float})

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {"log10_mu": self._log10_mu}
