"""Networks: from an architecture of a space to a torch module. Importing this loads no torch until it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from archray.trainables.nets.network_settings import NetworkSettings

if TYPE_CHECKING:
    from archray.trainables.nets.build_network import build
    from archray.trainables.nets.cost import count_multiply_adds, count_parameters
    from archray.trainables.nets.initialisation import initialise
    from archray.trainables.nets.network_registry import NETWORKS

_TORCH = {  # what needs torch, loaded when first asked for; no module here may have the name of one of these
    "NETWORKS": "build_network",
    "build": "build_network",
    "count_multiply_adds": "cost",
    "count_parameters": "cost",
    "initialise": "initialisation",
}

__all__ = ["NETWORKS", "NetworkSettings", "build", "count_multiply_adds", "count_parameters", "initialise"]


def __getattr__(name: str) -> Any:
    if name in _TORCH:
        return getattr(import_module(f"archray.trainables.nets.{_TORCH[name]}"), name)
    raise AttributeError(f"module 'archray.trainables.nets' has no attribute {name!r}")
