"""The activations by name, each an elementwise function of a tensor. Roberts et al. 2022, section 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from archray.registry import Registry

Activation = Callable[[Tensor], Tensor]  # elementwise, differentiable almost everywhere; any shape, any float

ACTIVATIONS: Registry[Activation] = Registry("activation")
for _name, _function in {
    "relu": torch.relu,
    "leaky-relu": functional.leaky_relu,  # of slope 0.01 below zero
    "elu": functional.elu,
    "softplus": functional.softplus,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "quadratic": torch.square,
    "identity": torch.clone,
}.items():
    ACTIVATIONS.register(_name, _function)


def get_activations(names: Sequence[str]) -> list[Activation]:
    """The functions of these names, in their order. Raises: UnknownName, with the nearest of the known ones."""
    return [ACTIVATIONS.get(name) for name in names]
