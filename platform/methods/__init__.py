"""The methods, each with its configuration, stages, presets and the sections of its report."""

import archray.platform.methods.ensembles.ensemble_methods
import archray.platform.methods.feature_maps.halving_method
import archray.platform.methods.feature_maps.hyperband
import archray.platform.methods.feature_maps.random_maps
import archray.platform.methods.hnas.hnas_method
import archray.platform.methods.supernets.learned
import archray.platform.methods.supernets.rs_ws
import archray.platform.methods.supernets.supernet_halving  # noqa: F401  # each registers its own
from archray.platform.methods.method import METHODS, Method, get_method, open_run

__all__ = ["METHODS", "Method", "get_method", "open_run"]
