"""The operations on a cell's edges, as NAS-Bench-201 defines them (Dong and Yang 2020, sec. 2.1)."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

Normalisation = Literal["training", "scoring"]


def batch_norm(channels: int, *, affine: bool, running: bool) -> nn.BatchNorm2d:
    """Batch normalisation; without running statistics it uses the batch's in evaluation too."""
    return nn.BatchNorm2d(channels, affine=affine, track_running_stats=running)


def every_second_pixel(x: torch.Tensor) -> torch.Tensor:
    """(n, C, H, W) -> (n, C, H/2, W/2), rounded up: what a 1 x 1 convolution of stride 2 reads.

    No network has such a convolution, but this and then a plain one: oneDNN's gradient of the strided weight writes
    past its memory on CPUs with AVX2 and no AVX-512, where the input has 2 to 7 channels in channels-last layout
    (oneDNN issue 6035). It is also less work. Pooling by one pixel is a slice whose gradient keeps the layout.
    """
    return functional.avg_pool2d(x, kernel_size=1, stride=2)


class ReLUConvBN(nn.Sequential):
    """ReLU, convolution without bias, batch normalisation, in this order: (n, C_in, H, W) -> (n, C_out, H', W')."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int, stride: int = 1, *, affine: bool, running: bool
    ) -> None:
        super().__init__(
            nn.ReLU(),  # not in place: a node's sum is read by several edges
            nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=False),
            batch_norm(out_channels, affine=affine, running=running),
        )


def edge_name(target: int, source: int) -> str:
    """The key of an edge in a cell's `edges`: `4<-1`."""
    return f"{target}<-{source}"


class Zero(nn.Module):
    """The operation `none`: zeros, (n, C, H, W) -> (n, C, H/stride, W/stride), rounded up."""

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x[..., :: self.stride, :: self.stride])


# channels, normalisation -> the module of an edge. Batch normalisation on edges as note P5 says: affine with
# running statistics when trained, neither when scored.
OPERATIONS: dict[str, Callable[[int, Normalisation], nn.Module]] = {
    "none": lambda channels, normalisation: Zero(),
    "skip_connect": lambda channels, normalisation: nn.Identity(),
    "nor_conv_1x1": lambda channels, normalisation: _convolution(channels, 1, normalisation),
    "nor_conv_3x3": lambda channels, normalisation: _convolution(channels, 3, normalisation),
    "avg_pool_3x3": lambda channels, normalisation: nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False),
}


def _convolution(channels: int, kernel: int, normalisation: Normalisation) -> ReLUConvBN:
    trained = normalisation == "training"
    return ReLUConvBN(channels, channels, kernel, affine=trained, running=trained)
