"""The supernet of NAS-Bench-201, as its authors use it for DARTS and GDAS. Dong and Yang 2020, section 3.2.

Its search form is the `scoring` form of the standalone network: normalization by the batch's statistics everywhere,
without affine parameters on the edges (notes G3 and P5), in evaluation mode too.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.nets.nasbench201_network import OPERATIONS as MODULES
from archray.trainables.nets.nasbench201_network import Cell, nasbench201_network
from archray.trainables.spaces.nasbench201 import EDGES, OPERATIONS, NASBench201
from archray.trainables.spaces.space import Architecture, Space
from archray.trainables.supernets.networks import cells, supernet
from archray.trainables.supernets.networks.supernet import NONE, Group, MixtureWeights, Rows, Supernet
from archray.trainables.supernets.settings import SUPERNETS

GROUP = "edges"
GRAPH = tuple(cells.Edge(target, source) for target, source in EDGES)


def _operation(operation: str, channels: int, stride: int) -> nn.Module:
    return MODULES[operation](channels, "scoring")


@SUPERNETS.register("nasbench201")
class NASBench201Supernet(Supernet):
    """One group, `edges`, for the 6 edges of all cells; with partial channels also `inputs_1` to `inputs_3`.

    Args:
        size: As in the standalone network; 16 channels and 5 cells in the original.

    Raises: InvalidInput if the space is not NAS-Bench-201, or `partial_channels` does not divide the channels.
    """

    def __init__(self, space: Space, *, channels: int, partial_channels: int, none: bool, **size: Any) -> None:
        super().__init__(space, self.groups_of(space, partial_channels=partial_channels, none=none), partial_channels)
        # All modules except the cells equal the standalone network's modules.
        first = next(space.enumerate())
        network = nasbench201_network(space, first, channels=channels, normalization="scoring", **size)
        self.stem, self.head, self.classifier = network.stem, network.head, network.classifier
        self.stages = nn.ModuleList()
        for layer in network.stages:
            if isinstance(layer, Cell):
                operations = self.groups[0].operations
                self.stages.append(cells.MixedCell(GRAPH, 1, operations, _operation, channels, partial_channels))
            else:
                channels *= 2
                self.stages.append(layer)

    def logits(self, images: Tensor, rows: Mapping[str, Rows]) -> Tensor:
        edge_weights = cells.input_weights(GRAPH, {name: weights.dense for name, weights in rows.items()})
        x = self.stem(images)
        for layer in self.stages:
            x = layer([x], rows[GROUP], edge_weights)[-1] if isinstance(layer, cells.MixedCell) else layer(x)
        return self.classifier(self.head(x))

    def path(self, architecture: Architecture) -> dict[str, MixtureWeights]:
        chosen = self._chosen(architecture)
        paths = {GROUP: supernet.path_weights(self.groups[0], chosen)}
        if self.partial_channels > 1:
            paths |= cells.input_path(GRAPH, [operation is not None for operation in chosen])
        return paths

    def modules_of(self, architecture: Architecture) -> dict[str, str]:
        return {
            f"stages.{number}.edges.{edge.key}.": f"stages.{number}.edges.{edge.key}.{operation}."
            for number, layer in enumerate(self.stages)
            if isinstance(layer, cells.MixedCell)
            for edge, operation in zip(GRAPH, self._chosen(architecture), strict=True)
            if operation is not None
        }

    def _chosen(self, architecture: Architecture) -> list[str | None]:
        self.space.check(architecture)
        return [None if operation == NONE else operation for operation in architecture]

    @classmethod
    def groups_of(cls, space: Space, *, partial_channels: int, none: bool) -> tuple[Group, ...]:
        if not isinstance(space, NASBench201):
            raise InvalidInput(f"expected the space nasbench201, got {space.name!r}")
        operations = OPERATIONS if none else supernet.without_none(OPERATIONS)
        group = Group(GROUP, len(GRAPH), operations, tuple(edge.key for edge in GRAPH))
        return (group, *cells.input_groups(GRAPH)) if partial_channels > 1 else (group,)

    @classmethod
    def discretize(cls, space: Space, rows: Mapping[str, Tensor]) -> Architecture:
        """Takes the strongest operation of each edge, which may be `none`."""
        names = supernet.columns_of(OPERATIONS, rows[GROUP])
        return tuple(names[column] for column in rows[GROUP].argmax(dim=1).tolist())
