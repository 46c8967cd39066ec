"""Configurations of searches for a feature map: random search, multi-fidelity search, halving with shared weights.

Khodak et al. 2020, Algorithm 1, Figures 1 and 3, appendix B.1; Li et al. 2018.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from archray.errors import InvalidInput
from archray.platform.methods.config import FinalConfig
from archray.platform.methods.method import Method, Values
from archray.settings import Settings
from archray.trainables.data import DataSettings
from archray.trainables.feature_maps.solve_settings import Bases, SolveSettings
from archray.trainables.spaces import Space, get_space, is_custom_space
from archray.trainables.spaces.feature_map import FeatureMapSpace

DIMENSIONS = {"images": 2_000, "text": 65_536}  # default number of features
PAPER: Values = {"data": {"name": "cifar10"}, "dimension": 100_000}
FLAGS: Mapping[str, str] = {"dimension": "dimension", "loss": "solve.loss", "final_seeds": "final_seeds"}


class FeatureMapConfig(FinalConfig):
    """The configuration of a method that selects a feature map. Each final solve draws new bases.

    Fields:
        solve: the regularized problem, and how its solution is scored.
        dimension: number of features of a full solve. Default: 2,000 for images and 65,536 for text (in the paper
            100,000 for CIFAR-10 and 16,777,216 for IMDb).
    """

    space: str = "fourier"
    solve: SolveSettings = SolveSettings()
    dimension: int | None = Field(None, ge=1, validate_default=True)

    @field_validator("data")
    @classmethod
    def _split_of_the_paper(cls, data: DataSettings) -> DataSettings:
        """Splits CIFAR-10 into 40,000, 10,000 and 10,000 images by default (appendix B.2.1)."""
        if data.name == "cifar10" and data.validation_fraction is None:
            return data.model_copy(update={"validation_fraction": 0.2})
        return data

    @field_validator("dimension")
    @classmethod
    def _of_custom_space(cls, dimension: int | None, info: ValidationInfo) -> int | None:
        """Sets the dimension for a custom space, as the configuration of a run is read without the code of the run."""
        space = info.data.get("space", "")
        if dimension is None and is_custom_space(space) and not info.context:
            return DIMENSIONS[get_space(space).data_kind]
        return dimension

    @property
    def full_dimension(self) -> int:
        """Number of features of a full solve."""
        if self.dimension is None and is_custom_space(self.space):
            raise InvalidInput(f"expected a dimension for the space {self.space}, got none. Set --dimension")
        return self.dimension or DIMENSIONS[get_space(self.space).data_kind]

    @property
    def mode(self) -> str:
        """Whether the best score is the smallest (a loss) or the largest (an accuracy)."""
        return "min" if self.solve.score == "loss" else "max"

    def check(self) -> None:
        from archray.trainables.tune.feature_map_trainable import check_memory  # which imports torch and scikit-learn

        check_memory(self.solve, data=self.data, space=self.space, dimension=self.full_dimension)


def serves(space: Space) -> str | None:
    """None for a space of feature maps; otherwise the reason why it cannot be searched."""
    if isinstance(space, FeatureMapSpace):
        return None
    return "it is not a space of feature maps. Choose fourier or ngrams. For networks, use the method supernet-halving"


maps_method = partial(Method, serves=serves, extendable=("final_seeds",))


class RandomMapsConfig(FeatureMapConfig):
    """The configuration of random search.

    Fields:
        candidates: number of random feature maps, each with a full solve.
    """

    method: Literal["random-maps"] = "random-maps"
    candidates: int = Field(32, ge=1)


RANDOM_MAPS = maps_method(
    name="random-maps",
    config=RandomMapsConfig,
    recipe_at="archray.platform.methods.feature_maps.stages:RANDOM_MAPS_RECIPE",
    presets={
        "smoke": {"candidates": 3, "dimension": 64},
        "demo": {"candidates": 32},
        "paper": {**PAPER, "candidates": 32},
    },
    flags={**FLAGS, "candidates": "candidates"},
)


class RungsConfig(FeatureMapConfig):
    """The configuration of a search that solves with few features first.

    Fields:
        eta: factor by which the number of features grows from rung to rung; one in `eta` feature maps is promoted.
        rungs: number of rungs. The highest has `dimension` features, the lowest `dimension / eta^(rungs - 1)`.
    """

    eta: int = Field(4, ge=2)
    rungs: int = Field(4, ge=2)

    @property
    def max_resource(self) -> int:
        return int(self.eta ** (self.rungs - 1))

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Number of features of every rung, the smallest first; each is at least eta^rung times the smallest."""
        return tuple(self.full_dimension // self.eta ** (self.rungs - 1 - rung) for rung in range(self.rungs))

    def check(self) -> None:
        if self.full_dimension < self.max_resource:
            raise InvalidInput(
                f"expected a dimension of at least {self.max_resource} for {self.rungs} rungs with eta {self.eta}, "
                f"got {self.full_dimension}; raise dimension or lower rungs"
            )
        super().check()


class SuccessiveHalvingConfig(RungsConfig):
    """The configuration of successive halving.

    Fields:
        candidates: number of feature maps that start on the lowest rung.
    """

    method: Literal["successive-halving"] = "successive-halving"
    candidates: int = Field(64, ge=1)


class HyperbandConfig(RungsConfig):
    """The configuration of Hyperband. The number of feature maps follows from eta and rungs."""

    method: Literal["hyperband"] = "hyperband"

    def check(self) -> None:
        starts = [int(self.max_resource * self.eta**-s) for s in range(self.rungs)]  # in floating point, as in Tune
        if starts != [self.eta ** (self.rungs - 1 - s) for s in range(self.rungs)]:
            raise InvalidInput(
                f"expected eta to be 2 or 4 for Ray Tune's Hyperband, which rounds rungs, got {self.eta}"
            )
        super().check()

    @property
    def first_rungs(self) -> list[int]:
        """The first rung of each map, in the order in which `HyperBandScheduler` fills its brackets.

        Bracket s starts s rungs below the full dimension with ceil(rungs / (s + 1) eta^s) maps (Li et al. 2018).
        """
        sizes = [math.ceil(self.rungs / (s + 1) * self.eta**s) for s in range(self.rungs)]
        return [self.rungs - 1 - s for s, size in enumerate(sizes) for _ in range(size)]


SUCCESSIVE_HALVING = maps_method(
    name="successive-halving",
    config=SuccessiveHalvingConfig,
    recipe_at="archray.platform.methods.feature_maps.stages:SUCCESSIVE_HALVING",
    presets={"smoke": {"candidates": 4, "dimension": 64, "rungs": 2}, "demo": {}, "paper": PAPER},
    flags={**FLAGS, "candidates": "candidates"},
)
HYPERBAND = maps_method(
    name="hyperband",
    config=HyperbandConfig,
    recipe_at="archray.platform.methods.feature_maps.stages:HYPERBAND",
    presets={"smoke": {"eta": 2, "rungs": 2, "dimension": 64}, "demo": {}, "paper": PAPER},
    flags=FLAGS,
)


class CorrelationOptions(Settings):
    """Comparison of shared-weights accuracy with standalone accuracy of the first candidates (Figure 1 of the paper).

    Fields:
        maps: number of feature maps that are compared (32 in the paper); 0 for none.
        dimensions: numbers of features of the solves. Default: a quarter, a half and all of the search's dimension.
        bases: kinds of bases; each has its own shared solve.
    """

    maps: int = Field(0, ge=0)
    dimensions: tuple[int, ...] = ()
    bases: tuple[Bases, ...] = ("shared",)


class CorrelatedConfig(FeatureMapConfig):
    """A search whose shared-weights scores are compared with standalone solves.

    Fields:
        correlation: options of the comparison.
    """

    correlation: CorrelationOptions = CorrelationOptions()


class HalvingConfig(CorrelatedConfig):
    """The configuration of halving; see `WeightSharingHalving`.

    Fields:
        candidates: number of random feature maps at the start.
        replicas: number of shared solves per round, each with its own assignment and bases; their scores are averaged.
        keep: share of the candidates that stay after each round.
        growth: factor by which the dimension grows from round to round; 1 in Algorithm 1.
    """

    method: Literal["halving", "fast-halving"] = "halving"
    candidates: int = Field(256, ge=2)
    replicas: int = Field(1, ge=1)
    keep: float = Field(0.5, gt=0, lt=1)
    growth: float = Field(1.0, ge=1)


class FastHalvingConfig(HalvingConfig):
    """The configuration of Fast Weight-Sharing: halving with a dimension that grows by sqrt(2) per round (B.1)."""

    method: Literal["fast-halving"] = "fast-halving"
    growth: float = Field(math.sqrt(2), ge=1)


_halving = partial(
    maps_method,
    recipe_at="archray.platform.methods.feature_maps.stages:HALVING_RECIPE",
    presets={
        "smoke": {"candidates": 8, "dimension": 64},
        "demo": {"candidates": 256, "correlation": {"maps": 32}},
        "paper": {
            **PAPER,
            "candidates": 256,
            "correlation": {"maps": 32, "dimensions": [3_125 * 2**i for i in range(6)]},
        },
    },
    flags={
        "candidates": "candidates",
        "dimension": "dimension",
        "replicas": "replicas",
        "loss": "solve.loss",
        "final_seeds": "final_seeds",
        "correlation": "correlation.maps",
    },
    extendable=("final_seeds", "correlation"),
)
HALVING = _halving(name="halving", config=HalvingConfig)
FAST_HALVING = _halving(name="fast-halving", config=FastHalvingConfig)
