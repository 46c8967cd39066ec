"""Networks that abort their process at `step` or `build` (CRASH), for the widths in CRASH."""

import os

from archray_test_networks import in_actor, small_network

from archray.trainables.spaces import Decision, Space


class CrashSpace(Space):
    name = "crash"
    decisions = (
        Decision("width", ("4", "6", "8")),
        Decision("kernel", ("1", "3", "5")),
        Decision("depth", ("1", "2")),
    )

    def build(self, architecture, *, in_channels, num_classes, normalization):
        import torch
        from torch import nn

        where, _, widths = os.environ.get("CRASH", "").partition(":")
        doomed = normalization == "training" and architecture[0] in widths.split(",")

        class Maybe(nn.Module):
            def forward(self, x):
                if doomed and torch.is_grad_enabled() == (where == "step") and in_actor():
                    os.abort()
                return x

        return small_network(architecture, Maybe(), in_channels=in_channels, num_classes=num_classes)
