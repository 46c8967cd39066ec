"""The operations of DARTS' and NASNet's cells, and what stands before and between cells. Liu et al. 2019, sec. 3.1.1.

Three forms. `search`, for supernets and their standalone counterparts (note G3): batch normalisation without affine
parameters, by the statistics of the batch at hand in evaluation too, and also after pooling. DARTS' program keeps
running statistics there, but a mixture's mean nothing for one path: by them every discretised cell was at chance.
`training`: affine, with running statistics; pools bare. `scoring`, for training-free metrics (note P5): neither affine
parameters nor running statistics; pools bare.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from archray.trainables.nets.operations import ReLUConvBN, Zero, batch_norm, every_second_pixel

Form = Literal["search", "training", "scoring"]


def cell_norm(channels: int, form: Form) -> nn.BatchNorm2d:
    """The batch normalisation of a layer inside a cell."""
    return batch_norm(channels, affine=form == "training", running=form == "training")


def cell_conv(in_channels: int, out_channels: int, form: Form) -> ReLUConvBN:
    """What brings a cell's input to the cell's width: ReLU, 1 x 1 convolution, normalisation."""
    return ReLUConvBN(in_channels, out_channels, 1, affine=form == "training", running=form == "training")


class FactorizedReduce(nn.Module):
    """Halves a map without losing every second pixel: (n, C_in, H, W) -> (n, C_out, H/2, W/2), rounded up.

    Two 1 x 1 convolutions of every second pixel after one ReLU, the second on the map moved by a pixel both ways; their
    outputs are concatenated and normalised. Odd heights and widths are padded with zeros (the original fails on them).
    """

    def __init__(self, in_channels: int, out_channels: int, form: Form) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv_1 = nn.Conv2d(in_channels, out_channels // 2, 1, bias=False)
        self.conv_2 = nn.Conv2d(in_channels, out_channels - out_channels // 2, 1, bias=False)
        self.bn = cell_norm(out_channels, form)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(x)
        height, width = x.shape[-2:]
        moved = functional.pad(x, (-1, width % 2, -1, height % 2))
        halves = self.conv_1(every_second_pixel(x)), self.conv_2(every_second_pixel(moved))
        out: torch.Tensor = self.bn(torch.cat(halves, dim=1))
        return out


class SepConv(nn.Sequential):
    """Twice ReLU, depthwise convolution, 1 x 1 convolution, normalisation; the stride is the first's."""

    def __init__(self, channels: int, kernel: int, stride: int, form: Form) -> None:
        layers: list[nn.Module] = []
        for step in (stride, 1):
            layers += [
                nn.ReLU(),
                nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
                nn.Conv2d(channels, channels, 1, bias=False),
                cell_norm(channels, form),
            ]
        super().__init__(*layers)


class DilConv(nn.Sequential):
    """ReLU, depthwise convolution of dilation 2, 1 x 1 convolution, normalisation."""

    def __init__(self, channels: int, kernel: int, stride: int, form: Form) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(channels, channels, kernel, stride, kernel - 1, dilation=2, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, bias=False),
            cell_norm(channels, form),
        )


class FactorizedConv(nn.Sequential):
    """ReLU, convolution of a row, convolution of a column, normalisation; each strides along its own axis."""

    def __init__(self, channels: int, kernel: int, stride: int, form: Form) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(channels, channels, (1, kernel), (1, stride), (0, kernel // 2), bias=False),
            nn.Conv2d(channels, channels, (kernel, 1), (stride, 1), (kernel // 2, 0), bias=False),
            cell_norm(channels, form),
        )


def _pool(pool: nn.Module, channels: int, form: Form) -> nn.Module:
    return nn.Sequential(pool, cell_norm(channels, form)) if form == "search" else pool


# channels, stride (1 or 2), form -> the module of an edge, (n, C, H, W) -> (n, C, H/stride, W/stride) rounded up.
# DARTS' eight in the order of the original, then NASNet's.
OPERATIONS: dict[str, Callable[[int, int, Form], nn.Module]] = {
    "none": lambda channels, stride, form: Zero(stride),
    "max_pool_3x3": lambda channels, stride, form: _pool(nn.MaxPool2d(3, stride, 1), channels, form),
    "avg_pool_3x3": lambda channels, stride, form: _pool(
        nn.AvgPool2d(3, stride, 1, count_include_pad=False), channels, form
    ),
    "skip_connect": lambda channels, stride, form: (
        nn.Identity() if stride == 1 else FactorizedReduce(channels, channels, form)
    ),
    "sep_conv_3x3": lambda channels, stride, form: SepConv(channels, 3, stride, form),
    "sep_conv_5x5": lambda channels, stride, form: SepConv(channels, 5, stride, form),
    "dil_conv_3x3": lambda channels, stride, form: DilConv(channels, 3, stride, form),
    "dil_conv_5x5": lambda channels, stride, form: DilConv(channels, 5, stride, form),
    "sep_conv_7x7": lambda channels, stride, form: SepConv(channels, 7, stride, form),
    "conv_7x1_1x7": lambda channels, stride, form: FactorizedConv(channels, 7, stride, form),
}
