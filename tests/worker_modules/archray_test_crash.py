"""Networks that abort their process at `step` or `build` (CRASH), for the widths in CRASH."""

import os

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
        width, kernel = int(architecture[0]), int(architecture[1])
        doomed = normalization == "training" and architecture[0] in widths.split(",")

        class Maybe(nn.Module):
            def forward(self, x):
                if doomed and torch.is_grad_enabled() == (where == "step"):
                    os.abort()
                return x

        return nn.Sequential(
            nn.Conv2d(in_channels, width, kernel, padding=kernel // 2),
            nn.ReLU(),
            Maybe(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, num_classes),
        )
