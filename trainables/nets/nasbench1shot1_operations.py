"""The operations on a node of NAS-Bench-101 and NAS-Bench-1Shot1. Ying et al. 2019, section 2; Zela et al. 2020."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from archray.trainables.nets.darts_operations import Form
from archray.trainables.nets.operations import batch_norm


class ConvBNReLU(nn.Sequential):
    """Convolution of stride 1 without bias, normalisation, ReLU: (n, C_in, H, W) -> (n, C_out, H, W)."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, affine: bool, running: bool) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel, padding=kernel // 2, bias=False),
            batch_norm(out_channels, affine=affine, running=running),
            nn.ReLU(),
        )


def node_conv(in_channels: int, out_channels: int, kernel: int, form: Form) -> ConvBNReLU:
    """A convolution inside a cell, of a node or, 1 x 1, to bring the cell's input to a node's width.

    Its normalisation is affine, with running statistics, in the form that is trained.

    NAS-Bench-101 moves running statistics by 0.003 per step, for trainings of 108 epochs; here it is torch's 0.1.
    """
    return ConvBNReLU(in_channels, out_channels, kernel, affine=form == "training", running=form == "training")


# channels, form -> the module of a node, (n, C, H, W) -> (n, C, H, W). Nothing follows the pool in any form.
OPERATIONS: dict[str, Callable[[int, Form], nn.Module]] = {
    "conv1x1-bn-relu": lambda channels, form: node_conv(channels, channels, 1, form),
    "conv3x3-bn-relu": lambda channels, form: node_conv(channels, channels, 3, form),
    "maxpool3x3": lambda channels, form: nn.MaxPool2d(3, stride=1, padding=1),
}
