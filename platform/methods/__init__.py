"""The methods: one recipe a file, a plain list of stages each."""

from archray.platform.methods.ensemble_baselines import ENSEMBLE_BASELINES
from archray.platform.methods.halving import FAST_HALVING, HALVING
from archray.platform.methods.hnas import HNAS
from archray.platform.methods.hyperband import HYPERBAND, SUCCESSIVE_HALVING
from archray.platform.methods.learned import LEARNED_METHODS
from archray.platform.methods.method import METHODS, Method, config_class, get_method
from archray.platform.methods.nesbs import NESBS_METHODS
from archray.platform.methods.random_maps import RANDOM
from archray.platform.methods.rs_ws import RS_WS
from archray.platform.methods.supernet_halving import SUPERNET_HALVING

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
