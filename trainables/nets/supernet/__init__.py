"""Supernets: all architectures of a space in one network with shared weights."""

from __future__ import annotations

from archray.trainables.nets.supernet.build import SUPERNETS, build_supernet, copy_weights, discretise, groups
from archray.trainables.nets.supernet.group import Group
from archray.trainables.nets.supernet.supernet import Supernet

__all__ = ["SUPERNETS", "Group", "Supernet", "build_supernet", "copy_weights", "discretise", "groups"]
