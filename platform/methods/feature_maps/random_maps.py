"""Random search over feature maps: full solves, one map each. The baseline of Khodak et al. 2020, Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tune_stage import TuneStage
from archray.platform.engine.tuning import TrialPlan
from archray.platform.methods.feature_maps.feature_map_config import FeatureMapConfig, serves
from archray.platform.methods.feature_maps.feature_map_report import SECTIONS, headline, show
from archray.platform.methods.feature_maps.feature_map_tables import progress_of
from archray.platform.methods.feature_maps.single_solves import write_best_solve
from archray.platform.methods.feature_maps.solve_stages import FINAL_SOLVE_STAGE
from archray.platform.methods.feature_maps.solve_trials import READS, sample_candidates, solve_plan
from archray.platform.methods.found_networks import tested_networks
from archray.platform.methods.method import METHODS, Method
from archray.searchers import RandomSearch

PAPER: Mapping[str, Any] = {"data": {"name": "cifar10"}, "dimension": 100_000}
FLAGS: Mapping[str, str] = {"dimension": "dimension", "loss": "solve.loss", "final_seeds": "final_seeds"}


class RandomMapsConfig(FeatureMapConfig):
    """The configuration of random search.

    Fields:
        candidates: how many feature maps are drawn, and solved for.
    """

    method: Literal["random"] = "random"
    candidates: int = Field(32, ge=1)


def drawn_maps(context: Context[Any], candidates: list[str], **plan: Any) -> TrialPlan:
    """A solve for each candidate, in a random order."""
    seed = context.seed("search")
    return solve_plan(
        context,
        total=len(candidates),
        searcher=lambda: RandomSearch(candidates, budget=len(candidates), seed=seed),
        **plan,
    )


def _trials(context: Context[RandomMapsConfig], tuned: Folder) -> TrialPlan:
    return drawn_maps(context, sample_candidates(context, context.config.candidates))


def register_solves(
    name: str,
    summary: str,
    config: type[FeatureMapConfig],
    search: TuneStage[Any],
    presets: Mapping[str, Mapping[str, Any]],
    flags: Mapping[str, str],
) -> None:
    """A method whose trials solve for one feature map each."""
    METHODS.register(
        name,
        Method(
            name=name,
            summary=summary,
            config=config,
            stages=(search, FINAL_SOLVE_STAGE),
            presets=presets,
            results=tested_networks,
            headline=headline,
            sections=SECTIONS,
            show=show,
            progress=progress_of,
            flags=flags,
            extendable=("final_seeds",),
            serves=serves,
        ),
    )


register_solves(
    "random",
    "Random search over feature maps, a full solve each",
    RandomMapsConfig,
    TuneStage(
        name="search",
        title="solve for every candidate",
        reads=(*READS, "candidates"),
        plan=_trials,
        finish=write_best_solve,
        search=True,
    ),
    {
        "smoke": {"candidates": 3, "dimension": 64},
        "demo": {"candidates": 32},
        "paper": {**PAPER, "candidates": 32},
    },
    {**FLAGS, "candidates": "candidates"},
)
