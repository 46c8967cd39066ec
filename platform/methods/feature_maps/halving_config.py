"""Halving with weight sharing over feature maps: its configurations. Khodak et al. 2020, Algorithm 1, Figure 1; B.1."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

from pydantic import Field

from archray.platform.methods.feature_maps.feature_map_config import PAPER, FeatureMapConfig, maps_method
from archray.settings import Settings
from archray.trainables.feature_maps.solve_settings import Bases


class CorrelationOptions(Settings):
    """Figure 1 of the paper: shared-weights accuracy against standalone accuracy of the first candidates.

    Fields:
        maps: how many candidates (the paper: 32); 0 leaves the stage out.
        dimensions: features of the solves; none: a quarter, a half and all of the search's dimension.
        bases: a shared solve for each of these.
    """

    maps: int = Field(0, ge=0)
    dimensions: tuple[int, ...] = ()
    bases: tuple[Bases, ...] = ("shared",)


class CorrelatedConfig(FeatureMapConfig):
    """A search whose shared-weights scores are compared with standalone solves.

    Fields:
        correlation: Figure 1.
    """

    correlation: CorrelationOptions = CorrelationOptions()


class HalvingConfig(CorrelatedConfig):
    """The configuration of halving; see `WeightSharingHalving`.

    Fields:
        candidates: how many feature maps the search chooses from, drawn from the space by the seed.
        replicas: shared solves of a round, each with its own assignment and bases; their scores are averaged.
        keep: the share of the candidates that a round keeps.
        growth: how much larger the dimension is in each round than in the one before; 1 is Algorithm 1.
    """

    method: Literal["halving", "fast-halving"] = "halving"
    candidates: int = Field(256, ge=2)
    replicas: int = Field(1, ge=1)
    keep: float = Field(0.5, gt=0, lt=1)
    growth: float = Field(1.0, ge=1)


class FastHalvingConfig(HalvingConfig):
    """The configuration of Fast Weight-Sharing: halving whose dimension grows by sqrt(2) each round (B.1)."""

    method: Literal["fast-halving"] = "fast-halving"
    growth: float = Field(math.sqrt(2), ge=1)


_halving = partial(
    maps_method,
    recipe_at="archray.platform.methods.feature_maps.halving_method:RECIPE",
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
