"""What a search with several objectives does: a plain search, the set it ends with, and final trainings of members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from archray.platform.bench.bench_problem import MakeSearcher
from archray.platform.engine.stage import Stage
from archray.platform.methods.pareto import pareto_searchers as searchers
from archray.platform.methods.pareto.member_stage import MEMBERS_STAGE
from archray.platform.methods.pareto.pareto_report import hypervolume_section, set_listings, set_section
from archray.platform.methods.pareto.pareto_stage import PARETO_STAGE
from archray.platform.methods.plain.best_so_far import best_so_far_section
from archray.platform.methods.plain.plain_recipe import plain_recipe
from archray.platform.methods.recipe import Recipe

_AFTER: Mapping[str, Sequence[Stage[Any]]] = {"search": [PARETO_STAGE], "final": [MEMBERS_STAGE]}


def _recipe(make: MakeSearcher, title: str, pool: bool = False) -> Recipe[Any]:
    """A plain search, the set it ends with, of which some members are trained in the end, and a report of it."""
    recipe = plain_recipe(make, title=title, pool=pool)
    stages = []
    for stage in recipe.stages:
        stages += [stage, *_AFTER.get(stage.name, ())]
    place = recipe.sections.index(best_so_far_section)
    return replace(
        recipe,
        stages=stages,
        sections=(*recipe.sections[:place], set_section, hypervolume_section, *recipe.sections[place:]),
        listings=lambda run: (*set_listings(run), *recipe.listings(run)),
    )


NSGA2 = _recipe(searchers.nsga2, "train children of those that no other betters")
PARETO_POOL = _recipe(searchers.pareto_pool, "train what is expected to add most to the front", pool=True)
