"""Supernets: all architectures of a space in one network, trained with its architecture or for one.

Importing this loads no torch.
"""

from archray.trainables.supernets.settings import OPTIMIZERS, RELAXATIONS, SupernetTrainingSettings, build_mixing

__all__ = ["OPTIMIZERS", "RELAXATIONS", "SupernetTrainingSettings", "build_mixing"]
