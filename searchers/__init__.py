"""Which trial comes next: Ray Tune searchers and the pure maths they run. Nothing here imports torch."""

from archray.searchers.base import ArchraySearcher
from archray.searchers.drive import drive
from archray.searchers.evolution import RegularizedEvolution
from archray.searchers.halving.weight_sharing import WeightSharingHalving
from archray.searchers.hnas.mu_nu_search import HNASSearch
from archray.searchers.nesbs.ensemble_search import NESBSSearch
from archray.searchers.random_search import RandomSearch

__all__ = [
    "ArchraySearcher",
    "HNASSearch",
    "NESBSSearch",
    "RandomSearch",
    "RegularizedEvolution",
    "WeightSharingHalving",
    "drive",
]
