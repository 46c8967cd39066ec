"""Successive halving and Hyperband over feature maps: Ray Tune's schedulers, with the feature dimension as resource.

The strong baselines of Khodak et al. 2020, Figure 3 with eta 4 and four rungs, the sizes they have for CIFAR-10.
"""

from __future__ import annotations

from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler

from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.methods.feature_maps.random_maps import drawn_maps, maps_recipe
from archray.platform.methods.feature_maps.rungs_config import HyperbandConfig, SuccessiveHalvingConfig
from archray.platform.methods.feature_maps.solve_plans import sample_candidates, solve_plan, solve_settings
from archray.plurals import count
from archray.seeds import trial_seed

RESOURCE = "resource"  # a solve's dimension in units of the smallest rung's, rounded down


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


_TITLE = "solve at few features first"
SUCCESSIVE_HALVING = maps_recipe(
    title=_TITLE,
    reads=("candidates", "eta", "rungs"),
    plan=_halving_trials,
    amount=lambda config: count(config.candidates, "candidate"),
)
HYPERBAND = maps_recipe(
    title=_TITLE,
    reads=("eta", "rungs"),
    plan=_hyperband_trials,
    amount=lambda config: count(len(config.first_rungs), "candidate"),
)
