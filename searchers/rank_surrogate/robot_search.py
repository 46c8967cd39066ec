"""RoBoT: Bayesian optimization of several training-free metrics' weights. He et al. 2024, Algorithm 1; note H6."""

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Unpack

import numpy as np

from archray.searchers.arguments import FloatArray, SearcherOptions
from archray.searchers.base import Proposal
from archray.searchers.bayesian_optimization import losses_of_answers
from archray.searchers.rank_surrogate.search import MetricPoolSearch
from archray.searchers.rank_surrogate.surrogate import PoolProcess

CANDIDATES = 2048  # number of uniformly drawn weightings from which the optimizer chooses
LENGTHS = (0.25, 0.5, 1.0, 2.0)  # of the Matern kernel, in units of sqrt(k); the most likely length is used
KAPPA = 2.576  # standard deviations above the mean, the default of the library that the authors' code uses
NOISE = 1e-4  # variance of a value, for the factorization: the objective is piecewise constant


class RoBoTSearch(MetricPoolSearch):
    """RoBoT: searches a pool by a weighted sum of its metrics, whose weights Bayesian optimization finds.

    For steps t = 1, ..., T, with T the budget:
    1. Choose w_t in [-1, 1]^k with the largest upper confidence bound of a Gaussian process (Matern 5/2); w_1: random.
    2. Let A_t be the architecture with the largest w_t . M, where M are the metrics, each scaled to [0, 1] over the
       pool.
    3. If A_t is new, suggest it as a trial. Otherwise its value is in the records, and the step costs no training run.
    The rest of the budget goes, greedily, to the top of the ranking by the weights that selected the best architecture.

    Suggests: `architecture`, `weights` (a list), `seed`.
    Needs: the metric.
    Takes: a table with the column `architecture` and one metric or more.

    The metrics decide the result. The paper uses grad_norm, snip, grasp, fisher, synflow and jacov. Without synflow,
    20 evaluations are worse than random search on NAS-Bench-201. `docs/benchmarks/several-metrics.md` compares with
    published results.

    Deviations from the paper: The weights are chosen among 2,048 uniform draws, not by a local optimizer. The kernel's
    length is the most likely of four. If several weights selected the best architecture, the first ones rank the rest
    of the pool; the authors' program uses the last ones. The paper leaves open, and archray sets: kappa of the bound, a
    missing value of a metric (0, its smallest value), the value of a failed trial (the worst so far), and the expected
    result of a trial in flight (the prediction).

    Args:
        pool, metrics, budget, results, points_to_evaluate: as for `RankSurrogateSearch`; at least one metric.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other invalid argument.

    Example:
        ```python
        metrics = ["snip", "-kappa", "flops"]  # a small kappa is good
        search = RoBoTSearch("pool.csv", metrics, budget=20, metric="accuracy", mode="max")
        tune.Tuner(train, tune_config=tune.TuneConfig(search_alg=search, num_samples=-1)).fit()
        ```
    """

    opened: ClassVar[tuple[str, ...]] = (*MetricPoolSearch.opened, "_scaled", "weightings", "_processes")
    state_fields: ClassVar[tuple[str, ...]] = ("_questions",)

    def __init__(
        self,
        pool: str | Path,
        metrics: Sequence[str] | None = None,
        budget: int = 20,
        results: Sequence[str] = (),
        **options: Unpack[SearcherOptions],
    ) -> None:
        self._questions: list[dict[str, int]] = []  # weightings, each with the number of the trial that has its value
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
        """(c, k) the weightings to choose from."""
        return self.rng("robot", "weightings").uniform(-1, 1, (CANDIDATES, len(self.metrics)))

    @cached_property
    def _processes(self) -> list[PoolProcess]:
        """Gaussian processes over the weightings, one for each length of the kernel."""

        def matern(row: int, length: float) -> FloatArray:
            scaled = np.sqrt(5) * np.linalg.norm(self.weightings - self.weightings[row], axis=1) / length  # (c,)
            return (1 + scaled + scaled**2 / 3) * np.exp(-scaled)

        lengths = [length * float(np.sqrt(len(self.metrics))) for length in LENGTHS]
        ones = np.ones(CANDIDATES)
        return [PoolProcess(partial(matern, length=length), ones, 0 * ones, NOISE) for length in lengths]

    def propose(self, number: int) -> Proposal:
        suggested = self.suggested_rows()
        if suggested.all():
            return None
        numbers = self.suggested_numbers()
        losses = self.usable_losses(number)
        questions = list(self._questions)
        assert self.budget is not None
        while len(questions) < min(self.budget, CANDIDATES):
            weighting = self._next_weighting(questions, losses)
            architecture = self.pool.architectures[int(np.argmax(self._scaled @ self.weightings[weighting]))]
            first = numbers.get(architecture)
            questions.append({"weighting": weighting, "number": number if first is None else first})
            if first is None:
                self._questions = questions
                return {"architecture": architecture, "weights": self.weightings[weighting].tolist()}
        self._questions = questions
        values = [-np.inf if value is None else value for value in _values(questions, losses)]
        weights = self.weightings[
            questions[int(np.argmax(values))]["weighting"]
        ]  # of the best value; the first if equal
        row = int(np.argmax(np.where(suggested, -np.inf, self._scaled @ weights)))
        return {"architecture": self.pool.architectures[row], "weights": weights.tolist()}

    def _next_weighting(self, questions: Sequence[dict[str, int]], losses: dict[int, float | None]) -> int:
        """Returns the weighting with the largest bound that is not in `questions`; weighting 0 at the start."""
        weightings = [question["weighting"] for question in questions]
        if not weightings:
            return 0
        targets = _standardized(_values(questions, losses))
        for process in self._processes:
            process.observe(weightings)
        posteriors = (process.posterior(targets) for process in self._processes)
        likeliest = max(posteriors, key=lambda posterior: posterior.evidence)
        bound = likeliest.mean + KAPPA * likeliest.deviation
        bound[weightings] = -np.inf
        return int(np.argmax(bound))


def _values(questions: Sequence[dict[str, int]], losses: dict[int, float | None]) -> list[float | None]:
    """Returns the value of the architecture that each question selected; None for a pending result."""
    answers = losses_of_answers([question["number"] for question in questions], losses)
    return [None if loss is None else -loss for loss in answers]


def _standardized(values: Sequence[float | None]) -> list[float | None]:
    """Returns the values with mean 0 and standard deviation 1; None stays None."""
    finite = np.array([value for value in values if value is not None])
    if not len(finite):
        return list(values)
    scale = float(finite.std()) or 1.0
    return [None if value is None else float((value - finite.mean()) / scale) for value in values]
