"""What a network costs: its parameters and the multiply-adds of a forward pass."""

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


def count_parameters(network: nn.Module) -> int:
    """Trainable numbers in the network, without its auxiliary tower (`network.auxiliary`), as papers count.

    For cells, those on live edges only (see `nasbench201_network.Cell`).
    """
    tower = getattr(network, "auxiliary", None)
    left_out = set() if tower is None else set(tower.parameters())
    return sum(
        parameter.numel() for parameter in network.parameters() if parameter.requires_grad and parameter not in left_out
    )


@torch.no_grad()
def count_multiply_adds(network: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Multiply-adds of the forward pass of one image (C, H, W) in evaluation mode; what NAS papers call FLOPs.

    Of convolutions and matrix products, in layers or not. Normalisation, pooling, activations and sums are not
    counted, and an auxiliary tower takes no part in evaluation. The network is left as it was.
    """
    training = network.training
    network.eval()
    try:
        reference = next(network.parameters())
        # Two images: where normalisation has no running statistics (scoring form) one alone cannot pass 1 x 1 maps.
        images = torch.zeros(2, *image_shape, device=reference.device, dtype=reference.dtype)
        # Attention as matrix products: before 2.14 torch does not count its fused kernel for CPUs.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            network(images)
    finally:
        network.train(training)
    flops = counter.get_total_flops()  # a multiply-add is two
    return flops // 2 // len(images)
