"""The edges of a supernet's cell: all operations of every edge, mixed, or only a chosen one. Liu et al. 2019, Eq. 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from archray.trainables.supernets.networks.group import LEFT_OUT, NONE, Offer, Rows
from archray.trainables.supernets.networks.partial_channels import Edge, channels_seen, passing, seen, shuffled
from archray.trainables.supernets.networks.weighted_sum import Term, weighted_sum

# x (n, C/K, H, W), the modules of the edges that leave it, their weights (edges, operations), stride -> terms per edge
Fused = Callable[[Tensor, Sequence[nn.ModuleDict], Tensor, int], list[list[Term]]]


class MixedCell(nn.Module):
    """The nodes of a cell, of C channels each, from its input nodes.

    With partial channels an edge shuffles what its operations give into what passed by. A node sums its edges; here it
    is shuffled once, after the sum, which is the same.

    Args:
        edges: in the order of the rows of weights. Nodes are numbered in the order of computation, inputs first, and
            edges that leave one node have one stride.
        inputs: how many nodes are inputs.
        make: (operation, channels, stride) -> its module, (n, C', H, W) -> (n, C', H/stride, W/stride).
        channels, partial: C and K; K is 1 for all channels.
        fused: a faster way to evaluate all edges that leave a node, in train mode on a CPU; same outputs.

    Raises: InvalidInput if K does not divide C.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        inputs: int,
        operations: Sequence[str],
        make: Callable[[str, int, int], nn.Module],
        channels: int,
        partial: int = 1,
        fused: Fused | None = None,
    ) -> None:
        super().__init__()
        width = channels_seen(channels, partial)
        self.graph, self.inputs, self.operations = tuple(edges), inputs, tuple(operations)
        self.partial, self.fused = partial, fused
        self.edges = nn.ModuleDict(
            {
                edge.key: nn.ModuleDict({name: make(name, width, edge.stride) for name in operations if name != NONE})
                for edge in edges
            }
        )

    def forward(self, inputs: Sequence[Tensor], rows: Rows, edge_weights: Tensor) -> list[Tensor]:
        """The nodes beyond the inputs, (n, C, H/s, W/s).

        inputs: (n, C, H, W) each. rows: one per edge; a probe needs whole channels. edge_weights: (edges,), which
        multiply them; ones but for partial channels.
        """
        operations = rows.dense if self.partial == 1 else rows.dense * edge_weights[:, None]
        nodes = list(inputs)
        arriving: dict[int, list[Term]] = {edge.target: [] for edge in self.graph}
        bypass: dict[int, list[Term]] = {target: [] for target in arriving}
        offers: dict[int, list[Offer]] = {target: [] for target in arriving}
        for source in range(self.inputs + len(arriving)):
            if source >= self.inputs:
                node = self._node(source, nodes, arriving[source], bypass[source])
                nodes.append(node if rows.probe is None else rows.probe(node, offers[source]))
            leaving = [number for number, edge in enumerate(self.graph) if edge.source == source]
            if not leaving:
                continue
            terms = self._terms(seen(nodes[source], self.partial), leaving, operations, rows)
            for number, of_edge in zip(leaving, terms, strict=True):
                arriving[self.graph[number].target] += of_edge
                if rows.probe is not None:
                    offers[self.graph[number].target] += self._offers(nodes[source], number)
            if self.partial > 1:
                rest = passing(nodes[source], self.partial, self.graph[leaving[0]].stride)
                for number in leaving:
                    bypass[self.graph[number].target].append((rest, edge_weights[number]))
        return nodes[self.inputs :]

    def _terms(self, x: Tensor, leaving: Sequence[int], weights: Tensor, rows: Rows) -> list[list[Term]]:
        """What each of the edges `leaving` a node makes of it: terms of the edge's target."""
        chosen = rows.chosen
        modules: list[Any] = [self.edges[self.graph[number].key] for number in leaving]
        training_on_cpu = self.training and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        if chosen is None and self.fused is not None and training_on_cpu:
            return self.fused(x, modules, weights[leaving], self.graph[leaving[0]].stride)
        every = range(len(self.operations))
        columns = [every if chosen is None else (chosen[number],) for number in leaving]
        return [
            [
                (of_edge[self.operations[column]](x), weights[number, column] if rows.probe is None else None)
                for column in of_row
                if column != LEFT_OUT and self.operations[column] != NONE
            ]
            for number, of_edge, of_row in zip(leaving, modules, columns, strict=True)
        ]

    def _offers(self, x: Tensor, number: int) -> list[Offer]:
        """What each operation of an edge would make of x. `none` makes nothing."""
        of_edge: Any = self.edges[self.graph[number].key]
        names = enumerate(self.operations)
        return [(number, column, partial(of_edge[name], x)) for column, name in names if name != NONE]

    def _node(self, target: int, nodes: Sequence[Tensor], arriving: list[Term], bypass: list[Term]) -> Tensor:
        if arriving:
            node = weighted_sum(arriving)
        else:  # `none` on every edge
            edge = next(edge for edge in self.graph if edge.target == target)
            x = seen(nodes[edge.source], self.partial)
            node = torch.zeros_like(x[..., :: edge.stride, :: edge.stride])
        return node if self.partial == 1 else shuffled(node, weighted_sum(bypass))
