"""What a search with several objectives does: a plain search, the set it ends with, and a final training of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from archray.platform.bench.bench_problem import MakeSearcher
from archray.platform.methods.pareto import pareto_searchers as searchers
from archray.platform.methods.pareto.pareto_report import hypervolume_section, set_section
from archray.platform.methods.pareto.pareto_stage import PARETO_STAGE
from archray.platform.methods.plain.best_so_far import best_so_far_section
from archray.platform.methods.plain.plain_recipe import plain_recipe
from archray.platform.methods.recipe import Recipe


def _recipe(make: MakeSearcher, title: str, pool: bool = False) -> Recipe[Any]:
    """A plain search, of which the most accurate is trained in the end, and a set with its report."""
    recipe = plain_recipe(make, title=title, pool=pool)
    after = 1 + next(place for place, stage in enumerate(recipe.stages) if stage.name == "search")
    place = recipe.sections.index(best_so_far_section)
    return replace(
        recipe,
        stages=(*recipe.stages[:after], PARETO_STAGE, *recipe.stages[after:]),
        sections=(*recipe.sections[:place], set_section, hypervolume_section, *recipe.sections[place:]),
    )


NSGA2 = _recipe(searchers.nsga2, "train children of those that no other betters")
PARETO_POOL = _recipe(searchers.pareto_pool, "train what is expected to add most to the front", pool=True)
