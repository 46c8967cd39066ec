"""Supernets: all architectures of a space in one network with shared weights."""

from __future__ import annotations

from archray.registry import import_modules
from archray.trainables.supernets.networks.build_supernet import build_supernet, copy_weights, discretise, groups
from archray.trainables.supernets.networks.group import Group
from archray.trainables.supernets.networks.mixture_weights import MixtureWeights
from archray.trainables.supernets.networks.supernet import SUPERNETS, Supernet

import_modules(__name__)

__all__ = ["SUPERNETS", "Group", "MixtureWeights", "Supernet", "build_supernet", "copy_weights", "discretise", "groups"]
