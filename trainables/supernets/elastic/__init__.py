"""Elastic supernets: the weights of the largest network, of which every smaller one is a slice. Chen et al. 2021."""

from __future__ import annotations

from archray.registry import import_modules
from archray.trainables.supernets.elastic import SLICED_SUPERNETS, SlicedSupernet, build_sliced

import_modules(__name__)

__all__ = ["SLICED_SUPERNETS", "SlicedSupernet", "build_sliced"]
