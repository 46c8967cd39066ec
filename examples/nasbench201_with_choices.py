"""NAS-Bench-201 as a model with choices: the same networks as the built-in space `nasbench201`.

    archray search gaea-darts --space examples/nasbench201_with_choices.py:network --data digits --preset smoke

The operations, the stem and the reductions are those of the built-in network (Dong and Yang 2020, section 2.1). A test
compares outputs, gradients and learned architecture parameters with the built-in supernet.
"""

from __future__ import annotations

import torch
from torch import nn

from archray import Choice
from archray.trainables.nets.nasbench201_network import OPERATIONS, STAGES, Reduction
from archray.trainables.nets.registry import batch_norm


class Cell(nn.Module):
    """Four nodes; each is the sum of an operation on each earlier node. All cells of a network take the same ones."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.edges = nn.ModuleDict()
        for target in (1, 2, 3):
            for source in range(target):
                name = f"{target}<-{source}"
                operations = {operation: make(channels, "scoring") for operation, make in OPERATIONS.items()}
                self.edges[name] = Choice(operations, name=name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        nodes = [x]
        for target in (1, 2, 3):
            nodes.append(sum(self.edges[f"{target}<-{source}"](nodes[source]) for source in range(target)))
        return nodes[-1]


def network(in_channels: int, num_classes: int, channels: int = 16, cells: int = 5) -> nn.Module:
    """Images (n, in_channels, H, W) -> logits (n, num_classes)."""
    layers: list[nn.Module] = [
        nn.Conv2d(in_channels, channels, 3, padding=1, bias=False),
        batch_norm(channels, affine=True, running=False),
    ]
    for stage in range(STAGES):
        if stage > 0:
            layers.append(Reduction(channels, 2 * channels, running=False))
            channels *= 2
        layers.extend(Cell(channels) for _ in range(cells))
    head = [batch_norm(channels, affine=True, running=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(channels, num_classes))
