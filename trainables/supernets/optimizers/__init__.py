"""Optimizers of architecture parameters on the simplex. GAEA, Li et al. 2021, sections 3.1 to 3.3 and App. C.4."""

from archray.trainables.supernets.optimizers.mirror_descent import (
    GAEA_FLOOR,
    GAEA_RATE,
    MirrorDescent,
    entropic_step,
    projected_step,
)
from archray.trainables.supernets.optimizers.projection import project_to_simplex
from archray.trainables.supernets.optimizers.xnas import XNAS, point_gradients

__all__ = [
    "GAEA_FLOOR",
    "GAEA_RATE",
    "XNAS",
    "MirrorDescent",
    "entropic_step",
    "point_gradients",
    "project_to_simplex",
    "projected_step",
]
