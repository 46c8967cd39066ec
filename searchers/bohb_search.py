"""BOHB: suggestions from the densities of good and bad configs, at the largest budget. Falkner et al. 2018, section 3.

The model is hpbandster's, by the paper's authors. It is built for every suggestion from all results and a seed, so the
results are the entire state. The densities of hpbandster 0.7.4 do not suit categorical decisions. Deviations from it:
- The bandwidth of a decision with C choices is (C - 1) / C times n^(-1 / (D + 4)). At (C - 1) / C the kernel is
  uniform; the second factor is the rate of hpbandster's rule of thumb. The rule treats the indices of choices as
  numbers, so their order matters. With few results it returns a bandwidth above 1, which penalizes the choices of good
  configs.
- The kernel spreads its bandwidth over the C - 1 other choices. The kernel of statsmodels counts only the choices in
  its data: if all good configs share one choice, every other choice has an infinite density.
- hpbandster draws from NumPy's global generator, which this module restores afterwards.
"""

import importlib.util
import itertools
import logging
import math
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, Unpack

import numpy as np

from archray.errors import InvalidInput, MissingExtra, install_command
from archray.searchers.arguments import FloatArray, IntArray, SearcherOptions, check_whole_number, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.config_space import SpaceSource
from archray.searchers.ledger import Record, read_metric
from archray.searchers.space_search import NOT_READ, DecisionSearch
from archray.seeds import named_seed

logger = logging.getLogger(__name__)
_GLOBAL_GENERATOR = threading.Lock()  # one search at a time uses NumPy's global generator
Observation = tuple[IntArray, float]  # (D,) the indices of the choices; the loss, which may be infinite


class DecisionDensity:
    """A density over D categorical decisions: the mean of Aitchison and Aitken's kernels around n configs.

    Args:
        data: (n, D) indices of choices.
        sizes: (D,) numbers of choices, C.
    """

    def __init__(self, data: FloatArray, sizes: IntArray) -> None:
        results, decisions = data.shape
        self.data, self.sizes = data, sizes
        self.bw = (1 - 1 / sizes) * results ** (-1 / (decisions + 4))  # (D,) the probability of all other choices

    def pdf(self, places: Sequence[int]) -> float:
        """Returns the probability of (D,) indices of choices; the sum over all combinations is one."""
        others = self.bw / np.maximum(self.sizes - 1, 1)  # (D,)
        return float(np.where(self.data == np.asarray(places), 1 - self.bw, others).prod(axis=1).mean())


def check_hpbandster() -> None:
    """Raises: MissingExtra if hpbandster or ConfigSpace is not installed; neither is imported."""
    absent = [name for name in ("hpbandster", "ConfigSpace") if importlib.util.find_spec(name) is None]
    if absent:
        raise MissingExtra(
            f"Expected hpbandster and ConfigSpace for BOHB, but {' and '.join(absent)} cannot be imported. "
            f"Run {install_command('bohb')}, or use 'asha', which needs no model."
        )


def model_draws(
    sizes: Sequence[int], observations: Mapping[float, Sequence[Observation]], seed: int, **options: float
) -> Iterator[tuple[IntArray, bool]]:
    """Yields suggestions without end: (D,) indices of choices, and whether the model drew them.

    The model uses the largest budget with enough results for two densities, D + 1 for each.

    Args:
        sizes: (D,) numbers of choices.
        observations: results by budget, in the order of suggestion.
        seed: seed of the draws.
        options: `top_n_percent`, `num_samples`, `random_fraction` of `BOHBSearch`.

    Raises: MissingExtra if hpbandster is not installed.
    """
    check_hpbandster()
    random = np.random.RandomState(seed)
    with _as_global(random):
        generator = _generator(sizes, observations, seed, **options)
    while True:
        with _as_global(random):
            config, how = generator.get_config(None)
        yield np.array([int(config[_name(row)]) for row in range(len(sizes))]), bool(how.get("model_based_pick"))


def _generator(
    sizes: Sequence[int], observations: Mapping[float, Sequence[Observation]], seed: int, **options: float
) -> Any:
    """Returns hpbandster's generator with the model of one budget."""
    import ConfigSpace  # an optional dependency
    from hpbandster.optimizers.config_generators.bohb import BOHB

    space = ConfigSpace.ConfigurationSpace(seed=seed)
    for row, size in enumerate(sizes):
        space.add(ConfigSpace.CategoricalHyperparameter(_name(row), list(range(size))))
    generator = BOHB(space, logger=logger, **options)
    for budget in sorted(observations, reverse=True):
        results = observations[budget]
        for number, (places, loss) in enumerate(results, start=1):
            config = {_name(row): int(place) for row, place in enumerate(places)}
            job = SimpleNamespace(exception=None, result={"loss": loss}, kwargs={"budget": budget, "config": config})
            generator.new_result(job, update_model=number == len(results))
        if budget in generator.kde_models:
            generator.kde_models[budget] = {
                side: fitted(kde, np.asarray(sizes)) for side, kde in generator.kde_models[budget].items()
            }
            break
    return generator


def fitted(kde: Any, sizes: IntArray) -> DecisionDensity:
    """Returns the density around the data of a fitted statsmodels `KDEMultivariate`."""
    return DecisionDensity(kde.data, sizes)


def _name(row: int) -> str:
    """Returns the name of a decision; ConfigSpace sorts decisions by name."""
    return f"d{row:04d}"


@contextmanager
def _as_global(random: np.random.RandomState) -> Iterator[None]:
    """Makes `random` NumPy's global generator inside the block, and restores the old one afterwards."""
    with _GLOBAL_GENERATOR:
        before = np.random.get_state()  # noqa: NPY002
        np.random.set_state(random.get_state())  # noqa: NPY002
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # hpbandster uses deprecated parts of ConfigSpace and statsmodels
                yield
        finally:
            random.set_state(np.random.get_state())  # noqa: NPY002
            np.random.set_state(before)  # noqa: NPY002


# Searcher

DRAWS = 50  # maximum draws of the model, a third of them random, to find a new config


class BOHBSearch(DecisionSearch):
    """BOHB: suggests configs from a density model of the results at the largest budget.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric, and the entry that `time_attr` names.
    Takes: a space, a list of candidates, a dict of `tune.choice` and `tune.randint`, or a custom space object with
    `decisions`.

    Use it with a scheduler that stops trials early (`ASHAScheduler`). Without a scheduler it learns from whole trials.
    It suggests each config at most once, unless 50 draws find no new config.

    Suggestion k uses the results of suggestions 1 to k - q at every budget that they reached:
    1. The suggestion is random with probability `random_fraction`, and while no budget has 2 (D + 1) results, with D
       the number of decisions.
    2. The model uses the largest budget with that many results: a density l of the best `top_n_percent` (at least
       D + 1), and a density g of the others.
    3. Draws `num_samples` points from l, and suggests the point with the largest l / g.
    A failed trial counts as the worst result at the lowest budget. An external evaluation counts at the largest budget.

    Deviations from the paper: Any scheduler may stop the trials, Hyperband with its brackets or ASHA without. The
    densities of decisions are corrected (see the module). Numbers are treated as choices among values.

    Args:
        space, budget, points_to_evaluate: see `DecisionSearch`.
        time_attr: the entry of a result that holds its budget, as for the scheduler.
        budgets: the values of `time_attr` to use, such as the scheduler's rungs; None: all reported values.
        top_n_percent: the percentage of results at a budget that count as good; at least D + 1 results.
        num_samples: the number of draws from the density of good configs.
        random_fraction: the share of random suggestions.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: see `DecisionSearch`; MissingExtra without hpbandster.

    Example:
        ```python
        search = BOHBSearch("nasbench201", budget=50, metric="accuracy", mode="max")
        asha = ASHAScheduler(metric="accuracy", mode="max", max_t=27, reduction_factor=3)
        tune_config = tune.TuneConfig(search_alg=search, scheduler=asha, num_samples=-1)
        tune.Tuner(train, tune_config=tune_config).fit()
        ```
    """

    identity_fields: ClassVar[tuple[str, ...]] = ("time_attr", "budgets")

    def __init__(
        self,
        space: SpaceSource | Sequence[str],
        budget: int,
        time_attr: str = "training_iteration",
        budgets: Sequence[float] | None = None,
        top_n_percent: int = 15,
        num_samples: int = 64,
        random_fraction: float = 1 / 3,
        **options: Unpack[SearcherOptions],
    ) -> None:
        for name, number in (("top_n_percent", top_n_percent), ("num_samples", num_samples)):
            check_whole_number(name, number)
        if top_n_percent > 99:
            raise InvalidInput(f"top_n_percent: expected a whole number from 1 to 99, got {top_n_percent!r}")
        if not is_finite_number(random_fraction) or not 0 <= random_fraction <= 1:
            raise InvalidInput(f"random_fraction: expected a number from 0 to 1, got {random_fraction!r}")
        if budgets is not None and (not len(budgets) or not all(map(is_finite_number, budgets))):
            raise InvalidInput(f"budgets: expected numbers, or None, got {budgets!r}")
        check_hpbandster()
        self.time_attr = time_attr
        self.budgets = None if budgets is None else tuple(sorted({float(value) for value in budgets}))
        self.model = {
            "top_n_percent": int(top_n_percent),
            "num_samples": int(num_samples),
            "random_fraction": float(random_fraction),
        }
        self._curves: dict[int, dict[float, float]] = {}  # by number: the value at each budget before the last
        self.result_keys = (time_attr,)  # type: ignore[misc]  # of this searcher alone
        super().__init__(space, budget, **options)

    def propose(self, number: int) -> Proposal:
        keys = self.suggested_keys()
        seed = named_seed(self.seed, "bohb", "model", number, bits=32)
        draws = model_draws(self.sizes, self.observations(number), seed, **self.model)
        for places, _ in itertools.islice(draws, DRAWS):
            config = self.config_of(places)
            if config is not None and self._space.key(config) not in keys:
                self._places[number] = places.tolist()
                return config
        return self.new_config(self.rng("bohb", "draws", number))

    def observations(self, number: int) -> dict[float, list[Observation]]:
        """Returns the results that suggestion `number` may use, by budget: (D,) indices of choices and losses."""
        sign = 1.0 if self._mode == "min" else -1.0
        curves = {k: self._curve(record) for k, record in self.usable_records(number).items()}
        reached = [budget for curve in curves.values() for budget in curve] + list(self.budgets or ())
        observations: dict[float, list[Observation]] = {}
        for k, record in self.usable_records(number).items():
            places = self.places(k, record.config)
            if NOT_READ in places:
                continue
            losses = {budget: sign * value for budget, value in curves[k].items()}
            if record.number < 0 and record.value is not None:
                losses = {max(reached, default=1.0): sign * record.value}
            elif record.value is None:
                losses = {min(reached, default=1.0): math.inf}
            for budget, loss in losses.items():
                observations.setdefault(budget, []).append((places, loss))
        return observations

    def _curve(self, record: Record) -> dict[float, float]:
        """Returns the values of a trial by budget; empty for a failed trial and an external evaluation."""
        if record.number < 0 or record.value is None:
            return {}
        last = record.result.get(self.time_attr, 1)
        return {**self._curves.get(record.number, {}), **({float(last): record.value} if self._counts(last) else {})}

    def _counts(self, time: Any) -> bool:
        return is_finite_number(time) and (self.budgets is None or float(time) in self.budgets)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Keeps the value at each budget; a retried trial reports the same budgets again."""
        super().on_trial_result(trial_id, result)
        record = self.ledger.of_trial(trial_id)
        if record is None or (record.ended and not record.errored) or not self._metric:
            return
        value, time = read_metric(result, self._metric)[0], result.get(self.time_attr)
        if value is not None and self._counts(time):
            self._curves.setdefault(record.number, {})[float(time)] = value  # type: ignore[arg-type]  # a number

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {"model": list(self.model.values())}

    def search_state(self) -> dict[str, Any]:
        return super().search_state() | {"curves": [[k, list(curve.items())] for k, curve in self._curves.items()]}

    def set_search_state(self, state: dict[str, Any]) -> None:
        super().set_search_state(state)
        self._curves = {number: dict(curve) for number, curve in state.get("curves", ())}
