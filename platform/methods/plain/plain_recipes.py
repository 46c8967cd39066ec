"""The plain searches, an entry each: the searcher, and what the terminal says."""

from __future__ import annotations

from archray.platform.engine.resumed_asha import ResumedASHA
from archray.platform.methods.plain import plain_searchers as searchers
from archray.platform.methods.plain.plain_config import AshaConfig
from archray.platform.methods.plain.plain_recipe import plain_recipe


def _rungs(config: AshaConfig) -> ResumedASHA:
    return ResumedASHA(
        time_attr="epoch",
        max_t=config.whole,
        grace_period=config.rungs.grace_period,
        reduction_factor=config.rungs.reduction_factor,
    )


RANDOM = plain_recipe(searchers.random_search, title="train random architectures")
EVOLUTION = plain_recipe(searchers.evolution, title="train mutations of good young architectures")
LOCAL_SEARCH = plain_recipe(searchers.local_search, title="train the neighbours of the best so far")
REINFORCE = plain_recipe(searchers.reinforce, title="train what a policy draws, which learns from the accuracy")
ASHA = plain_recipe(
    searchers.random_search,
    title="train random architectures, and end the worse ones early",
    scheduler=_rungs,
    reads=("rungs",),
)
BOHB = plain_recipe(
    searchers.bohb,
    title="train what a model of good and bad suggests, and end the worse ones early",
    scheduler=_rungs,
    reads=("rungs",),
)
ZERO_COST = plain_recipe(searchers.zero_cost, title="train the best by the metric", pool=True)
ZERO_COST_EVOLUTION = plain_recipe(
    searchers.zero_cost_evolution, title="train the best by the metric, then mutations of good young ones", pool=True
)
