"""Ray Tune searchers and their numerical methods. They do not import torch.

`import archray.searchers` imports Ray only when a searcher is first used.
"""

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes

if TYPE_CHECKING:
    from archray.searchers.base import ArchraySearcher as ArchraySearcher
    from archray.searchers.bohb_search import BOHBSearch as BOHBSearch
    from archray.searchers.drive_searcher import drive as drive
    from archray.searchers.drop_worst import DropWorst as DropWorst
    from archray.searchers.evolution import RegularizedEvolution as RegularizedEvolution
    from archray.searchers.halving import WeightSharingHalving as WeightSharingHalving
    from archray.searchers.hnas.mu_nu_search import HNASSearch as HNASSearch
    from archray.searchers.ledger import SearcherStateError as SearcherStateError
    from archray.searchers.local_search import LocalSearch as LocalSearch
    from archray.searchers.metric_first import MetricFirst as MetricFirst
    from archray.searchers.metric_first import best_of_pool as best_of_pool
    from archray.searchers.nesbs.ensemble_search import NESBSSearch as NESBSSearch
    from archray.searchers.nesbs.posterior import Posterior as Posterior
    from archray.searchers.pareto.nsga2_search import NSGA2Search as NSGA2Search
    from archray.searchers.pareto.pool_search import ParetoPoolSearch as ParetoPoolSearch
    from archray.searchers.rank_surrogate.robot_search import RoBoTSearch as RoBoTSearch
    from archray.searchers.rank_surrogate.search import RankSurrogateSearch as RankSurrogateSearch
    from archray.searchers.reinforce_search import ReinforceSearch as ReinforceSearch
    from archray.searchers.space_search import RandomSearch as RandomSearch

_MODULES: dict[str, tuple[str, ...]] = {
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
}

__all__ = [name for names in _MODULES.values() for name in names]
__getattr__ = lazy_attributes(__name__, **_MODULES)
