"""RoBoT: Bayesian optimisation of several training-free metrics' weights. He et al. 2024, Algorithm 1; note H6."""

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from archray.searchers.arguments import FloatArray, SearcherOptions
from archray.searchers.base import Proposal
from archray.searchers.rank_surrogate.gaussian_process import PoolProcess
from archray.searchers.rank_surrogate.pool_search import PoolSearch

CANDIDATES = 2048  # weightings, drawn uniformly, of which the optimiser asks for one after the other
LENGTHS = (0.25, 0.5, 1.0, 2.0)  # of the Matern kernel, in units of sqrt(k): the likeliest is taken
KAPPA = 2.576  # deviations above the mean, of the library that the authors' program calls
NOISE = 1e-4  # of a value, for the factorisation: the objective is piecewise constant


class RoBoTSearch(PoolSearch):
    """Searches a pool by the weighted sum of its metrics, whose weights are found by Bayesian optimisation (RoBoT).

    For steps t = 1, ..., T, T the budget:
    1. choose w_t in [-1, 1]^k, the largest upper confidence bound of a Gaussian process (Matern 5/2); w_1 at random;
    2. A_t is the architecture of which w_t . M is largest, M the metrics, each scaled to [0, 1] over the pool;
    3. if A_t is new it is suggested as a trial; else its value is known, and the step costs no training.
    Then what is left of the budget goes, greedily, down the ranking by the weights that selected the best architecture.

    Suggests: `architecture`, `weights` (a list), `seed`.
    Needs: the metric.
    Takes: a table with the column `architecture` and one metric or more.

    Where this deviates from the paper: the weights are chosen among 2,048 drawn uniformly, not by a local optimiser;
    the kernel's length is the likeliest of four. What the paper leaves open is chosen here: kappa of the bound, a
    missing value of a metric (0, as its smallest), what one that failed counts (as the worst known), and that a trial
    in flight is expected to come out as predicted.

    Args:
        pool, metrics, budget, results, points_to_evaluate: as for `RankSurrogateSearch`; at least one metric.
        seed, metric, mode, max_concurrent, asynchronous: see `ArchraySearcher`.

    Raises: InvalidPool for a table that cannot serve, InvalidInput for any other argument.
    """

    opened: ClassVar[tuple[str, ...]] = (*PoolSearch.opened, "_scaled", "weightings", "_processes")

    def __init__(
        self,
        pool: str | Path,
        metrics: Sequence[str] | None = None,
        budget: int = 20,
        results: Sequence[str] = (),
        **options: Unpack[SearcherOptions],
    ) -> None:
        self._questions: list[dict[str, int]] = []  # asked of the optimiser: which weighting, and whose value it has
        super().__init__(pool, metrics, "none", budget, results, **options)

    @cached_property
    def _scaled(self) -> FloatArray:
        """(n, k) the metrics, each in [0, 1]."""
        columns = self.pool.columns
        finite = np.where(np.isfinite(columns), columns, np.nan)
        low, high = np.nanmin(finite, axis=0), np.nanmax(finite, axis=0)
        return np.nan_to_num((finite - low) / (high - low))

    @cached_property
    def weightings(self) -> FloatArray:
        """(c, k) the weights that may be asked for."""
        return self.rng("robot", "weightings").uniform(-1, 1, (CANDIDATES, len(self.metrics)))

    @cached_property
    def _processes(self) -> list[PoolProcess]:
        """Over the weightings, one for each length of the kernel."""

        def matern(row: int, length: float) -> FloatArray:
            scaled = np.sqrt(5) * np.linalg.norm(self.weightings - self.weightings[row], axis=1) / length  # (c,)
            return (1 + scaled + scaled**2 / 3) * np.exp(-scaled)

        lengths = [length * float(np.sqrt(len(self.metrics))) for length in LENGTHS]
        ones = np.ones(CANDIDATES)
        return [PoolProcess(partial(matern, length=length), ones, 0 * ones, NOISE) for length in lengths]

    # Algorithm 1 ---------------------------------------------------------------------------------------------------

    def propose(self, number: int) -> Proposal:
        suggested = self.suggested_rows()
        if suggested.all():
            return None
        numbers = {record.config["architecture"]: record.number for record in reversed(self.records())}
        losses = self.usable_losses(number)
        questions = list(self._questions)
        assert self.budget is not None
        while len(questions) < min(self.budget, CANDIDATES):
            weighting = self._ask(questions, losses)
            architecture = self.pool.architectures[int(np.argmax(self._scaled @ self.weightings[weighting]))]
            first = numbers.get(architecture)
            questions.append({"weighting": weighting, "number": number if first is None else first})
            if first is None:
                self._questions = questions
                return {"architecture": architecture, "weights": self.weightings[weighting].tolist()}
        self._questions = questions
        weights = self.weightings[self._best(questions, losses)]
        row = int(np.argmax(np.where(suggested, -np.inf, self._scaled @ weights)))
        return {"architecture": self.pool.architectures[row], "weights": weights.tolist()}

    def _ask(self, questions: Sequence[dict[str, int]], losses: dict[int, float | None]) -> int:
        """The weighting of the largest bound, of those not asked for yet; the first of all while nothing is known."""
        weightings = [question["weighting"] for question in questions]
        if not weightings:
            return 0
        targets = _standardised([self._value(question, losses) for question in questions])
        for process in self._processes:
            process.observe(weightings)
        posteriors = (process.posterior(targets) for process in self._processes)
        likeliest = max(posteriors, key=lambda posterior: posterior.evidence)
        bound = likeliest.mean + KAPPA * likeliest.deviation
        bound[weightings] = -np.inf
        return int(np.argmax(bound))

    def _best(self, questions: Sequence[dict[str, int]], losses: dict[int, float | None]) -> int:
        """The weighting that selected the best architecture; the first of equals, or of all."""
        values = [self._value(question, losses) for question in questions]
        scores = [-np.inf if value is None else value for value in values]
        return questions[int(np.argmax(scores))]["weighting"]

    def _value(self, question: dict[str, int], losses: dict[int, float | None]) -> float | None:
        """What the architecture that was selected came to; None: not in yet."""
        finite = [loss for loss in losses.values() if loss is not None]
        if question["number"] not in losses or not finite:
            return None
        loss = losses[question["number"]]
        return -max(finite) if loss is None else -loss

    # State ---------------------------------------------------------------------------------------------------------

    def search_state(self) -> dict[str, Any]:
        return {"questions": self._questions}

    def set_search_state(self, state: dict[str, Any]) -> None:
        self._questions = list(state.get("questions", ()))


def _standardised(values: Sequence[float | None]) -> list[float | None]:
    """To mean 0 and deviation 1 over those that are known; None stays None."""
    finite = np.array([value for value in values if value is not None])
    if not len(finite):
        return list(values)
    scale = float(finite.std()) or 1.0
    return [None if value is None else float((value - finite.mean()) / scale) for value in values]
