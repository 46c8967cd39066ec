"""DARTS' cells as a model with choices, with the modules of the built-in space `darts`.

    archray search gaea-darts --space examples/darts_with_choices.py:network --data digits --preset smoke

Each node reads two of the earlier outputs, through an operation of Liu et al. (2019, section 2.1) on each. All normal
cells share one set of decisions, and all reduction cells another.
"""

from __future__ import annotations

import torch
from torch import nn

from archray import Choice, Edges
from archray.trainables.nets.darts_network import OPERATIONS, CIFARStem, FactorizedReduce, cell_conv, reductions

NAMES = tuple(OPERATIONS)[:8]  # the others belong to NASNet
NODES = 4


class Cell(nn.Module):
    """Maps the outputs of the last two cells to the concatenated outputs of four nodes."""

    def __init__(self, before: int, last: int, channels: int, *, reduction: bool, after_reduction: bool) -> None:
        super().__init__()
        first = FactorizedReduce if after_reduction else cell_conv
        self.inputs = nn.ModuleList([first(before, channels, "search"), cell_conv(last, channels, "search")])
        kind, self.nodes = "reduce" if reduction else "normal", nn.ModuleList()
        for target in range(2, 2 + NODES):
            edges = [
                self.operations(f"{kind}{target}<-{source}", channels, 2 if reduction and source < 2 else 1)
                for source in range(target)
            ]
            self.nodes.append(Edges(edges, k=2, name=f"{kind}{target}") if target > 2 else Both(edges))

    @staticmethod
    def operations(name: str, channels: int, stride: int) -> Choice:
        return Choice({label: OPERATIONS[label](channels, stride, "search") for label in NAMES}, name=name)

    def forward(self, before: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        outputs = [self.inputs[0](before), self.inputs[1](last)]
        for node in self.nodes:
            outputs.append(node(list(outputs)))
        return torch.cat(outputs[2:], dim=1)


class Both(nn.ModuleList):
    """The first node, which has only two inputs to read."""

    def forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        total: torch.Tensor = sum(edge(x) for edge, x in zip(self, inputs, strict=True))  # type: ignore[assignment]
        return total


class Network(nn.Module):
    """Images (n, in_channels, H, W) -> logits (n, num_classes), in 3 `cells` + 2 cells of which two are reductions."""

    def __init__(self, in_channels: int, num_classes: int, channels: int, cells: int) -> None:
        super().__init__()
        self.stem, self.cells, depth = CIFARStem(in_channels, channels, running=False), nn.ModuleList(), 3 * cells + 2
        (before, last), after_reduction = self.stem.widths, False
        for number in range(depth):
            reduction = number in reductions(depth)
            channels *= 2 if reduction else 1
            self.cells.append(Cell(before, last, channels, reduction=reduction, after_reduction=after_reduction))
            before, last, after_reduction = last, NODES * channels, reduction
        self.classifier = nn.Linear(last, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        before, last = self.stem(images)
        for cell in self.cells:
            before, last = last, cell(before, last)
        logits: torch.Tensor = self.classifier(last.mean((2, 3)))
        return logits


def network(in_channels: int, num_classes: int, channels: int = 16, cells: int = 2) -> nn.Module:
    """Returns the model that archray searches."""
    return Network(in_channels, num_classes, channels, cells)
