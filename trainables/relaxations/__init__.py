"""Relaxations: how architecture parameters become the weights by which a supernet mixes or chooses operations."""

from __future__ import annotations

from archray.registry import Registry
from archray.trainables.relaxations.entropy import entropy
from archray.trainables.relaxations.gumbel import Gumbel, TemperatureSchedule
from archray.trainables.relaxations.path import Path
from archray.trainables.relaxations.relaxation import Relaxation
from archray.trainables.relaxations.simplex import Simplex
from archray.trainables.relaxations.softmax import Softmax
from archray.trainables.relaxations.weights import MixtureWeights

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
