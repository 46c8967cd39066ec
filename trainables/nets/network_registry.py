"""The standalone networks, by the name of their space."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from archray.registry import Registry

# builder(space, architecture, *, channels, cells, in_channels, num_classes, normalisation), and `stem` and `auxiliary`
# where there is a choice
NETWORKS: Registry[Callable[..., nn.Module]] = Registry("network")
