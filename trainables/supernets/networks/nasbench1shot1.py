"""The supernets of NAS-Bench-1Shot1: an operation per node, and weights of its parents. Zela et al. 2020, sec. 3.2."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.nets.nasbench1shot1_network import OPERATIONS as MODULES
from archray.trainables.nets.nasbench1shot1_network import SearchCell, node_conv, search_network
from archray.trainables.spaces.nasbench1shot1 import OPERATIONS, OUTPUT, NASBench1Shot1
from archray.trainables.spaces.space import Architecture, Space
from archray.trainables.supernets.networks.cells import (
    Term,
    bypass_channels,
    operation_channels,
    operation_width,
    shuffle,
    weighted_sum,
)
from archray.trainables.supernets.networks.supernet import (
    LEFT_OUT,
    Group,
    MixtureWeights,
    Offer,
    ParentsGroup,
    Rows,
    Supernet,
    path_weights,
)
from archray.trainables.supernets.settings import SUPERNETS

GROUP = "operations"


class MixedSearchCell(nn.Module):
    """`SearchCell` of all architectures, (n, C_in, H, W) -> (n, (nodes + 1) C, H, W).

    Node i is sum_o w_o o(sum_p v_p x_p), p over the nodes before it; x_0 is the cell's input, projected for each node.
    The output concatenates all v_p x_p. Where channels are partial, o sees 1/K of what a node sums, and the rest passes
    by (PC-DARTS, Xu et al. 2020, section 3.2); the parents' weights v are the edge normalisation.

    Raises: InvalidInput if K does not divide C.
    """

    def __init__(self, nodes: range, in_channels: int, channels: int, partial: int) -> None:
        super().__init__()
        self.nodes, self.partial = nodes, partial
        width = operation_width(channels, partial)
        self.projections = nn.ModuleDict(
            {name: node_conv(in_channels, channels, 1, "search") for name in (*map(str, nodes), OUTPUT)}
        )
        self.operations = nn.ModuleDict(
            {str(node): nn.ModuleDict({name: MODULES[name](width, "search") for name in OPERATIONS}) for node in nodes}
        )

    def forward(self, x: Tensor, rows: Mapping[str, Rows]) -> Tensor:
        values: list[Tensor] = []  # of nodes 1, 2, ...
        for node in self.nodes:
            parents = [self.projections[str(node)](x), *values]
            of_parents = rows.get(f"parents_{node}")  # none for the only possible parent
            values.append(self._node(node, _sum_of(parents, of_parents), rows[GROUP]))
        outputs = [self.projections[OUTPUT](x), *values]
        of_outputs = rows[f"parents_{len(outputs)}"]
        taken = [weight * value for weight, value in zip(of_outputs.dense[0], outputs, strict=True)]
        if (probe := of_outputs.probe) is not None:
            taken = [probe(part, [_offer(column, outputs)]) for column, part in enumerate(taken)]
        return torch.cat(taken, dim=1)

    def _node(self, node: int, x: Tensor, rows: Rows) -> Tensor:
        index = node - 1
        chosen = range(len(OPERATIONS)) if rows.chosen is None else (rows.chosen[index],)
        block: nn.Module = self.operations[str(node)]
        assert isinstance(block, nn.ModuleDict)
        part = operation_channels(x, self.partial)
        terms: list[Term] = [
            (block[OPERATIONS[column]](part), rows.dense[index, column] if rows.probe is None else None)
            for column in chosen
            if column != LEFT_OUT
        ]
        mixed = weighted_sum(terms) if terms else torch.zeros_like(part)
        if rows.probe is not None:
            mixed = rows.probe(
                mixed, [(index, column, partial(block[name], part)) for column, name in enumerate(OPERATIONS)]
            )
        return mixed if self.partial == 1 else shuffle(mixed, bypass_channels(x, self.partial, stride=1))


def _sum_of(parents: list[Tensor], rows: Rows | None) -> Tensor:
    """What a node reads: the sum of its parents, weighted. rows: None for the only possible parent."""
    if rows is None:
        return weighted_sum([(parent, None) for parent in parents])
    if rows.probe is None:
        return weighted_sum(list(zip(parents, rows.dense[0].unbind(), strict=True)))
    taken = [(parent, None) for parent, weight in zip(parents, rows.dense[0].tolist(), strict=True) if weight]
    return rows.probe(weighted_sum(taken), [_offer(column, parents) for column in range(len(parents))])


def _offer(column: int, values: list[Tensor]) -> Offer:
    return 0, column, lambda: values[column]


@SUPERNETS.register("nasbench1shot1-1")
@SUPERNETS.register("nasbench1shot1-2")
@SUPERNETS.register("nasbench1shot1-3")
class NASBench1Shot1Supernet(Supernet):
    """Groups `operations` (nodes x 3), and `parents_2` ... for each node, and the output, of two or more before it.

    The output is numbered after the last node. A forced path gives each of a node's parents the weight 1.

    Raises: InvalidInput if the space is not of NAS-Bench-1Shot1, or `partial_channels` does not divide the channels.
    """

    loose_ends = True
    space: NASBench1Shot1

    def __init__(self, space: Space, *, channels: int, partial_channels: int, none: bool, **size: Any) -> None:
        super().__init__(space, self.groups_of(space, partial_channels=partial_channels, none=none), partial_channels)
        # All but the cells is the standalone network's own.
        network = search_network(space, next(space.enumerate()), channels=channels, **size)
        self.stem, self.head, self.classifier = network.stem, network.head, network.classifier
        self.stacks = nn.ModuleList()
        width = channels
        for layer in network.stacks:
            if isinstance(layer, SearchCell):
                self.stacks.append(MixedSearchCell(self.space.nodes, width, layer.channels, partial_channels))
                width = (len(self.space.nodes) + 1) * layer.channels
            else:
                self.stacks.append(layer)

    def logits(self, images: Tensor, rows: Mapping[str, Rows]) -> Tensor:
        x = self.stem(images)
        for layer in self.stacks:
            x = layer(x, rows) if isinstance(layer, MixedSearchCell) else layer(x)
        return self.classifier(self.head(x).mean(dim=(2, 3)))

    def path(self, architecture: Architecture) -> dict[str, MixtureWeights]:
        _, parents = self.space.graph(architecture)
        paths = {GROUP: path_weights(self.groups[0], self._chosen(architecture))}
        for group in self.groups[1:]:
            of_reader = parents[len(group.operations) - 1]  # a reader comes after as many nodes as it can read
            row = [float(int(parent) in of_reader) for parent in group.operations]
            paths[group.name] = MixtureWeights(torch.tensor([row]))
        return paths

    def modules_of(self, architecture: Architecture) -> dict[str, str]:
        return {
            f"stacks.{number}.operations.{node}.": f"stacks.{number}.operations.{node}.{operation}."
            for number, layer in enumerate(self.stacks)
            if isinstance(layer, MixedSearchCell)
            for node, operation in enumerate(self._chosen(architecture), 1)
            if operation is not None
        }

    def _chosen(self, architecture: Architecture) -> list[str | None]:
        """The operation of each node; None for loose ends."""
        live = self.space.live(architecture)
        operations, _ = self.space.graph(architecture)
        return [operation if node in live else None for node, operation in enumerate(operations, 1)]

    @classmethod
    def groups_of(cls, space: Space, *, partial_channels: int, none: bool) -> tuple[Group, ...]:
        if not isinstance(space, NASBench1Shot1):
            raise InvalidInput(f"expected a space of NAS-Bench-1Shot1, got {space.name!r}")
        readers = range(2, len(space.parents) + 1)  # node 1 has the input alone to read
        return (
            Group(GROUP, len(space.nodes), OPERATIONS, tuple(f"operation_{node}" for node in space.nodes)),
            *(
                ParentsGroup(f"parents_{reader}", 1, tuple(map(str, range(reader))), (f"parents_{reader}",))
                for reader in readers
            ),
        )

    @classmethod
    def discretise(cls, space: Space, rows: Mapping[str, Tensor]) -> Architecture:
        """The strongest operation of each node, and of each node and the output as many parents as it has (note G6)."""
        assert isinstance(space, NASBench1Shot1)
        operations = [OPERATIONS[column] for column in rows[GROUP].argmax(dim=1).tolist()]
        parents = [(0,)]
        for reader, count in enumerate(space.parents[1:], 2):
            order = rows[f"parents_{reader}"][0].argsort(descending=True, stable=True)
            parents.append(tuple(order[:count].tolist()))
        return space.architecture(operations, parents)
