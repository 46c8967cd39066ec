"""The layers of archray's networks as an exported source has them: in the form that is trained, with torch alone.

Their text is copied into the file (`inspect.getsource`), so nothing here may use anything but torch and its neighbours
in this file. Names of parameters are those of archray's own layers, whose weights load into these.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ReLUConvBN(nn.Sequential):
    """ReLU, convolution without bias, batch normalisation: (n, C_in, H, W) -> (n, C_out, H/stride, W/stride)."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(out_channels),
        )


class ConvBNReLU(nn.Sequential):
    """Convolution without bias, batch normalisation, ReLU: (n, C_in, H, W) -> (n, C_out, H, W)."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )


class Zero(nn.Module):
    """No connection: zeros, (n, C, H, W) -> (n, C, H/stride, W/stride), rounded up."""

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[..., :: self.stride, :: self.stride])


class SepConv(nn.Sequential):
    """Separable convolution, twice: ReLU, depthwise convolution, 1 x 1 convolution, batch normalisation."""

    def __init__(self, channels: int, kernel: int, stride: int = 1) -> None:
        layers: list[nn.Module] = []
        for step in (stride, 1):
            layers += [
                nn.ReLU(),
                nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
                nn.Conv2d(channels, channels, 1, bias=False),
                nn.BatchNorm2d(channels),
            ]
        super().__init__(*layers)


class DilConv(nn.Sequential):
    """Separable convolution of dilation 2: ReLU, depthwise convolution, 1 x 1 convolution, batch normalisation."""

    def __init__(self, channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(channels, channels, kernel, stride, kernel - 1, dilation=2, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )


class FactorizedConv(nn.Sequential):
    """Convolution in two: ReLU, convolution of a row, convolution of a column, batch normalisation."""

    def __init__(self, channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(channels, channels, (1, kernel), (1, stride), (0, kernel // 2), bias=False),
            nn.Conv2d(channels, channels, (kernel, 1), (stride, 1), (kernel // 2, 0), bias=False),
            nn.BatchNorm2d(channels),
        )


class FactorizedReduce(nn.Module):
    """Halves a map: two 1 x 1 convolutions of every second pixel, the second on the map moved by one pixel.

    (n, C_in, H, W) -> (n, C_out, H/2, W/2), rounded up.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv_1 = nn.Conv2d(in_channels, out_channels // 2, 1, bias=False)
        self.conv_2 = nn.Conv2d(in_channels, out_channels - out_channels // 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(x)
        moved = functional.pad(x, (-1, x.shape[3] % 2, -1, x.shape[2] % 2))
        halves = self.conv_1(x[:, :, ::2, ::2]), self.conv_2(moved[:, :, ::2, ::2])
        return self.bn(torch.cat(halves, dim=1))


class Reduction(nn.Module):
    """A residual block of stride 2 between stages: (n, C_in, H, W) -> (n, C_out, H/2, W/2), rounded up."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            ReLUConvBN(in_channels, out_channels, 3, stride=2), ReLUConvBN(out_channels, out_channels, 3)
        )
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(2, stride=2, ceil_mode=True, count_include_pad=False),
            nn.Conv2d(in_channels, out_channels, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.residual(x)


class CIFARStem(nn.Module):
    """One convolution, (n, in_channels, H, W) -> (n, 3C, H, W), which is both inputs of the first cell."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.widths = (3 * channels, 3 * channels)
        self.first = nn.Sequential(
            nn.Conv2d(in_channels, 3 * channels, 3, padding=1, bias=False), nn.BatchNorm2d(3 * channels)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.first(images)
        return x, x


class ImageNetStem(nn.Module):
    """Three convolutions of stride 2, (n, in_channels, H, W) -> (n, C, H/4, W/4) and (n, C, H/8, W/8)."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.widths = (channels, channels)
        self.first = nn.Sequential(
            nn.Conv2d(in_channels, channels // 2, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels // 2),
            nn.ReLU(),
            nn.Conv2d(channels // 2, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.second = ReLUConvBN(channels, channels, 3, stride=2)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        before = self.first(images)
        return before, self.second(before)


class Auxiliary(nn.Module):
    """A second classifier on the map after the second reduction cell, for training alone: -> (n, num_classes).

    size, stride: of the maps of the images it is made for, and of its pooling there; other maps are pooled to 2 x 2.
    """

    def __init__(self, channels: int, num_classes: int, size: int, stride: int, normalised: bool) -> None:
        super().__init__()
        self.size = size
        self.pool = nn.AvgPool2d(5, stride, count_include_pad=False)
        self.features = nn.Sequential(
            nn.Conv2d(channels, 128, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(),
            nn.Conv2d(128, 768, 2, bias=False),
            nn.BatchNorm2d(768) if normalised else nn.Identity(),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(768, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(x)
        native = x.shape[-2:] == (self.size, self.size)
        x = self.pool(x) if native else functional.adaptive_avg_pool2d(x, 2)
        return self.classifier(self.features(x))


# In the order in which a file has them: each uses only those before it.
LAYERS: tuple[type[nn.Module], ...] = (
    ReLUConvBN,
    ConvBNReLU,
    Zero,
    SepConv,
    DilConv,
    FactorizedConv,
    FactorizedReduce,
    Reduction,
    CIFARStem,
    ImageNetStem,
    Auxiliary,
)
