"""A space of four networks."""

from torch import nn

from archray import Choice, Width


def network(in_channels: int, num_classes: int) -> nn.Module:
    width = Width([4, 8], name="width")
    kernels = {"conv1": nn.Conv2d(width, width, 1), "conv3": nn.Conv2d(width, width, 3, padding=1)}
    layers = [nn.Conv2d(in_channels, width, 3, padding=1), Choice(kernels, name="block"), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))
