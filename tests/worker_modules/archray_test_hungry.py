"""Networks that allocate memory until Ray kills their process, once for each time that a test creates the file HUNGRY.

In the driver, whose process is named in DRIVER, they allocate nothing.
"""

import os
import time
from pathlib import Path

from archray.trainables.spaces import Decision, Space

BLOCK_BYTES = 2**26


class HungrySpace(Space):
    name = "hungry"
    decisions = (Decision("width", ("4", "6", "8")), Decision("kernel", ("1", "3")), Decision("depth", ("1", "2")))

    def build(self, architecture, *, in_channels, num_classes, normalization):
        from torch import nn

        class Hungry(nn.Module):
            def forward(self, x):
                if os.environ["DRIVER"] != str(os.getpid()):
                    eat(Path(os.environ["HUNGRY"]))
                return x

        width, kernel = int(architecture[0]), int(architecture[1])
        return nn.Sequential(
            nn.Conv2d(in_channels, width, kernel, padding=kernel // 2),
            nn.ReLU(),
            Hungry(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, num_classes),
        )


def eat(file):
    try:
        file.rename(file.with_name(f"eaten-{os.getpid()}"))
    except FileNotFoundError:
        return
    blocks = []
    while len(blocks) * BLOCK_BYTES < int(os.environ["MOST_BYTES"]):
        blocks.append(b"x" * BLOCK_BYTES)
        time.sleep(0.02)
    raise RuntimeError("Ray did not kill the process")
