"""What a search over several metrics does: a pool is scored, and a searcher weighs the metrics by the trainings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from archray.platform.bench.bench_problem import MakeSearcher
from archray.platform.methods.plain.best_so_far import best_so_far_section
from archray.platform.methods.plain.plain_recipe import plain_recipe
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.several_metrics import several_metrics_searchers as searchers
from archray.platform.methods.several_metrics.metric_trust import trust_section


def _recipe(make: MakeSearcher, title: str) -> Recipe[Any]:
    """A plain search over a pool, whose report also says what the metrics were worth."""
    recipe = plain_recipe(make, title=title, pool=True)
    place = recipe.sections.index(best_so_far_section)
    return replace(recipe, sections=(*recipe.sections[:place], trust_section, *recipe.sections[place:]))


RANK_SURROGATE = _recipe(searchers.rank_surrogate, "train what several metrics and the trainings so far promise")
ROBOT = _recipe(searchers.robot, "train the best by weighted metrics, and learn the weights")
