"""Relaxations: how a supernet's operations are mixed or chosen. A file that is put here registers its own."""

from __future__ import annotations

from archray.registry import import_modules
from archray.trainables.supernets.relaxations.relaxation import ArchitectureParameters, Relaxation, entropy
from archray.trainables.supernets.relaxations.relaxation_settings import RELAXATIONS, RelaxationSettings

import_modules(__name__)

__all__ = ["RELAXATIONS", "ArchitectureParameters", "Relaxation", "RelaxationSettings", "entropy"]
