"""Successive halving and Hyperband over feature maps: Ray Tune's schedulers, with the feature dimension as resource.

The strong baselines of Khodak et al. 2020, Figure 3 with eta 4 and four rungs, the sizes they have for CIFAR-10.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler

from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan
from archray.platform.methods.feature_maps.feature_map_config import (
    FeatureMapConfig,
    sample_candidates,
    solve_plan,
    solve_settings,
)
from archray.platform.methods.feature_maps.random_maps import FLAGS, PAPER, drawn_maps, register_maps
from archray.seeds import trial_seed

RESOURCE = "resource"  # a solve's dimension in units of the smallest rung's, rounded down


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
        super().check()
        if self.full_dimension < self.max_resource:
            raise InvalidInput(
                f"{self.rungs} rungs with eta {self.eta} need a dimension of {self.max_resource} or more, "
                f"got {self.full_dimension}; give more features or fewer rungs"
            )


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
        super().check()
        begins = [int(self.max_resource * self.eta**-s) for s in range(self.rungs)]  # in floating point, as Tune does
        if begins != [self.eta ** (self.rungs - 1 - s) for s in range(self.rungs)]:
            raise InvalidInput(f"Ray Tune's Hyperband rounds the rungs of eta {self.eta} to nothing; choose 2 or 4")

    @property
    def first_rungs(self) -> list[int]:
        """The rung on which each map begins, in the order in which `HyperBandScheduler` fills its brackets.

        Bracket s begins s rungs below the full dimension with ceil(rungs / (s + 1) eta^s) maps (Li et al. 2018).
        """
        sizes = [math.ceil(self.rungs / (s + 1) * self.eta**s) for s in range(self.rungs)]
        return [self.rungs - 1 - s for s, size in enumerate(sizes) for _ in range(size)]


def _halving_trials(context: Context[SuccessiveHalvingConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    return drawn_maps(
        context,
        sample_candidates(context, config.candidates),
        settings=solve_settings(context, rungs=config.dimensions),
        scheduler=lambda: AsyncHyperBandScheduler(
            time_attr=RESOURCE, max_t=config.max_resource, grace_period=1, reduction_factor=config.eta, brackets=1
        ),
        resumes=False,
    )


def _hyperband_trials(context: Context[HyperbandConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    candidates = sample_candidates(context, len(config.first_rungs))
    root = context.seed("search")
    begins = dict(zip(candidates, config.first_rungs, strict=True))
    seeds = {candidate: trial_seed(root, number) for number, candidate in enumerate(candidates, start=1)}
    return solve_plan(
        context,
        total=len(candidates),
        settings=solve_settings(context, rungs=config.dimensions),
        keys={
            "architecture": tune.grid_search(candidates),
            "first_rung": tune.sample_from(lambda spec: begins[spec["config"]["architecture"]]),
            "seed": tune.sample_from(lambda spec: seeds[spec["config"]["architecture"]]),
        },
        limited=False,
        scheduler=lambda: HyperBandScheduler(
            time_attr=RESOURCE, max_t=config.max_resource, reduction_factor=config.eta
        ),
        resumes=False,
    )


register_maps(
    "successive-halving",
    "Ray Tune's asynchronous successive halving over feature maps, the dimension as resource",
    SuccessiveHalvingConfig,
    {"smoke": {"candidates": 4, "dimension": 64, "rungs": 2}, "demo": {}, "paper": PAPER},
    {**FLAGS, "candidates": "candidates"},
    title="solve at few features first",
    reads=("candidates", "eta", "rungs"),
    plan=_halving_trials,
)
register_maps(
    "hyperband",
    "Ray Tune's Hyperband over feature maps, the dimension as resource",
    HyperbandConfig,
    {"smoke": {"eta": 2, "rungs": 2, "dimension": 64}, "demo": {}, "paper": PAPER},
    FLAGS,
    title="solve at few features first",
    reads=("eta", "rungs"),
    plan=_hyperband_trials,
)
