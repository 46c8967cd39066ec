"""The registry of standalone networks, and layers that several of them share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import nn

from archray.registry import Registry
from archray.trainables.spaces.space import Architecture, Space

Normalization = Literal["training", "scoring"]
Form = Literal["search", "training", "scoring"]  # form of a genotype's cells: see `darts_network`
NetworkT = TypeVar("NetworkT", bound=nn.Module)


@dataclass(frozen=True)
class SpaceNetwork(Generic[NetworkT]):
    """A network whose class is plain PyTorch. `archray export` copies its source, and all that it uses.

    Attributes:
        network: The class. It takes `arguments`, and `channels`, `cells`, `in_channels`, `num_classes`,
            `normalization`, and `stem` and `auxiliary` if there is a choice.
        arguments: Function from a space and an architecture to plain data by name. Raises: InvalidInput for another
            space.
    """

    network: type[NetworkT]
    arguments: Callable[[Space, Architecture], dict[str, Any]]

    def __call__(self, space: Space, architecture: Architecture, **options: Any) -> NetworkT:
        return self.network(**self.arguments(space, architecture), **options)


# A `SpaceNetwork`, or another builder(space, architecture, *, ...) with its options
NETWORKS: Registry[Callable[..., nn.Module]] = Registry("network")


def batch_norm(channels: int, *, affine: bool, running: bool) -> nn.BatchNorm2d:
    """Batch normalization; without running statistics it uses the batch's in evaluation too."""
    return nn.BatchNorm2d(channels, affine=affine, track_running_stats=running)


class ReLUConvBN(nn.Sequential):
    """ReLU, convolution, batch normalization, in this order: (n, C_in, H, W) -> (n, C_out, H', W')."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        *,
        affine: bool,
        running: bool,
        bias: bool = False,
    ) -> None:
        super().__init__(
            nn.ReLU(),  # not in place: several edges read a node's sum
            nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=bias),
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
