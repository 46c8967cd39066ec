"""Supernets: all architectures of a space in one network, trained with or before the choice of an architecture.

Imports no torch.
"""

from archray.trainables.supernets.settings import OPTIMIZERS, RELAXATIONS, SupernetTrainingSettings, build_mixing

__all__ = ["OPTIMIZERS", "RELAXATIONS", "SupernetTrainingSettings", "build_mixing"]
