"""The network of NAS-Bench-201 (Dong and Yang 2020, sec. 2.1): stem, three stages of cells, head; its operations.

Two forms (note P5). `training`: every batch normalization is affine with running statistics. `scoring`, for
training-free metrics: no affine parameters on the cells' edges, affine elsewhere; no running statistics, so that a
forward pass changes nothing (in train mode the outputs are the same with and without them).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from archray.trainables.nets.registry import (
    NETWORKS,
    Normalization,
    ReLUConvBN,
    SpaceNetwork,
    Zero,
    batch_norm,
    edge_name,
)
from archray.trainables.spaces.nasbench201 import EDGES
from archray.trainables.spaces.space import Architecture, Space

STAGES = 3  # channels C, 2C, 4C; a residual reduction between stages

# channels, normalization, biases (default: False) -> the module of an edge. Batch normalization on edges as in note P5:
# affine with running statistics for training, neither for scoring.
OPERATIONS: dict[str, Callable[..., nn.Module]] = {
    "none": lambda channels, normalization, biases=False: Zero(),
    "skip_connect": lambda channels, normalization, biases=False: nn.Identity(),
    "nor_conv_1x1": lambda channels, normalization, biases=False: _convolution(channels, 1, normalization, biases),
    "nor_conv_3x3": lambda channels, normalization, biases=False: _convolution(channels, 3, normalization, biases),
    "avg_pool_3x3": lambda channels, normalization, biases=False: nn.AvgPool2d(
        3, stride=1, padding=1, count_include_pad=False
    ),
}


def _convolution(channels: int, kernel: int, normalization: Normalization, biases: bool) -> ReLUConvBN:
    trained = normalization == "training"
    return ReLUConvBN(channels, channels, kernel, affine=trained, running=trained, bias=biases)


def live_edges(edges: Sequence[tuple[int, int]], architecture: Architecture) -> list[int]:
    """Returns the numbers of the edges on a path from the input to the output without `none`.

    Args:
        edges: (E,) pairs (target, source) in topological order; 0 is the input, the highest target the output.
    """
    kept = [number for number, operation in enumerate(architecture) if operation != "none"]
    reached = {0}
    for number in kept:
        target, source = edges[number]
        if source in reached:
            reached.add(target)
    needed = {max(target for target, _ in edges)}
    for number in reversed(kept):
        target, source = edges[number]
        if target in needed:
            needed.add(source)
    return [number for number in kept if edges[number][1] in reached and edges[number][0] in needed]


class Cell(nn.Module):
    """One cell of an architecture, (n, C, H, W) -> (n, C, H, W); zeros without a live edge.

    Only live edges are built. A dead edge influences neither the output nor a gradient, so neither training nor a
    metric of gradients or outputs depends on it, and its parameters are not counted. The benchmark builds and counts
    dead edges; there a convolution of an empty node, with affine normalization, is a learned constant. `naswot` counts
    the ReLUs of dead convolutions there; here its values are those of the canonical cell, with `none` on dead edges
    (note P5).
    """

    def __init__(
        self, architecture: Architecture, channels: int, normalization: Normalization, biases: bool = False
    ) -> None:
        super().__init__()
        self.live = live_edges(EDGES, architecture)
        self.edges = nn.ModuleDict(
            {
                edge_name(*EDGES[number]): OPERATIONS[architecture[number]](channels, normalization, biases)
                for number in self.live
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nodes: dict[int, torch.Tensor] = {0: x}
        for number in self.live:
            target, source = EDGES[number]
            term = self.edges[edge_name(target, source)](nodes[source])
            nodes[target] = nodes[target] + term if target in nodes else term
        return nodes[3] if 3 in nodes else torch.zeros_like(x)


class Reduction(nn.Module):
    """The residual block between stages, (n, C, H, W) -> (n, 2C, H/2, W/2): a ResNet basic block of stride 2.

    The shortcut is 2 x 2 average pooling and a 1 x 1 convolution. Odd heights and widths are rounded up on both
    paths (the original fails on them).
    """

    def __init__(self, in_channels: int, out_channels: int, *, running: bool) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            ReLUConvBN(in_channels, out_channels, 3, 2, affine=True, running=running),
            ReLUConvBN(out_channels, out_channels, 3, affine=True, running=running),
        )
        self.shortcut = nn.Sequential(
            nn.AvgPool2d(2, stride=2, ceil_mode=True, count_include_pad=False),
            nn.Conv2d(in_channels, out_channels, 1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.shortcut(x) + self.residual(x)
        return out


class NASBench201Network(nn.Module):
    """Maps images (n, in_channels, H, W) to logits (n, num_classes).

    Args:
        architecture: The operation of each edge.
        channels: C of the first stage; 16 in the benchmark.
        cells: N, cells per stage; 5 in the benchmark.
        normalization: `training`, affine with running statistics; or `scoring`, neither on edges (see the module).
        biases: Whether the cells' convolutions have biases.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        channels: int,
        cells: int,
        in_channels: int,
        num_classes: int,
        normalization: Normalization,
        biases: bool = False,
    ) -> None:
        super().__init__()
        running = normalization == "training"
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, channels, 3, padding=1, bias=False),
            batch_norm(channels, affine=True, running=running),
        )
        stages: list[nn.Module] = []
        width = channels
        for stage in range(STAGES):
            if stage > 0:
                stages.append(Reduction(width, 2 * width, running=running))
                width *= 2
            stages.extend(Cell(architecture, width, normalization, biases) for _ in range(cells))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(
            batch_norm(width, affine=True, running=running), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.head(self.stages(self.stem(images)))  # (n, 4C)
        logits: torch.Tensor = self.classifier(features)  # (n, K)
        return logits


def _arguments(space: Space, architecture: Architecture) -> dict[str, Any]:
    space.check(architecture)
    return {"architecture": architecture}


nasbench201_network = SpaceNetwork(NASBench201Network, _arguments)
NETWORKS.register("nasbench201", nasbench201_network)
