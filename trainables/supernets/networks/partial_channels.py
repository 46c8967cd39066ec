"""Partial channels: operations see 1/K of a node's channels, and edges have weights. PC-DARTS, Xu et al. 2020, sec. 3.

The channels that the operations do not see pass by, and the two parts are shuffled together. As the operations of an
edge then weigh less, each node also has weights of its inputs, which multiply those of the operations (section 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.supernets.networks.group import EdgesGroup, Group, MixtureWeights


class Edge(NamedTuple):
    """An edge of a cell's graph; nodes are numbered, inputs first."""

    target: int
    source: int
    stride: int = 1

    @property
    def key(self) -> str:
        """As standalone cells name it: `4<-1`."""
        return f"{self.target}<-{self.source}"


def channels_seen(channels: int, partial: int) -> int:
    """C/K, how many of C channels the operations see. Raises: InvalidInput if K does not divide C."""
    if channels % partial:
        raise InvalidInput(
            f"expected partial_channels to divide the cells' {count(channels, 'channel')}, "
            f"got {partial}; choose a divisor"
        )
    return channels // partial


def seen(node: Tensor, partial: int) -> Tensor:
    """(n, C, H, W) -> (n, C/K, H, W), the channels that operations see."""
    return node if partial == 1 else _channels_last(node[:, : node.shape[1] // partial])


def passing(node: Tensor, partial: int, stride: int) -> Tensor:
    """(n, C, H, W) -> (n, C - C/K, H/stride, W/stride), the channels that pass by."""
    rest = _channels_last(node[:, node.shape[1] // partial :])
    return rest if stride == 1 else functional.max_pool2d(rest, stride, stride, ceil_mode=True)


def shuffled(mixed: Tensor, rest: Tensor) -> Tensor:
    """(n, C/K, H, W) and (n, C - C/K, H, W) -> (n, C, H, W): channel k C/K + c of the two goes to c K + k."""
    parts = [part.permute(0, 2, 3, 1) for part in (mixed, *rest.split(mixed.shape[1], dim=1))]
    return torch.stack(parts, dim=-1).flatten(-2).permute(0, 3, 1, 2)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def input_groups(edges: Sequence[Edge], prefix: str = "") -> list[Group]:
    """A group of one row for each node with edges into it, `inputs_2`: a column for each source.

    prefix: of the names of groups, and of the space's decisions on the edges.
    """
    return [
        EdgesGroup(
            f"{prefix}inputs_{target}",
            1,
            tuple(str(edge.source) for edge in into),
            tuple(f"{prefix}{edge.key}" for edge in into),
        )
        for target, into in _by_target(edges).items()
    ]


def input_weights(edges: Sequence[Edge], rows: Mapping[str, Tensor], prefix: str = "") -> Tensor:
    """(edges,): the weight of each edge, from the rows of `input_groups`; ones where there are none."""
    names = [f"{prefix}inputs_{target}" for target in _by_target(edges)]
    weights = [rows[name][0] for name in names if name in rows]
    return torch.cat(weights) if weights else torch.ones(len(edges))


def input_path(edges: Sequence[Edge], kept: Sequence[bool], prefix: str = "") -> dict[str, MixtureWeights]:
    """The weights of `input_groups` that leave edges out, and the others as they are."""
    mask = dict(zip(edges, kept, strict=True))
    return {
        f"{prefix}inputs_{target}": MixtureWeights(torch.tensor([[float(mask[edge]) for edge in into]]))
        for target, into in _by_target(edges).items()
    }


def _by_target(edges: Sequence[Edge]) -> dict[int, list[Edge]]:
    targets: dict[int, list[Edge]] = {}
    for edge in edges:
        targets.setdefault(edge.target, []).append(edge)
    return targets
