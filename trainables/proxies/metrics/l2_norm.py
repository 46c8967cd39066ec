"""Norm of the weights at initialisation. Krishnakumar et al. 2022 (NAS-Bench-Suite-Zero).

It reads neither images nor labels; where every weight is drawn with a variance of 1 / fan_in, a layer's norm is about
the root of its outputs, so that this counts layers, each by its width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


def sum_of_norms(weights: Sequence[Tensor]) -> float:
    """sum over l of ||theta_l||_2, theta_l the weight of a convolution or linear layer."""
    return float(torch.stack([weight.detach().double().norm() for weight in weights]).sum())


@proxy(direction="max")
def l2_norm(shared: SharedPass) -> float:
    return sum_of_norms(shared.record.weights)
