"""The supernet of DARTS that NASI searches: max-pooling halves the maps, not the operations. Shu 2022, 6.4.2."""

from __future__ import annotations

from typing import ClassVar

from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.darts import DARTS
from archray.trainables.supernets.networks import Supernet
from archray.trainables.supernets.networks.darts_supernet import DARTSSupernet


class PooledDARTSSupernet(DARTSSupernet):
    """A `DARTSSupernet` whose operations all have stride 1; max-pooling halves the inputs of a reduction cell."""

    pooled: ClassVar[bool] = True


def form_of(space: Space | str) -> type[Supernet] | None:
    """The class of the supernet that NASI searches in a space; None for the one that is registered."""
    return PooledDARTSSupernet if isinstance(get_space(space), DARTS) else None
