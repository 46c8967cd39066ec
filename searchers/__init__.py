"""Ray Tune searchers and the math they run. Nothing here imports torch.

Importing this loads no Ray until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes

if TYPE_CHECKING:
    from archray.searchers.base import ArchraySearcher
    from archray.searchers.bohb_search import BOHBSearch
    from archray.searchers.drive_searcher import drive
    from archray.searchers.drop_worst import DropWorst
    from archray.searchers.evolution import RegularizedEvolution
    from archray.searchers.halving import WeightSharingHalving
    from archray.searchers.hnas.mu_nu_search import HNASSearch
    from archray.searchers.ledger import SearcherStateError
    from archray.searchers.local_search import LocalSearch
    from archray.searchers.metric_first import MetricFirst, best_of_pool
    from archray.searchers.nesbs.ensemble_search import NESBSSearch
    from archray.searchers.nesbs.posterior import Posterior
    from archray.searchers.pareto.nsga2_search import NSGA2Search
    from archray.searchers.pareto.pool_search import ParetoPoolSearch
    from archray.searchers.rank_surrogate.robot_search import RoBoTSearch
    from archray.searchers.rank_surrogate.search import RankSurrogateSearch
    from archray.searchers.reinforce_search import ReinforceSearch
    from archray.searchers.space_search import RandomSearch

__all__ = [
    "ArchraySearcher",
    "BOHBSearch",
    "DropWorst",
    "HNASSearch",
    "LocalSearch",
    "MetricFirst",
    "NESBSSearch",
    "NSGA2Search",
    "ParetoPoolSearch",
    "Posterior",
    "RandomSearch",
    "RankSurrogateSearch",
    "RegularizedEvolution",
    "ReinforceSearch",
    "RoBoTSearch",
    "SearcherStateError",
    "WeightSharingHalving",
    "best_of_pool",
    "drive",
]

__getattr__ = lazy_attributes(
    __name__,
    **{
        "base": ("ArchraySearcher",),
        "bohb_search": ("BOHBSearch",),
        "drive_searcher": ("drive",),
        "drop_worst": ("DropWorst",),
        "evolution": ("RegularizedEvolution",),
        "halving": ("WeightSharingHalving",),
        "hnas.mu_nu_search": ("HNASSearch",),
        "ledger": ("SearcherStateError",),
        "local_search": ("LocalSearch",),
        "metric_first": ("MetricFirst", "best_of_pool"),
        "nesbs.ensemble_search": ("NESBSSearch",),
        "nesbs.posterior": ("Posterior",),
        "pareto.nsga2_search": ("NSGA2Search",),
        "pareto.pool_search": ("ParetoPoolSearch",),
        "rank_surrogate.robot_search": ("RoBoTSearch",),
        "rank_surrogate.search": ("RankSurrogateSearch",),
        "reinforce_search": ("ReinforceSearch",),
        "space_search": ("RandomSearch",),
    },
)
