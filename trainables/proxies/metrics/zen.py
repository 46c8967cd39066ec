"""How far a Gaussian perturbation of the input moves the features, without normalisation's scaling. Lin et al. 2021."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from archray.trainables.proxies.layers import BATCH_NORMS, WEIGHT_LAYERS
from archray.trainables.proxies.proxy_registry import NoScore, proxy
from archray.trainables.proxies.shared_pass import SharedPass

ALPHA = 0.01  # of the perturbation, as the authors have it


def zen_score(network: nn.Module, images: Tensor, seed: int) -> float:
    """log E||f(x) - f(x + alpha e)||_1 + sum over batch normalisations of log sigma, Alg. 1. It reads no data.

    Of a copy of the network in train mode with standard normal weights (biases 0; normalisations 1 and 0). x, e:
    standard normal, of the shape of `images` (m, C, H, W). f: the last feature map that a module gives, which is what
    global average pooling gets. sigma: the root of the mean over channels of the variance of what goes into a
    normalisation when f(x) is computed. The norm is the authors' program's, a sum of absolute differences (Alg. 1 has
    Frobenius'); it averages 32 draws, this is one. Residual links, which they take out of their own networks, stay: in
    a cell a skip connection is one of the choices.

    seed: of weights, x and e. Raises: NoScore if the network has no feature map or layer normalisations, or what goes
    into a batch normalisation does not vary.
    """
    if any(isinstance(module, nn.LayerNorm) for module in network.modules()):
        raise NoScore(
            "the network has layer normalisations, which take out the scale that zen adds up over batch normalisations"
        )
    network = copy.deepcopy(network).train()
    generator = torch.Generator().manual_seed(seed)

    def normal(like: Tensor) -> Tensor:  # drawn on the CPU, the same for every device
        return torch.randn(like.shape, generator=generator).to(like)

    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, WEIGHT_LAYERS):
                module.weight.copy_(normal(module.weight))
            elif isinstance(module, BATCH_NORMS) and module.affine:
                module.weight.fill_(1.0)
            if isinstance(module, (*WEIGHT_LAYERS, *BATCH_NORMS)) and module.bias is not None:
                module.bias.zero_()
        x = normal(images)
        features, variances = _features(network, x)
        moved, _ = _features(network, x + ALPHA * normal(images))
        distance = (features - moved).abs().flatten(1).sum(1).mean()
    scales = torch.stack([distance, *(variance.sqrt() for variance in variances)])
    if not bool((scales > 0).all()):
        raise NoScore(
            "the features, or what goes into a batch normalisation, do not vary: their scale has no logarithm"
        )
    return float(scales.double().log().sum())


def _features(network: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """f(x), (m, C, H, W), and of each batch normalisation, in order, the mean variance of its channels."""
    maps: list[Tensor] = []
    variances: list[Tensor] = []

    def note_map(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and output[0, 0].numel() > 1:
            maps[:] = [output.clone()]  # the network may change it in place

    def note_variance(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        variances.append(inputs[0].transpose(0, 1).flatten(1).var(1, correction=0).mean())  # (C,) and its mean

    handles = [module.register_forward_hook(note_map) for module in network.modules()]
    handles += [
        module.register_forward_pre_hook(note_variance)
        for module in network.modules()
        if isinstance(module, BATCH_NORMS)
    ]
    try:
        network(x)
    finally:
        for handle in handles:
            handle.remove()
    if not maps:
        raise NoScore("no module of the network gives a feature map (m, channels, height, width)")
    return maps[0], variances


@proxy(direction="max")
def zen(shared: SharedPass) -> float:
    return zen_score(shared.network, shared.images, shared.settings.seed)
