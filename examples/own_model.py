"""Your own model as a search space: a module with choices, for every method.

    archray check examples/own_model.py:network
    archray search gaea-darts --space examples/own_model.py:network --data digits --preset smoke

The function returns the model with all its choices. archray reads the decisions from it, trains it as a supernet, and
builds standalone networks from it, in which every choice is resolved.
"""

from __future__ import annotations

import torch
from torch import nn

from archray import Choice, Repeat, Width


class ConvBlock(nn.Module):
    """Convolution, batch normalization and ReLU, with a shortcut."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(self.conv(x)).relu()


def network(in_channels: int, num_classes: int) -> nn.Module:
    """Images (n, in_channels, H, W) -> logits (n, num_classes); 972 architectures."""
    width = Width([16, 24, 32], name="width")  # shared by all blocks: one decision

    def block(number: int) -> nn.Module:
        alternatives = {"conv3": ConvBlock(width, 3), "conv5": ConvBlock(width, 5), "skip": nn.Identity()}
        return Choice(alternatives, name=f"block{number}")

    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3, padding=1),
        Repeat(block, (1, 4), name="depth"),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )


if __name__ == "__main__":
    import sys

    import archray

    result = archray.search("gaea-darts", space=f"{__file__}:network", data="digits", preset="smoke", out=sys.argv[1])
    print(result.architecture, result.test_accuracy)
