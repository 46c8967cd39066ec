"""A custom search space for HNAS: a class with named decisions and a method that builds the network.

    archray search hnas --space examples/own_space.py:ResidualSpace --data digits --preset smoke

The run keeps a copy of this file. So it can be resumed from any folder, and its workers do not need the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.trainables.spaces import Architecture, Decision, Space

if TYPE_CHECKING:
    from torch import nn


class ResidualSpace(Space):
    """Small residual networks: 3 x 3 x 2 x 3 x 2 = 108 architectures."""

    name = "residual"
    decisions = (
        Decision("width", ("8", "16", "24")),
        Decision("depth", ("1", "2", "3")),
        Decision("kernel", ("3", "5")),
        Decision("activation", ("relu", "silu", "tanh")),
        Decision("shortcut", ("none", "identity")),
    )

    def build(self, architecture: Architecture, *, in_channels: int, num_classes: int) -> nn.Module:
        """Builds the network of an architecture: images (n, in_channels, H, W) -> logits (n, num_classes)."""
        from torch import nn

        class Block(nn.Module):
            def __init__(self, width: int) -> None:
                super().__init__()
                self.body = nn.Sequential(
                    nn.Conv2d(width, width, kernel, padding=kernel // 2, bias=False),
                    nn.BatchNorm2d(width),
                    activation(),
                )

            def forward(self, x):
                return x + self.body(x) if residual else self.body(x)

        chosen = dict(zip((decision.name for decision in self.decisions), architecture, strict=True))
        width, kernel, residual = int(chosen["width"]), int(chosen["kernel"]), chosen["shortcut"] == "identity"
        activation = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}[chosen["activation"]]
        return nn.Sequential(
            nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            *(Block(width) for _ in range(int(chosen["depth"]))),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, num_classes),
        )


if __name__ == "__main__":
    import sys

    import archray

    result = archray.search("hnas", space=f"{__file__}:ResidualSpace", data="digits", preset="smoke", out=sys.argv[1])
    print(result.architecture, result.test_accuracy)
