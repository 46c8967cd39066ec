"""Networks: from an architecture of a space to a torch module. Imports torch at first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes
from archray.trainables.nets.network_settings import NetworkSettings

if TYPE_CHECKING:
    from archray.trainables.nets.build_network import build, count_multiply_adds, count_parameters, initialize
    from archray.trainables.nets.registry import NETWORKS

__all__ = ["NETWORKS", "NetworkSettings", "build", "count_multiply_adds", "count_parameters", "initialize"]

__getattr__ = lazy_attributes(  # these need torch
    __name__,
    build_network=("NETWORKS", "build", "count_multiply_adds", "count_parameters", "initialize"),
)
