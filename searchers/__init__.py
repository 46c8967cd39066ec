"""Which trial comes next: Ray Tune searchers and the pure maths they run. Nothing here imports torch."""

from archray.searchers.base import ArchraySearcher
from archray.searchers.drive import drive
from archray.searchers.drop_worst import DropWorst
from archray.searchers.evolution import RegularizedEvolution
from archray.searchers.halving import WeightSharingHalving
from archray.searchers.hnas import HNASSearch
from archray.searchers.nesbs import NESBSSearch, Posterior
from archray.searchers.random_search import RandomSearch
from archray.searchers.state import SearcherStateError

__all__ = [
    "ArchraySearcher",
    "DropWorst",
    "HNASSearch",
    "NESBSSearch",
    "Posterior",
    "RandomSearch",
    "RegularizedEvolution",
    "SearcherStateError",
    "WeightSharingHalving",
    "drive",
]
