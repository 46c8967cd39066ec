"""The networks of NAS-Bench-1Shot1: NAS-Bench-101's networks for evaluation, and the search form of its supernets.

Ying et al. 2019, section 2; Zela et al. 2020, section 3.2. Both have a 3 x 3 stem, three stacks of cells, 2 x 2
max-pooling and twice the channels between stacks, mean pooling and a linear layer. NAS-Bench-101 has 128 channels and 3
cells per stack.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

import torch
from torch import nn

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.nets.registry import NETWORKS, Form, Normalization, ReLUConvBN, SpaceNetwork, batch_norm
from archray.trainables.spaces.nasbench1shot1 import OUTPUT, NASBench1Shot1
from archray.trainables.spaces.space import Architecture, Space

STACKS = 3


class ConvBNReLU(nn.Sequential):
    """Convolution of stride 1 without bias, normalization, ReLU: (n, C_in, H, W) -> (n, C_out, H, W)."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, affine: bool, running: bool) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel, padding=kernel // 2, bias=False),
            batch_norm(out_channels, affine=affine, running=running),
            nn.ReLU(),
        )


def node_conv(in_channels: int, out_channels: int, kernel: int, form: Form) -> ConvBNReLU:
    """A convolution of a node, or a 1 x 1 convolution from the cell's input to a node's width.

    NAS-Bench-101 updates running statistics with momentum 0.003 in 108 epochs of training; here it is torch's 0.1.
    """
    return ConvBNReLU(in_channels, out_channels, kernel, affine=form == "training", running=form == "training")


# channels, form -> the module of a node, (n, C, H, W) -> (n, C, H, W). Nothing follows the pool in any form.
OPERATIONS: dict[str, Callable[[int, Form], nn.Module]] = {
    "conv1x1-bn-relu": lambda channels, form: node_conv(channels, channels, 1, form),
    "conv3x3-bn-relu": lambda channels, form: node_conv(channels, channels, 3, form),
    "maxpool3x3": lambda channels, form: nn.MaxPool2d(3, stride=1, padding=1),
}


def vertex_channels(matrix: Sequence[Sequence[int]], channels: int) -> list[int]:
    """Computes the channels of each vertex (V,) of a cell with `channels` outputs; 0 for the input. Ying et al. 2019.

    The output's parents share its channels; the first ones take one more if they do not divide. Any other vertex
    has as many as the widest vertex that reads it.

    Args:
        matrix: (V, V) without loose ends.

    Raises: InvalidInput if there are fewer channels than parents of the output.
    """
    last = len(matrix) - 1
    concatenated = [vertex for vertex in range(1, last) if matrix[vertex][last]]
    if channels < len(concatenated):
        raise InvalidInput(
            f"expected at least one channel per branch of a cell, {count(len(concatenated), 'channel')}, got {channels}"
        )
    share, more = divmod(channels, len(concatenated))
    widths = [0] * last + [channels]
    for number, vertex in enumerate(concatenated):
        widths[vertex] = share + (number < more)
    for vertex in range(last - 1, 0, -1):
        if vertex not in concatenated:
            widths[vertex] = max(widths[fed] for fed in range(vertex + 1, last) if matrix[vertex][fed])
    return widths


class Cell(nn.Module):
    """A cell of NAS-Bench-101, (n, C_in, H, W) -> (n, C_out, H, W).

    A vertex applies its operation to the sum of its parents. If the cell's input is a parent, it is projected to the
    vertex's width; if a parent is a channel wider, its last channel is left out. The output concatenates its parents
    and adds the projected input if that is a parent.

    Args:
        matrix: (V, V) upper triangular without loose ends, 1 if the column's vertex reads the row's.
        operations: (V,) `input`, the operations, `output`.
    """

    def __init__(
        self,
        matrix: Sequence[Sequence[int]],
        operations: Sequence[str],
        in_channels: int,
        out_channels: int,
        form: Form,
    ) -> None:
        super().__init__()
        self.last = len(matrix) - 1
        self.widths = vertex_channels(matrix, out_channels)
        self.parents = [[v for v in range(1, fed) if matrix[v][fed]] for fed in range(self.last + 1)]
        self.projections = nn.ModuleDict(
            {str(v): node_conv(in_channels, self.widths[v], 1, form) for v in range(1, self.last + 1) if matrix[0][v]}
        )
        self.operations = nn.ModuleDict(
            {str(v): OPERATIONS[operations[v]](self.widths[v], form) for v in range(1, self.last)}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values: dict[int, torch.Tensor] = {}
        for vertex in range(1, self.last):
            terms = [values[parent][:, : self.widths[vertex]] for parent in self.parents[vertex]]
            values[vertex] = self.operations[str(vertex)](reduce(add, self._projected(x, vertex) + terms))
        out = torch.cat([values[parent] for parent in self.parents[self.last]], dim=1)
        return reduce(add, [out, *self._projected(x, self.last)])

    def _projected(self, x: torch.Tensor, vertex: int) -> list[torch.Tensor]:
        return [self.projections[str(vertex)](x)] if str(vertex) in self.projections else []


class SearchCell(nn.Module):
    """A cell of a supernet with one forced architecture, (n, C_in, H, W) -> (n, (nodes + 1) C, H, W).

    Every node has C channels. A node applies its operation to the sum of its parents; the cell's input is projected for
    each node that reads it. The output concatenates the projected input and all nodes, with zeros for nodes that are
    not the output's parents. Loose ends are not built.

    Args:
        operations: (nodes,).
        parents: (nodes + 1,) of the nodes and of the output.
        live: Nodes without loose ends.
    """

    def __init__(
        self,
        operations: Sequence[str],
        parents: Sequence[Sequence[int]],
        live: Sequence[int],
        in_channels: int,
        channels: int,
    ) -> None:
        super().__init__()
        self.parents, self.live, self.channels = parents, live, channels
        readers = {**{str(node): self.parents[node - 1] for node in self.live}, OUTPUT: self.parents[-1]}
        self.projections = nn.ModuleDict(
            {name: node_conv(in_channels, channels, 1, "search") for name, read in readers.items() if 0 in read}
        )
        self.operations = nn.ModuleDict(
            {str(node): OPERATIONS[operations[node - 1]](channels, "search") for node in self.live}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values: dict[int, torch.Tensor] = {}
        for node in self.live:
            parents = self.parents[node - 1]
            projected = [self.projections[str(node)](x)] if 0 in parents else []
            values[node] = self.operations[str(node)](reduce(add, projected + [values[p] for p in parents if p > 0]))
        zeros = x.new_zeros(x.shape[0], self.channels, *x.shape[2:])
        first = self.projections[OUTPUT](x) if OUTPUT in self.projections else zeros
        nodes = range(1, len(self.parents))
        return torch.cat([first, *(values[node] if node in self.parents[-1] else zeros for node in nodes)], dim=1)


def stacked(
    cell: Callable[[int, int], nn.Module], channels: int, cells: int, growth: int = 1
) -> tuple[nn.Sequential, int]:
    """Builds stacks of cells with pooling in between, which rounds odd sizes up. Returns them and the last width.

    Args:
        cell: Function of the input channels and the stack's width that returns a cell with `growth` times that width.
    """
    layers: list[nn.Module] = []
    in_channels = width = channels
    for stack in range(STACKS):
        if stack > 0:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
            width *= 2
        for _ in range(cells):
            layers.append(cell(in_channels, width))
            in_channels = growth * width
    return nn.Sequential(*layers), width


class NASBench1Shot1Network(nn.Module):
    """NAS-Bench-101's network: images (n, in_channels, H, W) to logits (n, num_classes).

    Args:
        matrix, operations: As in `Cell`.
        channels: Channels of the stem and of the first stack's cells.
        cells: Number of cells per stack.
        normalization: `training` or `scoring`.
    """

    def __init__(
        self,
        matrix: Sequence[Sequence[int]],
        operations: Sequence[str],
        *,
        channels: int,
        cells: int,
        in_channels: int,
        num_classes: int,
        normalization: Normalization,
    ) -> None:
        super().__init__()
        self.stem = ConvBNReLU(in_channels, channels, 3, affine=True, running=normalization == "training")
        self.stacks, width = stacked(partial(Cell, matrix, operations, form=normalization), channels, cells)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.stacks(self.stem(images)).mean(dim=(2, 3))  # (n, 4C)
        logits: torch.Tensor = self.classifier(features)  # (n, K)
        return logits


class SearchNetwork(nn.Module):
    """A supernet with one forced architecture: images (n, in_channels, H, W) to logits (n, num_classes).

    Args:
        operations, parents, live: As in `SearchCell`. A 1 x 1 convolution follows the last cell.
        channels: Channels of the stem and of a node in the first stack.
        cells: Number of cells per stack.
    """

    def __init__(
        self,
        operations: Sequence[str],
        parents: Sequence[Sequence[int]],
        live: Sequence[int],
        *,
        channels: int,
        cells: int,
        in_channels: int,
        num_classes: int,
    ) -> None:
        super().__init__()
        self.stem = ConvBNReLU(in_channels, channels, 3, affine=True, running=False)
        growth = len(parents)
        self.stacks, width = stacked(partial(SearchCell, operations, parents, live), channels, cells, growth)
        self.head = ReLUConvBN(growth * width, width, 1, affine=False, running=False)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.head(self.stacks(self.stem(images))).mean(dim=(2, 3))  # (n, 4C)
        logits: torch.Tensor = self.classifier(features)  # (n, K)
        return logits


def _checked(space: Space) -> NASBench1Shot1:
    if not isinstance(space, NASBench1Shot1):
        raise InvalidInput(
            f"expected a space of NAS-Bench-1Shot1, got {space.name!r}. Choose nasbench1shot1-1, -2 or -3"
        )
    return space


def _arguments(space: Space, architecture: Architecture) -> dict[str, Any]:
    return _checked(space).to_nasbench101(architecture, pad=False)._asdict()


def _search_arguments(space: Space, architecture: Architecture) -> dict[str, Any]:
    operations, parents = _checked(space).graph(architecture)
    return {"operations": operations, "parents": parents, "live": _checked(space).live(architecture)}


nasbench1shot1_network = SpaceNetwork(NASBench1Shot1Network, _arguments)
search_network = SpaceNetwork(SearchNetwork, _search_arguments)
for _number in (1, 2, 3):
    NETWORKS.register(f"nasbench1shot1-{_number}", nasbench1shot1_network)
