"""Supernets: all architectures of a space in one network with shared weights."""

from archray.registry import import_modules
from archray.trainables.supernets.networks.supernet import (
    Group,
    MixtureWeights,
    Supernet,
    build_supernet,
    copy_weights,
    discretize,
    groups,
)
from archray.trainables.supernets.settings import SUPERNETS

import_modules(__name__)

__all__ = ["SUPERNETS", "Group", "MixtureWeights", "Supernet", "build_supernet", "copy_weights", "discretize", "groups"]
