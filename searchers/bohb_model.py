"""BOHB's model: a density of the good and one of the bad configs, over decisions. Falkner et al. 2018, section 3.

hpbandster's, by the paper's authors; the only file that imports it. It is built anew for every suggestion, from all
that is known and a seed of its own, so that the results are the entire state, as in `bo`.

Where this is not hpbandster 0.7.4 as it comes, because its densities do not fit decisions:
- The bandwidth of a decision of C choices is (C - 1) / C, at which its kernel is uniform, times n^(-1 / (D + 4)), the
  rate of hpbandster's rule of thumb. That rule takes the places of the choices for numbers, so that their order counts;
  with few results it gives more than 1, by which the choices of the good configs count against themselves.
- The kernel spreads what it takes from a choice over the C - 1 others. That of statsmodels counts the choices that
  occur in its data alone: where all good configs share one, any other choice has an infinite density there.
- It draws from NumPy's global generator, which is given back as it was.
"""

import importlib.util
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from archray.errors import MissingExtra
from archray.searchers.arguments import FloatArray, IntArray

logger = logging.getLogger(__name__)
_GLOBAL_GENERATOR = threading.Lock()  # of two searches in threads one borrows NumPy's generator at a time
Observation = tuple[IntArray, float]  # (D,) the places of the choices; the loss, which may be infinite


@dataclass(frozen=True)
class ModelOptions:
    """hpbandster's options, with its defaults.

    Args:
        top_n_percent: of the results at a budget, how many are the good ones; D + 1 at least.
        num_samples: draws from the density of the good, of which the one with the best ratio is suggested.
        random_fraction: of the suggestions, how many are random ones.
    """

    top_n_percent: int = 15
    num_samples: int = 64
    random_fraction: float = 1 / 3


@dataclass(frozen=True)
class DecisionDensity:
    """The mean of Aitchison and Aitken's kernels around n configs of D decisions.

    Args:
        data: (n, D) places of choices. bw: (D,) what each kernel takes from its own choice. sizes: (D,) C.
    """

    data: FloatArray
    bw: FloatArray
    sizes: IntArray

    @classmethod
    def of(cls, data: FloatArray, sizes: IntArray) -> "DecisionDensity":
        """The density of (n, D) places of choices."""
        results, decisions = data.shape
        return cls(data, (1 - 1 / sizes) * results ** (-1 / (decisions + 4)), sizes)

    def pdf(self, places: Sequence[int]) -> float:
        """The probability of (D,) places of choices; over all of them it sums to one."""
        others = self.bw / np.maximum(self.sizes - 1, 1)  # (D,)
        return float(np.where(self.data == np.asarray(places), 1 - self.bw, others).prod(axis=1).mean())


def check_hpbandster() -> None:
    """Raises: MissingExtra, with what to install, if hpbandster or ConfigSpace is not there. It imports neither."""
    absent = [name for name in ("hpbandster", "ConfigSpace") if importlib.util.find_spec(name) is None]
    if absent:
        raise MissingExtra(
            f"BOHB's model is that of hpbandster, and {' and '.join(absent)} cannot be imported; "
            "pip install 'archray[bohb]' installs it, and 'asha' searches without a model"
        )


def model_draws(
    sizes: Sequence[int], observations: Mapping[float, Sequence[Observation]], seed: int, options: ModelOptions
) -> Iterator[tuple[IntArray, bool]]:
    """Suggestions, as many as are asked for: (D,) the places of the choices, and whether they are the model's.

    The model is that of the largest budget with results enough for two densities: D + 1 for each.

    Args:
        sizes: (D,) numbers of choices.
        observed: by budget, what is known there, in the order of suggestion.
        seed: of the draws.

    Raises: MissingExtra if hpbandster is not there.
    """
    check_hpbandster()
    random = np.random.RandomState(seed)
    with _as_global(random):
        generator = _generator(sizes, observations, seed, options)
    while True:
        with _as_global(random):
            config, how = generator.get_config(None)
        yield np.array([int(config[_name(row)]) for row in range(len(sizes))]), bool(how.get("model_based_pick"))


def _generator(
    sizes: Sequence[int], observations: Mapping[float, Sequence[Observation]], seed: int, options: ModelOptions
) -> Any:
    """hpbandster's generator with the model of one budget."""
    import ConfigSpace
    from hpbandster.optimizers.config_generators.bohb import BOHB

    space = ConfigSpace.ConfigurationSpace(seed=seed)
    for row, size in enumerate(sizes):
        space.add(ConfigSpace.CategoricalHyperparameter(_name(row), list(range(size))))
    generator = BOHB(
        space,
        top_n_percent=options.top_n_percent,
        num_samples=options.num_samples,
        random_fraction=options.random_fraction,
        logger=logger,
    )
    for budget in sorted(observations, reverse=True):
        results = observations[budget]
        for number, (places, loss) in enumerate(results, start=1):
            config = {_name(row): int(place) for row, place in enumerate(places)}
            generator.new_result(_Job(loss, budget, config), update_model=number == len(results))
        if budget in generator.kde_models:
            generator.kde_models[budget] = {
                side: fitted(kde, np.asarray(sizes)) for side, kde in generator.kde_models[budget].items()
            }
            break
    return generator


def fitted(kde: Any, sizes: IntArray) -> DecisionDensity:
    """The density around what a statsmodels `KDEMultivariate` was fitted to."""
    return DecisionDensity.of(kde.data, sizes)


class _Job:
    """A result as hpbandster has it of its own workers."""

    exception = None

    def __init__(self, loss: float, budget: float, config: dict[str, int]) -> None:
        self.result = {"loss": loss}
        self.kwargs = {"budget": budget, "config": config}


def _name(row: int) -> str:
    """Of a decision: ConfigSpace sorts them by name."""
    return f"d{row:04d}"


@contextmanager
def _as_global(random: np.random.RandomState) -> Iterator[None]:
    """NumPy's global generator draws what `own` would, and is then as it was before."""
    with _GLOBAL_GENERATOR:
        before = np.random.get_state()  # noqa: NPY002
        np.random.set_state(random.get_state())  # noqa: NPY002
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # hpbandster calls what ConfigSpace and statsmodels are about to change
                yield
        finally:
            random.set_state(np.random.get_state())  # noqa: NPY002
            np.random.set_state(before)  # noqa: NPY002
