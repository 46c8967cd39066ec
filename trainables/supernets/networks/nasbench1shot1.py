"""The supernets of NAS-Bench-1Shot1: an operation per node, and weights for its parents. Zela et al. 2020, sec. 3.2."""

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
from archray.trainables.supernets.networks import cells, supernet
from archray.trainables.supernets.networks.supernet import Group, MixtureWeights, Offer, ParentsGroup, Rows, Supernet
from archray.trainables.supernets.settings import SUPERNETS

GROUP = "operations"


class MixedSearchCell(nn.Module):
    """`SearchCell` of all architectures, (n, C_in, H, W) -> (n, (nodes + 1) C, H, W).

    Node i is sum_o w_o o(sum_p v_p x_p), with p over the previous nodes; x_0 is the cell's input, projected for each
    node. The output concatenates all v_p x_p. With partial channels, o processes 1/K of a node's sum, and the rest
    bypasses it (PC-DARTS, Xu et al. 2020, section 3.2); the parents' weights v are the edge normalization.

    Raises: InvalidInput if K does not divide C.
    """

    def __init__(self, nodes: range, in_channels: int, channels: int, partial: int) -> None:
        super().__init__()
        self.nodes, self.partial = nodes, partial
        width = cells.operation_width(channels, partial)
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
            # A node with one possible parent has no row of parents.
            values.append(self._node(node, _sum_of(parents, rows.get(f"parents_{node}")), rows[GROUP]))
        outputs = [self.projections[OUTPUT](x), *values]
        output_rows = rows[f"parents_{len(outputs)}"]
        parts = [weight * value for weight, value in zip(output_rows.dense[0], outputs, strict=True)]
        if (probe := output_rows.probe) is not None:
            parts = [probe(part, [_offer(column, outputs)]) for column, part in enumerate(parts)]
        return torch.cat(parts, dim=1)

    def _node(self, node: int, x: Tensor, rows: Rows) -> Tensor:
        index = node - 1
        chosen = range(len(OPERATIONS)) if rows.chosen is None else (rows.chosen[index],)
        block: nn.Module = self.operations[str(node)]
        assert isinstance(block, nn.ModuleDict)
        part = cells.operation_channels(x, self.partial)
        terms: list[cells.Term] = [
            (block[OPERATIONS[column]](part), rows.dense[index, column] if rows.probe is None else None)
            for column in chosen
            if column != supernet.LEFT_OUT
        ]
        mixed = cells.weighted_sum(terms) if terms else torch.zeros_like(part)
        if rows.probe is not None:
            offers = [(index, column, partial(block[name], part)) for column, name in enumerate(OPERATIONS)]
            mixed = rows.probe(mixed, offers)
        return mixed if self.partial == 1 else cells.shuffle(mixed, cells.bypass_channels(x, self.partial, stride=1))


def _sum_of(parents: list[Tensor], rows: Rows | None) -> Tensor:
    """Computes the weighted sum of a node's parents. rows: None for a node with one possible parent."""
    if rows is None:
        return cells.weighted_sum([(parent, None) for parent in parents])
    if rows.probe is None:
        return cells.weighted_sum(list(zip(parents, rows.dense[0].unbind(), strict=True)))
    terms = [(parent, None) for parent, weight in zip(parents, rows.dense[0].tolist(), strict=True) if weight]
    return rows.probe(cells.weighted_sum(terms), [_offer(column, parents) for column in range(len(parents))])


def _offer(column: int, values: list[Tensor]) -> Offer:
    return 0, column, lambda: values[column]


@SUPERNETS.register("nasbench1shot1-1")
@SUPERNETS.register("nasbench1shot1-2")
@SUPERNETS.register("nasbench1shot1-3")
class NASBench1Shot1Supernet(Supernet):
    """Groups: `operations` (nodes x 3), and `parents_2` ... for each node, and the output, with two or more before it.

    The output's number follows that of the last node. A forced path gives each of a node's parents the weight 1.

    Raises: InvalidInput if the space is not of NAS-Bench-1Shot1, or `partial_channels` does not divide the channels.
    """

    loose_ends = True
    space: NASBench1Shot1

    def __init__(self, space: Space, *, channels: int, partial_channels: int, none: bool, **size: Any) -> None:
        super().__init__(space, self.groups_of(space, partial_channels=partial_channels, none=none), partial_channels)
        # All modules except the cells equal the standalone network's modules.
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
        paths = {GROUP: supernet.path_weights(self.groups[0], self._chosen(architecture))}
        for group in self.groups[1:]:
            inputs = parents[len(group.operations) - 1]  # the position of a reader is the number of nodes it can read
            row = [float(int(parent) in inputs) for parent in group.operations]
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
        """Returns the operation of each node; None for loose ends."""
        live = self.space.live(architecture)
        operations, _ = self.space.graph(architecture)
        return [operation if node in live else None for node, operation in enumerate(operations, 1)]

    @classmethod
    def groups_of(cls, space: Space, *, partial_channels: int, none: bool) -> tuple[Group, ...]:
        if not isinstance(space, NASBench1Shot1):
            raise InvalidInput(
                f"expected a space of NAS-Bench-1Shot1, got {space.name!r}. Choose nasbench1shot1-1, -2 or -3"
            )
        groups = [Group(GROUP, len(space.nodes), OPERATIONS, tuple(f"operation_{node}" for node in space.nodes))]
        for reader in range(2, len(space.parents) + 1):  # node 1 can only read the input
            name = f"parents_{reader}"
            groups.append(ParentsGroup(name, 1, tuple(map(str, range(reader))), (name,)))
        return tuple(groups)

    @classmethod
    def discretize(cls, space: Space, rows: Mapping[str, Tensor]) -> Architecture:
        """Takes the strongest operation of each node, and the strongest parents of nodes and output (note G6)."""
        assert isinstance(space, NASBench1Shot1)
        operations = [OPERATIONS[column] for column in rows[GROUP].argmax(dim=1).tolist()]
        parents = [(0,)]
        for reader, count in enumerate(space.parents[1:], 2):
            order = rows[f"parents_{reader}"][0].argsort(descending=True, stable=True)
            parents.append(tuple(order[:count].tolist()))
        return space.architecture(operations, parents)
