"""What a network costs: its parameters and the multiply-adds of a forward pass."""

from __future__ import annotations

import torch
from torch import nn


def count_parameters(network: nn.Module) -> int:
    """Trainable numbers in the network; for cells, those on live edges only (see `nasbench201.Cell`)."""
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


@torch.no_grad()
def count_flops(network: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Multiply-adds of convolutions and linear layers for one image; what NAS papers call FLOPs.

    Args:
        image_shape: (C, H, W).

    Normalisation, pooling, activations and sums are not counted. The network is left as it was.
    """
    total = 0

    def count(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal total
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)
        positions = output[0, 0].numel() if isinstance(layer, nn.Conv2d) else 1
        total += weight.numel() * positions

    handles = [
        layer.register_forward_hook(count) for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    # Batches of two in train mode would change running statistics; evaluation mode changes nothing, and where
    # there are none (scoring form) a batch of two keeps 1 x 1 maps normalisable.
    training = network.training
    network.eval()
    try:
        reference = next(network.parameters())
        network(torch.zeros(2, *image_shape, device=reference.device, dtype=reference.dtype))
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    return total
