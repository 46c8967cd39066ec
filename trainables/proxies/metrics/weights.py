"""Metrics of a network's weights and size. They read neither images nor labels."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from archray.trainables.nets.cost import count_multiply_adds, count_parameters
from archray.trainables.proxies.layers import BATCH_NORMS, WEIGHT_LAYERS
from archray.trainables.proxies.registry import NoScore, proxy
from archray.trainables.proxies.shared_pass import SharedPass

# Norm of the weights at initialisation. Krishnakumar et al. 2022 (NAS-Bench-Suite-Zero).


def sum_of_norms(weights: Sequence[Tensor]) -> float:
    """sum over l of ||theta_l||_2, theta_l the weight of a convolution or linear layer."""
    return float(torch.stack([weight.detach().double().norm() for weight in weights]).sum())


@proxy(direction="max")
def l2_norm(shared: SharedPass) -> float:
    return sum_of_norms(shared.record.weights)


# Synaptic flow of the network of absolute weights. Tanaka et al. 2020; Abdelfattah et al. 2021; note H1.


def synaptic_flow(network: nn.Module, image: Tensor, variant: Literal["no-bn", "bn"] = "no-bn") -> float:
    """sum over weights of |theta| dR/d|theta|, R = 1^T f(1; |theta|): the sum of the outputs for an image of ones.

    Over the weights of convolutions and linear layers. The network is copied; the copy has all parameters replaced by
    their absolute values, in float64 (note H1). `no-bn`: batch normalisations are left out, as SynFlow's authors over
    architectures do; `bn`: kept.

    image: (C, H, W) any image of the right shape. Raises: NoScore if the network has layer normalisations.
    """
    if any(isinstance(module, nn.LayerNorm) for module in network.modules()):
        raise NoScore(
            "the network has layer normalisations, which take out the mean, so that absolute weights make no positive "
            "flow"
        )
    linear = copy.deepcopy(network).double().train()
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.requires_grad_(True).abs_()
    if variant == "no-bn":
        for module in linear.modules():
            if isinstance(module, BATCH_NORMS):
                # not by a hook, which lets it normalise first: of one image it cannot, in a map of 1 x 1
                module.forward = _pass_through  # type: ignore[assignment, method-assign]
    ones = torch.ones(1, *image.shape, dtype=torch.float64, device=image.device)
    with torch.enable_grad():
        flow = linear(ones).sum()
    weights = [module.weight for module in linear.modules() if isinstance(module, WEIGHT_LAYERS)]
    gradients = torch.autograd.grad(flow, weights, allow_unused=True, materialize_grads=True)
    return float(sum((weight.detach() * gradient).sum() for weight, gradient in zip(weights, gradients, strict=True)))


def _pass_through(x: Tensor) -> Tensor:
    return x


@proxy(direction="max")
def synflow(shared: SharedPass) -> float:
    return synaptic_flow(shared.network, shared.images[0], shared.settings.synflow)


# Number of parameters: a baseline that no metric may be shown without.


@proxy(direction="max")
def parameters(shared: SharedPass) -> float:
    return float(count_parameters(shared.network))


# Multiply-adds of one image, what papers call FLOPs: a baseline that no metric may be shown without.


@proxy(direction="max")
def multiply_adds(shared: SharedPass) -> float:
    channels, height, width = shared.images.shape[1:]
    return float(count_multiply_adds(shared.network, (channels, height, width)))
