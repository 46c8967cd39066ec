"""Two-layer networks v^T sigma(W x), many at a time, as tensors. Roberts et al. 2022, section 3.

The paper writes W in R^(k x d) with x in R^k and applies the transpose; here W is (k, d), x in R^d. Its class leaves v
free; as in its source, v has k entries +-1/sqrt(k), half of them positive, and is not trained: what is shared is W.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from archray.registry import Registry

# Activations by name, elementwise functions of a tensor.


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


def output_weights(width: int) -> Tensor:
    """v: (k,) float64, +1/sqrt(k) in its first half and -1/sqrt(k) in the other."""
    signs = torch.ones(width, dtype=torch.float64)
    signs[(width + 1) // 2 :] = -1.0
    return signs / width**0.5


def draw_weights(width: int, dimension: int, generator: torch.Generator) -> Tensor:
    """W: (k, d) float64, normal of variance 1/d: W x has variance 1 in each unit where x has in each coordinate."""
    return torch.randn(width, dimension, generator=generator, dtype=torch.float64) / dimension**0.5


def component_outputs(inputs: Tensor, weights: Tensor, output: Tensor, functions: Sequence[Activation]) -> Tensor:
    """What every discrete network says with the same weights: v^T sigma_i(W x).

    Args:
        inputs: (S, n, d), of S instances. weights: (S, k, d). output: v, (k,).
        functions: the h activations.

    Returns: (S, n, h). The network of sigma_alpha says its product with alpha, since v^T is linear.
    """
    hidden = torch.bmm(inputs, weights.transpose(1, 2))  # (S, n, k)
    return torch.stack([function(hidden) @ output for function in functions], dim=-1)


def mixture_outputs(components: Tensor, alpha: Tensor) -> Tensor:
    """f_{sigma_alpha}: components (S, n, h) and alpha (S, h) give (S, n)."""
    return torch.einsum("snh,sh->sn", components, alpha)


def squared_risks(outputs: Tensor, labels: Tensor) -> Tensor:
    """1/2 E (y - f)^2 over the sample: outputs (S, n) or (S, n, h) and labels (S, n) give (S,) or (S, h)."""
    if outputs.ndim == labels.ndim + 1:
        labels = labels.unsqueeze(-1)
    return (outputs - labels).square().mean(1) / 2
