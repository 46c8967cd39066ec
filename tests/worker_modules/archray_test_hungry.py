"""Networks that allocate memory until Ray kills their process, once for each time that a test creates the file HUNGRY.

In the driver they allocate nothing.
"""

import os
import time
from pathlib import Path

from archray_test_networks import in_actor, small_network

from archray.trainables.spaces import Decision, Space

BLOCK_BYTES = 2**26


class HungrySpace(Space):
    name = "hungry"
    decisions = (Decision("width", ("4", "6", "8")), Decision("kernel", ("1", "3")), Decision("depth", ("1", "2")))

    def build(self, architecture, *, in_channels, num_classes, normalization):
        from torch import nn

        class Hungry(nn.Module):
            def forward(self, x):
                if in_actor():
                    eat(Path(os.environ["HUNGRY"]))
                return x

        return small_network(architecture, Hungry(), in_channels=in_channels, num_classes=num_classes)


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
