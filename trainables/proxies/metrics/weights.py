"""Metrics of a network's weights and size. They read neither images nor labels."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Literal

from archray.registry import LazyModule
from archray.trainables.proxies.registry import PROXIES, NoScore, proxy

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from archray.trainables.nets import build_network as cost
    from archray.trainables.proxies import layers
    from archray.trainables.proxies.shared_pass import SharedPass
else:
    torch, cost = LazyModule("torch"), LazyModule("archray.trainables.nets.build_network")
    layers = LazyModule("archray.trainables.proxies.layers")


@PROXIES.register("l2_norm")
@proxy(
    direction="max",
    summary="Norm of the weights at initialisation",
    source="Krishnakumar et al. 2022 (NAS-Bench-Suite-Zero)",
    reads="nothing",
)
def l2_norm(shared: SharedPass) -> float:
    """sum over l of ||theta_l||_2, theta_l the weight of a convolution or linear layer.

    Where every weight is drawn with a variance of 1 / fan_in, a layer's norm is about the root of its outputs, so that
    this counts layers, each by its width.
    """
    return float(torch.stack([weight.detach().double().norm() for weight in shared.record.weights]).sum())


def synaptic_flow(network: nn.Module, image: Tensor, variant: Literal["no-bn", "bn"] = "no-bn") -> float:
    """sum over weights of |theta| dR/d|theta|, R = 1^T f(1; |theta|): the sum of the outputs for an image of ones.

    Over the weights of convolutions and linear layers. The network is copied; the copy has all parameters replaced by
    their absolute values, in float64 (note H1). `no-bn`: batch normalisations are left out, as SynFlow's authors over
    architectures do; `bn`: kept.

    image: (C, H, W) any image of the right shape. Raises: NoScore if the network has layer normalisations.
    """
    if any(isinstance(module, torch.nn.LayerNorm) for module in network.modules()):
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
            if isinstance(module, layers.BATCH_NORMS):
                # not by a hook, which lets it normalise first: of one image it cannot, in a map of 1 x 1
                module.forward = _pass_through  # type: ignore[assignment, method-assign]
    ones = torch.ones(1, *image.shape, dtype=torch.float64, device=image.device)
    with torch.enable_grad():
        flow = linear(ones).sum()
    weights = [module.weight for module in linear.modules() if isinstance(module, layers.WEIGHT_LAYERS)]
    gradients = torch.autograd.grad(flow, weights, allow_unused=True, materialize_grads=True)
    return float(sum((weight.detach() * gradient).sum() for weight, gradient in zip(weights, gradients, strict=True)))


def _pass_through(x: Tensor) -> Tensor:
    return x


@PROXIES.register("synflow")
@proxy(
    direction="max",
    summary="Synaptic flow of the network of absolute weights",
    source="Tanaka et al. 2020; Abdelfattah et al. 2021; note H1",
    reads="nothing",
)
def synflow(shared: SharedPass) -> float:
    return synaptic_flow(shared.network, shared.images[0], shared.settings.synflow)


@PROXIES.register("parameters")
@proxy(direction="max", summary="Number of parameters: a baseline that no metric may be shown without", reads="nothing")
def parameters(shared: SharedPass) -> float:
    return float(cost.count_parameters(shared.network))


@PROXIES.register("multiply_adds")
@proxy(
    direction="max",
    summary="Multiply-adds of one image, what papers call FLOPs: a baseline that no metric may be shown without",
    reads="nothing",
)
def multiply_adds(shared: SharedPass) -> float:
    channels, height, width = shared.images.shape[1:]
    return float(cost.count_multiply_adds(shared.network, (channels, height, width)))
