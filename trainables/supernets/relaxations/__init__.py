"""Relaxations: how architecture parameters become the weights by which a supernet mixes or chooses operations."""

from __future__ import annotations

from archray.registry import Registry
from archray.trainables.supernets.relaxations.entropy import entropy
from archray.trainables.supernets.relaxations.gumbel import Gumbel, TemperatureSchedule
from archray.trainables.supernets.relaxations.path import Path
from archray.trainables.supernets.relaxations.relaxation import Relaxation
from archray.trainables.supernets.relaxations.simplex import Simplex
from archray.trainables.supernets.relaxations.softmax import Softmax
from archray.trainables.supernets.relaxations.weights import MixtureWeights

RELAXATIONS: Registry[type[Relaxation]] = Registry("relaxation")
for _relaxation in (Softmax, Simplex, Gumbel, Path):
    RELAXATIONS.register(_relaxation.name, _relaxation)

__all__ = [
    "RELAXATIONS",
    "Gumbel",
    "MixtureWeights",
    "Path",
    "Relaxation",
    "Simplex",
    "Softmax",
    "TemperatureSchedule",
    "entropy",
]
