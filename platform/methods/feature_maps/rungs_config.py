"""The configurations of searches that solve at few features first. Khodak et al. 2020, Figure 3; Li et al. 2018."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from archray.errors import InvalidInput
from archray.platform.methods.feature_maps.feature_map_config import FLAGS, PAPER, FeatureMapConfig, maps_method


class RungsConfig(FeatureMapConfig):
    """The configuration of a search that solves at few features first.

    Fields:
        eta: how many times more features a rung has than the one below, and one in how many maps goes on.
        rungs: how many dimensions there are; the largest is `dimension`, the smallest `dimension / eta^(rungs - 1)`.
    """

    eta: int = Field(4, ge=2)
    rungs: int = Field(4, ge=2)

    @property
    def max_resource(self) -> int:
        return int(self.eta ** (self.rungs - 1))

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Features of every rung, the smallest first: each at least eta^rung times the smallest."""
        return tuple(self.full_dimension // self.eta ** (self.rungs - 1 - rung) for rung in range(self.rungs))

    def check(self) -> None:
        if self.full_dimension < self.max_resource:
            raise InvalidInput(
                f"{self.rungs} rungs with eta {self.eta} need a dimension of {self.max_resource} or more, "
                f"got {self.full_dimension}; give more features or fewer rungs"
            )
        super().check()


class SuccessiveHalvingConfig(RungsConfig):
    """The configuration of successive halving.

    Fields:
        candidates: how many feature maps begin on the lowest rung.
    """

    method: Literal["successive-halving"] = "successive-halving"
    candidates: int = Field(64, ge=1)


class HyperbandConfig(RungsConfig):
    """The configuration of Hyperband. How many feature maps there are follows from eta and rungs."""

    method: Literal["hyperband"] = "hyperband"

    def check(self) -> None:
        begins = [int(self.max_resource * self.eta**-s) for s in range(self.rungs)]  # in floating point, as Tune does
        if begins != [self.eta ** (self.rungs - 1 - s) for s in range(self.rungs)]:
            raise InvalidInput(f"Ray Tune's Hyperband rounds the rungs of eta {self.eta} to nothing; choose 2 or 4")
        super().check()

    @property
    def first_rungs(self) -> list[int]:
        """The rung on which each map begins, in the order in which `HyperBandScheduler` fills its brackets.

        Bracket s begins s rungs below the full dimension with ceil(rungs / (s + 1) eta^s) maps (Li et al. 2018).
        """
        sizes = [math.ceil(self.rungs / (s + 1) * self.eta**s) for s in range(self.rungs)]
        return [self.rungs - 1 - s for s, size in enumerate(sizes) for _ in range(size)]


SUCCESSIVE_HALVING = maps_method(
    name="successive-halving",
    config=SuccessiveHalvingConfig,
    recipe_at="archray.platform.methods.feature_maps.hyperband:SUCCESSIVE_HALVING",
    presets={"smoke": {"candidates": 4, "dimension": 64, "rungs": 2}, "demo": {}, "paper": PAPER},
    flags={**FLAGS, "candidates": "candidates"},
)
HYPERBAND = maps_method(
    name="hyperband",
    config=HyperbandConfig,
    recipe_at="archray.platform.methods.feature_maps.hyperband:HYPERBAND",
    presets={"smoke": {"eta": 2, "rungs": 2, "dimension": 64}, "demo": {}, "paper": PAPER},
    flags=FLAGS,
)
