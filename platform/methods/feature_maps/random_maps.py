"""Random search over feature maps: full solves, one map each. The baseline of Khodak et al. 2020, Figures 2 and 3."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from archray.files import Folder
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
from archray.platform.methods.feature_maps.solve_trials import sample_candidates, solve_inputs, solve_plan
from archray.platform.methods.method import Method
from archray.platform.methods.report_stage import report_stage
from archray.platform.run.run import digest
from archray.searchers import RandomSearch
from archray.seeds import stage_seed


class RandomMapsConfig(FeatureMapConfig):
    """The configuration of random search.

    Fields:
        candidates: how many feature maps are drawn, and solved for.
    """

    method: Literal["random"] = "random"
    candidates: int = Field(32, ge=1)


def _search(context: Context, folder: Folder) -> None:
    config = context.run.config
    assert isinstance(config, RandomMapsConfig)  # the run was opened with its method's configuration
    candidates = sample_candidates(context, config.candidates)

    def searcher() -> RandomSearch:
        return RandomSearch(candidates, budget=len(candidates), seed=stage_seed(config.seed, "search"))

    tuned = folder / f"tune-{digest(_search_inputs(context))}"
    results = run_trials(tuned, solve_plan(context, total=len(candidates), searcher=searcher), context, search=True)
    write_single_solves(context, folder, tuned, results)


def _search_inputs(context: Context) -> dict[str, Any]:
    config = context.run.config
    return {**solve_inputs(context), **config.model_dump(mode="json", include={"candidates"})}


RANDOM = Method(
    name="random",
    summary="Random search over feature maps, a full solve each",
    config=RandomMapsConfig,
    stages=(
        Stage("search", "solve for every candidate", _search_inputs, _search),
        final_solve_stage(),
        report_stage(("search", "final")),
    ),
    presets={
        "smoke": {"candidates": 3, "dimension": 64},
        "demo": {"candidates": 32},
        "paper": {"data": {"name": "cifar10"}, "dimension": 100_000, "candidates": 32},
    },
    view=lambda run: feature_map_view(run, progress_of=("search",)),
    sections=FEATURE_MAP_SECTIONS,
    show=print_feature_map,
    flags={
        "candidates": "candidates",
        "dimension": "dimension",
        "loss": "solve.loss",
        "final_seeds": "final_seeds",
    },
    extendable=("final_seeds",),
    serves=serves,
)
