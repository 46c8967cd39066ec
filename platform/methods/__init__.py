"""The methods: one recipe a file, a plain list of stages each."""

from archray.platform.methods.ensembles.ensemble_baselines import ENSEMBLE_BASELINES
from archray.platform.methods.ensembles.nesbs import NESBS_METHODS
from archray.platform.methods.feature_maps.halving_method import FAST_HALVING, HALVING
from archray.platform.methods.feature_maps.hyperband import HYPERBAND, SUCCESSIVE_HALVING
from archray.platform.methods.feature_maps.random_maps import RANDOM
from archray.platform.methods.hnas.hnas_method import HNAS
from archray.platform.methods.method import METHODS, Method, config_class, get_method
from archray.platform.methods.supernets.learned import LEARNED_METHODS
from archray.platform.methods.supernets.rs_ws import RS_WS
from archray.platform.methods.supernets.supernet_halving import SUPERNET_HALVING

for _method in (
    HNAS,
    HALVING,
    FAST_HALVING,
    RANDOM,
    SUCCESSIVE_HALVING,
    HYPERBAND,
    *LEARNED_METHODS,
    RS_WS,
    SUPERNET_HALVING,
    *NESBS_METHODS,
    *ENSEMBLE_BASELINES,
):
    METHODS.register(_method.name, _method)

__all__ = ["METHODS", "Method", "config_class", "get_method"]
