"""Successive halving and Hyperband over feature maps: Ray Tune's schedulers, with the feature dimension as resource.

The strong baselines of Khodak et al. 2020, Figure 3 with eta 4 and four rungs, the sizes they have for CIFAR-10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler, TrialScheduler

from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import run_trials
from archray.platform.methods.feature_maps.feature_map_config import FeatureMapConfig, serves
from archray.platform.methods.feature_maps.feature_map_view import (
    FEATURE_MAP_SECTIONS,
    feature_map_view,
    print_feature_map,
)
from archray.platform.methods.feature_maps.single_solves import write_single_solves
from archray.platform.methods.feature_maps.solve_stages import final_solve_stage
from archray.platform.methods.feature_maps.solve_trials import (
    sample_candidates,
    solve_inputs,
    solve_plan,
    solve_settings,
)
from archray.platform.methods.method import Method
from archray.platform.methods.report_stage import report_stage
from archray.platform.run.run import digest
from archray.searchers import RandomSearch
from archray.seeds import stage_seed, trial_seed

Presets = Mapping[str, Mapping[str, Any]]
Flags = Mapping[str, str]
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
        if any(first < 0 for first in self.first_rungs):
            raise InvalidInput(f"Ray Tune's Hyperband rounds the rungs of eta {self.eta} to nothing; choose 2 or 4")

    @property
    def first_rungs(self) -> list[int]:
        """The rung on which each map begins, in the order in which `HyperBandScheduler` fills its brackets.

        Bracket s begins s rungs below the full dimension with ceil(rungs / (s + 1) eta^s) maps (Li et al. 2018).
        """
        sizes = [math.ceil(self.rungs / (s + 1) * self.eta**s) for s in range(self.rungs)]
        return [self._rung_of(s) for s, size in enumerate(sizes) for _ in range(size)]

    def _rung_of(self, bracket: int) -> int:
        begins = int(self.max_resource * self.eta**-bracket)  # as the scheduler computes it, in floating point
        expected = self.rungs - 1 - bracket
        return expected if begins == self.eta**expected else -1


# Successive halving


def _halving_inputs(context: Context) -> dict[str, Any]:
    return {**solve_inputs(context), "search": _told(context.run.config, {"candidates", "eta", "rungs"})}


def _search_by_halving(context: Context, folder: Folder) -> None:
    config = context.run.config
    assert isinstance(config, SuccessiveHalvingConfig)  # the run was opened with its method's configuration
    candidates = sample_candidates(context, config.candidates)

    def searcher() -> RandomSearch:
        return RandomSearch(candidates, budget=len(candidates), seed=stage_seed(config.seed, "search"))

    def scheduler() -> TrialScheduler:
        return AsyncHyperBandScheduler(
            time_attr=RESOURCE, max_t=config.max_resource, grace_period=1, reduction_factor=config.eta, brackets=1
        )

    plan = solve_plan(
        context,
        total=len(candidates),
        settings=solve_settings(context, rungs=config.dimensions),
        searcher=searcher,
        scheduler=scheduler,
        resumes=False,
    )
    tuned = folder / f"tune-{digest(_halving_inputs(context))}"
    write_single_solves(context, folder, tuned, run_trials(tuned, plan, context, search=True))


# Hyperband


def _hyperband_inputs(context: Context) -> dict[str, Any]:
    return {**solve_inputs(context), "search": _told(context.run.config, {"eta", "rungs"})}


def _search_by_hyperband(context: Context, folder: Folder) -> None:
    config = context.run.config
    assert isinstance(config, HyperbandConfig)  # the run was opened with its method's configuration
    first_rungs = config.first_rungs
    candidates = sample_candidates(context, len(first_rungs))
    root = stage_seed(config.seed, "search")
    begins = dict(zip(candidates, first_rungs, strict=True))
    seeds = {candidate: trial_seed(root, number) for number, candidate in enumerate(candidates, start=1)}

    def scheduler() -> TrialScheduler:
        return HyperBandScheduler(time_attr=RESOURCE, max_t=config.max_resource, reduction_factor=config.eta)

    plan = solve_plan(
        context,
        total=len(candidates),
        settings=solve_settings(context, rungs=config.dimensions),
        keys={
            "architecture": tune.grid_search(candidates),
            "first_rung": _by_architecture(begins),
            "seed": _by_architecture(seeds),
        },
        concurrency=None,  # a paused trial counts as one in flight: a limit would keep a bracket from filling
        scheduler=scheduler,
        resumes=False,
    )
    tuned = folder / f"tune-{digest(_hyperband_inputs(context))}"
    write_single_solves(context, folder, tuned, run_trials(tuned, plan, context, search=True))


def _by_architecture(values: Mapping[str, int]) -> Any:
    """A value of a trial's config that its architecture decides."""

    def choose(spec: Any) -> int:
        return values[spec.config.architecture]

    return tune.sample_from(choose)


def _told(config: SearchConfig, fields: set[str]) -> dict[str, Any]:
    return config.model_dump(mode="json", include=fields)


# The recipes

_PAPER = {"data": {"name": "cifar10"}, "dimension": 100_000}
_FLAGS = {"dimension": "dimension", "loss": "solve.loss", "final_seeds": "final_seeds"}


def _method(
    name: str, summary: str, config: type[RungsConfig], search: Stage, presets: Presets, flags: Flags
) -> Method:
    return Method(
        name=name,
        summary=summary,
        config=config,
        stages=(search, final_solve_stage(), report_stage(("search", "final"))),
        presets=presets,
        view=lambda run: feature_map_view(run, progress_of=("search",)),
        sections=FEATURE_MAP_SECTIONS,
        show=print_feature_map,
        flags=flags,
        extendable=("final_seeds",),
        serves=serves,
    )


SUCCESSIVE_HALVING = _method(
    "successive-halving",
    "Ray Tune's asynchronous successive halving over feature maps, the dimension as resource",
    SuccessiveHalvingConfig,
    Stage("search", "solve at few features first", _halving_inputs, _search_by_halving),
    {"smoke": {"candidates": 4, "dimension": 64, "rungs": 2}, "demo": {}, "paper": _PAPER},
    {**_FLAGS, "candidates": "candidates"},
)
HYPERBAND = _method(
    "hyperband",
    "Ray Tune's Hyperband over feature maps, the dimension as resource",
    HyperbandConfig,
    Stage("search", "solve at few features first", _hyperband_inputs, _search_by_hyperband),
    {"smoke": {"eta": 2, "rungs": 2, "dimension": 64}, "demo": {}, "paper": _PAPER},
    _FLAGS,
)
