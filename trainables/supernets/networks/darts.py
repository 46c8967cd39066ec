"""The supernet of DARTS, and of PC-DARTS with partial channels. Liu et al. 2019, sec. 2; Xu et al. 2020, sec. 3."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from archray.errors import InvalidInput
from archray.trainables.nets.darts_network import OPERATIONS as MODULES
from archray.trainables.nets.darts_network import Cell, darts_network, reductions
from archray.trainables.spaces.darts import DARTS, NODES, OPERATIONS
from archray.trainables.spaces.genotypes import CELLS, INPUTS, Genotype
from archray.trainables.spaces.space import Architecture, Space
from archray.trainables.supernets.networks import cells, supernet
from archray.trainables.supernets.networks.supernet import NONE, Group, MixtureWeights, Rows, Supernet
from archray.trainables.supernets.settings import SUPERNETS

# In the order of the original program's rows: all edges into node 2, then into node 3, and so on.
EDGES = tuple(cells.Edge(target, source) for target in NODES for source in range(target))
HALVING = tuple(edge._replace(stride=2 if edge.source < INPUTS else 1) for edge in EDGES)  # of a reduction cell


class MixedDARTSCell(nn.Module):
    """The cell of all architectures, with the preprocessing of a standalone cell.

    Args:
        pooled: Whether a reduction cell halves its inputs by max-pooling, so that all its operations have stride 1.
    """

    def __init__(
        self, cell: Cell, channels: int, reduction: bool, operations: Sequence[str], partial: int, *, pooled: bool
    ) -> None:
        super().__init__()
        self.reduction, self.pooled = reduction, pooled and reduction
        self.preprocess_0, self.preprocess_1 = cell.preprocess_0, cell.preprocess_1
        self.mixed = cells.MixedCell(
            HALVING if reduction and not pooled else EDGES,
            INPUTS,
            operations,
            lambda operation, width, stride: MODULES[operation](width, stride, "search"),
            channels,
            partial,
            cells.FusedEdges(operations),
        )

    def forward(self, before: Tensor, last: Tensor, rows: Rows, edge_weights: Tensor) -> Tensor:
        inputs = [self.preprocess_0(before), self.preprocess_1(last)]
        if self.pooled:
            inputs = [functional.max_pool2d(x, 2, ceil_mode=True) for x in inputs]
        return torch.cat(self.mixed(inputs, rows, edge_weights), dim=1)


@SUPERNETS.register("darts")
@SUPERNETS.register("darts-none")
class DARTSSupernet(Supernet):
    """Groups `normal` and `reduce`, 14 edges each; with partial channels also `normal_inputs_2` ... `reduce_inputs_5`.

    Args:
        channels: C, of the first cells; 16 in the original and in PC-DARTS.
        size: As in the standalone network; the original has 8 cells, so N is 2.

    Raises: InvalidInput if the space has no DARTS genotypes, or `partial_channels` does not divide the channels.
    """

    pooled: ClassVar[bool] = False  # see `MixedDARTSCell`
    space: DARTS

    def __init__(self, space: Space, *, channels: int, partial_channels: int, none: bool, **size: Any) -> None:
        super().__init__(space, self.groups_of(space, partial_channels=partial_channels, none=none), partial_channels)
        # All modules except the edges equal the standalone network's modules.
        network = darts_network(space, next(space.enumerate()), channels=channels, normalization="search", **size)
        self.stem, self.classifier = network.stem, network.classifier
        self.cells = nn.ModuleList()
        for number, cell in enumerate(network.cells):
            assert isinstance(cell, Cell)
            reduction = number in reductions(len(network.cells))
            channels *= 2 if reduction else 1
            operations = self.groups[0].operations
            self.cells.append(
                MixedDARTSCell(cell, channels, reduction, operations, partial_channels, pooled=self.pooled)
            )

    def logits(self, images: Tensor, rows: Mapping[str, Rows]) -> Tensor:
        dense = {name: weights.dense for name, weights in rows.items()}
        normal, reduce = ((rows[cell], cells.input_weights(EDGES, dense, f"{cell}_")) for cell in CELLS)
        before, last = self.stem(images)
        for cell in self.cells:
            before, last = last, cell(before, last, *(reduce if cell.reduction else normal))
        return self.classifier(last.mean(dim=(2, 3)))

    def path(self, architecture: Architecture) -> dict[str, MixtureWeights]:
        paths = {}
        for cell, group, chosen in zip(CELLS, self.groups, self._chosen(architecture), strict=False):
            paths[cell] = supernet.path_weights(group, chosen)
            if self.partial_channels > 1:
                paths |= cells.input_path(EDGES, [operation is not None for operation in chosen], f"{cell}_")
        return paths

    def modules_of(self, architecture: Architecture) -> dict[str, str]:
        chosen = self._chosen(architecture)
        return {
            f"cells.{number}.edges.{edge.key}.": f"cells.{number}.mixed.edges.{edge.key}.{operation}."
            for number, cell in enumerate(self.cells)
            if isinstance(cell, MixedDARTSCell)
            for edge, operation in zip(EDGES, chosen[cell.reduction], strict=True)
            if operation is not None
        }

    def _chosen(self, architecture: Architecture) -> list[list[str | None]]:
        """Returns the operation of each edge per cell type; None for `none` and for edges that are not kept."""
        chosen = []
        for edges in self.space.genotype(architecture):
            kept = {(NODES[at // 2], source): operation for at, (operation, source) in enumerate(edges)}
            operations = [kept.get((edge.target, edge.source), NONE) for edge in EDGES]
            chosen.append([None if operation == NONE else operation for operation in operations])
        return chosen

    @classmethod
    def groups_of(cls, space: Space, *, partial_channels: int, none: bool) -> tuple[Group, ...]:
        if not isinstance(space, DARTS):
            raise InvalidInput(f"expected a space of DARTS genotypes, got {space.name!r}. Choose darts")
        operations = OPERATIONS if none else supernet.without_none(OPERATIONS)
        groups = [Group(cell, len(EDGES), operations, tuple(f"{cell}_{edge.key}" for edge in EDGES)) for cell in CELLS]
        if partial_channels > 1:
            for cell in CELLS:
                groups += cells.input_groups(EDGES, f"{cell}_")
        return tuple(groups)

    @classmethod
    def discretize(cls, space: Space, rows: Mapping[str, Tensor]) -> Architecture:
        """Keeps two edges per node, those with the strongest operations other than `none` (times the edge's weight)."""
        assert isinstance(space, DARTS)
        genotype = []
        for cell in CELLS:
            names = supernet.columns_of(OPERATIONS, rows[cell])
            allowed = [column for column, name in enumerate(names) if name != NONE]
            weights, columns = rows[cell][:, allowed].max(dim=1)  # (14,)
            scores = (weights * cells.input_weights(EDGES, rows, f"{cell}_")).tolist()
            kept: list[tuple[str, int]] = []
            for target in NODES:
                into = [number for number, edge in enumerate(EDGES) if edge.target == target]
                two = sorted(into, key=lambda number: -scores[number])[:2]
                kept += [(names[allowed[int(columns[number])]], EDGES[number].source) for number in sorted(two)]
            genotype.append(tuple(kept))
        return space.architecture(Genotype(*genotype))
