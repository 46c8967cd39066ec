"""The features of a two-layer network in its lazy regime, for each of several activations; note U6."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from archray.trainables.activations.activation_functions import Activation

Layers = Literal["output", "both"]  # which layers learn: random features, or the tangent features of both


class RandomFeatures:
    """psi_i(x) in R^p of h activations, all with one random first layer W, (m, d), and signs v, (m,).

    `output`: sigma_i(W x) / sqrt(m), so p = m. `both`: beside it v sigma_i'(W x) x^T / sqrt(m), so p = m (1 + d): the
    gradient of v^T sigma_i(W x) by v and W. The gradient at sigma_alpha = sum_i alpha_i sigma_i is then
    sum_i alpha_i psi_i(x): the features are linear in the architecture.

    Rows of W are N(0, I / d), for inputs of mean square 1 in each coordinate. Each activation is scaled so that
    |psi_i(x)|^2 is 1 on average over the points that `fit` is given.

    Args:
        activations: h of them. width: m. inputs: d.
    """

    def __init__(
        self, activations: Sequence[Activation], inputs: int, width: int, layers: Layers, rng: torch.Generator
    ) -> None:
        self.activations, self.layers = list(activations), layers
        self.first = torch.randn(width, inputs, generator=rng, dtype=torch.float64) / math.sqrt(inputs)
        self.signs = torch.randint(0, 2, (width,), generator=rng).double() * 2 - 1
        self.scales = torch.ones(len(self.activations), dtype=torch.float64)

    @property
    def dimension(self) -> int:
        """p."""
        width, inputs = self.first.shape
        return feature_dimension(width, inputs, self.layers)

    def fit(self, points: Tensor) -> RandomFeatures:
        """Sets the scales. points: (n, d)."""
        self.scales = torch.ones_like(self.scales)
        self.scales = self(points).square().sum(-1).mean(-1).rsqrt()
        return self

    def __call__(self, points: Tensor) -> Tensor:
        """psi of points (n, d): (h, n, p)."""
        before = points @ self.first.T  # (n, m)
        return torch.stack([self._of(one, before, points) for one in self.activations]) * self.scales[:, None, None]

    def _of(self, activation: Activation, before: Tensor, points: Tensor) -> Tensor:
        width = len(self.first)
        output = activation(before) / math.sqrt(width)
        if self.layers == "output":
            return output
        at = before.clone().requires_grad_()
        [slopes] = torch.autograd.grad(activation(at).sum(), at)  # sigma'(W x): the function is elementwise
        slopes = slopes * self.signs / math.sqrt(width)
        return torch.cat([output, (slopes[:, :, None] * points[:, None, :]).flatten(1)], 1)


def feature_dimension(width: int, inputs: int, layers: Layers) -> int:
    """p of `RandomFeatures`."""
    return width if layers == "output" else width * (1 + inputs)


def scaled(activation: Activation, scale: float) -> Activation:
    """x -> activation(scale x): a candidate of its own, a faster one."""
    return lambda values: activation(scale * values)
