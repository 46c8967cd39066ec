"""Which trial comes next: Ray Tune searchers and the pure maths they run. Nothing here imports torch."""

from archray.searchers.base import ArchraySearcher
from archray.searchers.drive import drive
from archray.searchers.evolution import RegularizedEvolution
from archray.searchers.hnas import HNASSearch
from archray.searchers.nesbs import NESBSSearch
from archray.searchers.random_search import RandomSearch
from archray.searchers.weight_sharing_halving import WeightSharingHalving

__all__ = [
    "ArchraySearcher",
    "HNASSearch",
    "NESBSSearch",
    "RandomSearch",
    "RegularizedEvolution",
    "WeightSharingHalving",
    "drive",
]
