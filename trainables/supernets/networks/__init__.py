"""Supernets: all architectures of a space in one network with shared weights."""

from __future__ import annotations

from archray.trainables.supernets.networks.build_supernet import (
    SUPERNETS,
    build_supernet,
    copy_weights,
    discretise,
    groups,
)
from archray.trainables.supernets.networks.group import Group
from archray.trainables.supernets.networks.supernet import Supernet

__all__ = ["SUPERNETS", "Group", "Supernet", "build_supernet", "copy_weights", "discretise", "groups"]
