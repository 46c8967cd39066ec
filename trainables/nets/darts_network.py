"""The networks of a genotype, with the operations of the cells of DARTS and NASNet. Liu et al. 2019, sec. 3.

Normalization has three forms. `search`, for supernets and their standalone counterparts (note G3): batch normalization
without affine parameters, by the batch's statistics in evaluation too, and also after pooling. DARTS' program keeps
running statistics there, but with a mixture's statistics every discretized cell was at chance. `training`: affine, with
running statistics; no normalization after pools. `scoring`, for training-free metrics (note P5): neither affine
parameters nor running statistics; no normalization after pools.

The search form with 8 cells equals a supernet with one forced path. The evaluation form has 20 cells with 36 channels,
the form for large images 14 with 48.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.nets.network_settings import Stem
from archray.trainables.nets.registry import NETWORKS, Form, ReLUConvBN, SpaceNetwork, Zero, batch_norm, edge_name
from archray.trainables.spaces.genotypes import INPUTS, CellEdges, GenotypeSpace, cell_nodes
from archray.trainables.spaces.space import Architecture, Space

STAGES = 3  # of normal cells, with a reduction cell between two stages
STEM_MULTIPLIER = 3  # the CIFAR stem is three times as wide as the cells after it


def cell_norm(channels: int, form: Form) -> nn.BatchNorm2d:
    """The batch normalization of a layer inside a cell."""
    return batch_norm(channels, affine=form == "training", running=form == "training")


def cell_conv(in_channels: int, out_channels: int, form: Form) -> ReLUConvBN:
    """ReLU, 1 x 1 convolution, normalization, from a cell's input to the cell's width."""
    return ReLUConvBN(in_channels, out_channels, 1, affine=form == "training", running=form == "training")


def every_second_pixel(x: torch.Tensor) -> torch.Tensor:
    """(n, C, H, W) -> (n, C, H/2, W/2), rounded up: the pixels that a 1 x 1 convolution of stride 2 reads.

    Networks use this and a plain convolution: oneDNN's gradient of a strided 1 x 1 convolution writes past its memory
    on CPUs with AVX2 and without AVX-512, if the input has 2 to 7 channels in channels-last layout (oneDNN issue 6035).
    It is also less work. Pooling by one pixel is a slice whose gradient keeps the layout.
    """
    return functional.avg_pool2d(x, kernel_size=1, stride=2)


class FactorizedReduce(nn.Module):
    """Halves a map without losing every second pixel: (n, C_in, H, W) -> (n, C_out, H/2, W/2), rounded up.

    After one ReLU, two 1 x 1 convolutions read every second pixel, the second on the map shifted by a pixel in both
    directions. Their outputs are concatenated and normalized. Odd heights and widths are padded with zeros (the
    original fails on them).
    """

    def __init__(self, in_channels: int, out_channels: int, form: Form) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv_1 = nn.Conv2d(in_channels, out_channels // 2, 1, bias=False)
        self.conv_2 = nn.Conv2d(in_channels, out_channels - out_channels // 2, 1, bias=False)
        self.bn = cell_norm(out_channels, form)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(x)
        height, width = x.shape[-2:]
        moved = functional.pad(x, (-1, width % 2, -1, height % 2))
        halves = self.conv_1(every_second_pixel(x)), self.conv_2(every_second_pixel(moved))
        out: torch.Tensor = self.bn(torch.cat(halves, dim=1))
        return out


class SepConv(nn.Sequential):
    """Twice ReLU, depthwise convolution, 1 x 1 convolution, normalization; only the first has the stride."""

    def __init__(self, channels: int, kernel: int, stride: int, form: Form) -> None:
        layers: list[nn.Module] = []
        for step in (stride, 1):
            layers += [
                nn.ReLU(),
                nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
                nn.Conv2d(channels, channels, 1, bias=False),
                cell_norm(channels, form),
            ]
        super().__init__(*layers)


class DilConv(nn.Sequential):
    """ReLU, depthwise convolution with dilation 2, 1 x 1 convolution, normalization."""

    def __init__(self, channels: int, kernel: int, stride: int, form: Form) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(channels, channels, kernel, stride, kernel - 1, dilation=2, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, bias=False),
            cell_norm(channels, form),
        )


class FactorizedConv(nn.Sequential):
    """ReLU, convolution of a row, convolution of a column, normalization; each strides along its own axis."""

    def __init__(self, channels: int, kernel: int, stride: int, form: Form) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(channels, channels, (1, kernel), (1, stride), (0, kernel // 2), bias=False),
            nn.Conv2d(channels, channels, (kernel, 1), (stride, 1), (kernel // 2, 0), bias=False),
            cell_norm(channels, form),
        )


def _pool(pool: nn.Module, channels: int, form: Form) -> nn.Module:
    return nn.Sequential(pool, cell_norm(channels, form)) if form == "search" else pool


# channels, stride (1 or 2), form -> the module of an edge, (n, C, H, W) -> (n, C, H/stride, W/stride) rounded up.
# The eight operations of DARTS in the order of the original, then the operations of NASNet.
OPERATIONS: dict[str, Callable[[int, int, Form], nn.Module]] = {
    "none": lambda channels, stride, form: Zero(stride),
    "max_pool_3x3": lambda channels, stride, form: _pool(nn.MaxPool2d(3, stride, 1), channels, form),
    "avg_pool_3x3": lambda channels, stride, form: _pool(
        nn.AvgPool2d(3, stride, 1, count_include_pad=False), channels, form
    ),
    "skip_connect": lambda channels, stride, form: (
        nn.Identity() if stride == 1 else FactorizedReduce(channels, channels, form)
    ),
    "sep_conv_3x3": lambda channels, stride, form: SepConv(channels, 3, stride, form),
    "sep_conv_5x5": lambda channels, stride, form: SepConv(channels, 5, stride, form),
    "dil_conv_3x3": lambda channels, stride, form: DilConv(channels, 3, stride, form),
    "dil_conv_5x5": lambda channels, stride, form: DilConv(channels, 5, stride, form),
    "sep_conv_7x7": lambda channels, stride, form: SepConv(channels, 7, stride, form),
    "conv_7x1_1x7": lambda channels, stride, form: FactorizedConv(channels, 7, stride, form),
}


def reductions(cells: int) -> tuple[int, int]:
    """The numbers of the two reduction cells among `cells`: at one and at two thirds of the depth."""
    return cells // 3, 2 * cells // 3


def drop_path(x: torch.Tensor, probability: float | torch.Tensor) -> torch.Tensor:
    """Sets whole samples of x (n, ...) to zero with `probability` and scales up the others to keep the mean."""
    kept = 1.0 - probability
    mask = torch.rand(x.shape[0], 1, 1, 1, device=x.device) < kept
    return x * (mask / kept).to(x.dtype)


def cell_terms(edges: CellEdges) -> list[tuple[str, int, int]]:
    """The key, target and source of each edge; two edges between the same nodes have different keys."""
    terms: list[tuple[str, int, int]] = []
    for number, (_, source) in enumerate(edges):
        target = INPUTS + number // 2
        again = number % 2 == 1 and edges[number - 1][1] == source
        terms.append((edge_name(target, source) + ("-again" if again else ""), target, source))
    return terms


class Cell(nn.Module):
    """One cell, (n, C_before, H', W') and (n, C_last, H, W) -> (n, kC, H/s, W/s) with s = 2 in a reduction cell.

    Both inputs are projected to C channels, the first also to the size of the second if the previous cell was a
    reduction. Each edge is one operation, with stride 2 from an input in a reduction cell. A node is the sum of its
    two edges, the output the concatenation of the k nodes `outputs`: all four in DARTS.

    Args:
        edges: Pairs (operation, source), two per node.
        outputs: Nodes that are concatenated (default: all).
        before, last: Channels of the outputs of the cell before the last and of the last cell.
        after_reduction: Whether the last cell was a reduction cell.
    """

    def __init__(
        self,
        edges: CellEdges,
        before: int,
        last: int,
        channels: int,
        *,
        reduction: bool,
        after_reduction: bool,
        form: Form,
        outputs: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.preprocess_0 = (
            FactorizedReduce(before, channels, form) if after_reduction else cell_conv(before, channels, form)
        )
        self.preprocess_1 = cell_conv(last, channels, form)
        self.outputs = tuple(outputs or cell_nodes(edges))
        self.terms = cell_terms(edges)
        self.edges = nn.ModuleDict(
            {
                key: OPERATIONS[operation](channels, 2 if reduction and source < INPUTS else 1, form)
                for (key, _, source), (operation, _) in zip(self.terms, edges, strict=True)
            }
        )

    def forward(
        self, before: torch.Tensor, last: torch.Tensor, drop: float | torch.Tensor | None = None
    ) -> torch.Tensor:
        """drop: probability of setting an edge to zero per sample, in train mode; an identity is never dropped."""
        nodes = {0: self.preprocess_0(before), 1: self.preprocess_1(last)}
        for key, target, source in self.terms:
            operation = self.edges[key]
            term = operation(nodes[source])
            if self.training and drop is not None and not isinstance(operation, nn.Identity):
                term = drop_path(term, drop)
            nodes[target] = nodes[target] + term if target in nodes else term
        return torch.cat([nodes[node] for node in self.outputs], dim=1)


class Auxiliary(nn.Module):
    """A second classifier on the map after the second reduction cell, (n, C, H, W) -> (n, num_classes).

    It pools to 2 x 2. The original's window is for 32 x 32 images (8 x 8 maps here) or, with the stem for large
    images, for 224 x 224 (7 x 7). On maps of another size, which the original does not support, pooling is adaptive.
    """

    def __init__(self, channels: int, num_classes: int, stem: Stem) -> None:
        super().__init__()
        self.native, stride = (8, 3) if stem == "cifar" else (7, 2)
        self.pool = nn.AvgPool2d(5, stride, count_include_pad=False)
        self.features = nn.Sequential(
            nn.Conv2d(channels, 128, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(),
            nn.Conv2d(128, 768, 2, bias=False),
            # The original's form for large images has no normalization here, and its results are without it.
            nn.BatchNorm2d(768) if stem == "cifar" else nn.Identity(),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(768, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(x)
        native = x.shape[-2:] == (self.native, self.native)
        x = self.pool(x) if native else functional.adaptive_avg_pool2d(x, 2)
        logits: torch.Tensor = self.classifier(self.features(x))
        return logits


class CIFARStem(nn.Module):
    """One convolution, (n, in_channels, H, W) -> (n, 3C, H, W), for both inputs of the first cell."""

    def __init__(self, in_channels: int, channels: int, *, running: bool) -> None:
        super().__init__()
        width = STEM_MULTIPLIER * channels
        self.widths = (width, width)
        self.first = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, padding=1, bias=False), batch_norm(width, affine=True, running=running)
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.first(images)
        return x, x


class ImageNetStem(nn.Module):
    """Three convolutions of stride 2, (n, in_channels, H, W) -> (n, C, H/4, W/4) and (n, C, H/8, W/8)."""

    def __init__(self, in_channels: int, channels: int, *, running: bool) -> None:
        super().__init__()
        self.widths = (channels, channels)
        self.first = nn.Sequential(
            nn.Conv2d(in_channels, channels // 2, 3, stride=2, padding=1, bias=False),
            batch_norm(channels // 2, affine=True, running=running),
            nn.ReLU(),
            nn.Conv2d(channels // 2, channels, 3, stride=2, padding=1, bias=False),
            batch_norm(channels, affine=True, running=running),
        )
        self.second = ReLUConvBN(channels, channels, 3, 2, affine=True, running=running)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.first(images)
        return before, self.second(before)


STEMS: dict[Stem, type[CIFARStem | ImageNetStem]] = {"cifar": CIFARStem, "imagenet": ImageNetStem}


class DARTSNetwork(nn.Module):
    """Maps images (n, in_channels, H, W) to logits (n, num_classes), in train mode also to those of `auxiliary`.

    Args:
        normal, reduce: Edges of the two cells, as in `Cell`.
        outputs: Nodes that each cell concatenates.
        channels: C, of the first cells; doubled by each reduction cell.
        cells: N, cells per stage: 3 N + 2 with the two reduction cells; N = 6 gives 20 cells, 4 gives 14, 2 gives 8.
        normalization: Form of the cells' normalization. Outside the cells it is affine; only `training` has running
            statistics.
        stem: `cifar`, one convolution, or `imagenet`, three with stride 2, the last for the second input.
        auxiliary: Whether train mode returns (logits, auxiliary logits). The loss of the latter has weight 0.4 in the
            original.

    `drop_path` is the probability of dropping an edge per sample in train mode, initially 0. The original raises it
    linearly over the epochs, from 0 to 0.2 on CIFAR-10.
    """

    def __init__(
        self,
        normal: CellEdges,
        reduce: CellEdges,
        outputs: tuple[Sequence[int], Sequence[int]],
        *,
        channels: int,
        cells: int,
        in_channels: int,
        num_classes: int,
        normalization: Form,
        stem: Stem = "cifar",
        auxiliary: bool = False,
    ) -> None:
        super().__init__()
        if channels < 2 or cells < 1:
            raise InvalidInput(
                f"expected at least 2 channels and 1 cell per stage, got {count(channels, 'channel')} and "
                f"{count(cells, 'cell')}"
            )
        depth = STAGES * cells + 2
        # A tensor, because `torch.compile` treats a number as a constant and would recompile at each change.
        self.register_buffer("_drop_probability", torch.zeros(()), persistent=False)
        self._drop_probability: torch.Tensor
        self.drop_path = 0.0
        self.stem = STEMS[stem](in_channels, channels, running=normalization == "training")
        self.cells = nn.ModuleList()
        self.auxiliary: Auxiliary | None = None
        (before, last), width, after_reduction = self.stem.widths, channels, stem == "imagenet"
        for number in range(depth):
            reduction = number in reductions(depth)
            if reduction:
                width *= 2
            nodes = outputs[reduction]
            self.cells.append(
                Cell(
                    reduce if reduction else normal,
                    before,
                    last,
                    width,
                    reduction=reduction,
                    after_reduction=after_reduction,
                    form=normalization,
                    outputs=nodes,
                )
            )
            before, last, after_reduction = last, len(nodes) * width, reduction
            if auxiliary and number == reductions(depth)[1]:
                self.auxiliary = Auxiliary(last, num_classes, stem)
        self.classifier = nn.Linear(last, num_classes)

    @property
    def drop_path(self) -> float:
        return self._drop_path

    @drop_path.setter
    def drop_path(self, probability: float) -> None:
        self._drop_path = probability
        self._drops = probability > 0
        self._drop_probability.fill_(probability)

    def forward(self, images: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        before, last = self.stem(images)
        drop = self._drop_probability if self._drops else None
        second = None
        for number, cell in enumerate(self.cells):
            before, last = last, cell(before, last, drop)
            if self.training and self.auxiliary is not None and number == reductions(len(self.cells))[1]:
                second = self.auxiliary(last)
        logits: torch.Tensor = self.classifier(last.mean(dim=(2, 3)))
        return logits if second is None else (logits, second)


def _arguments(space: Space, architecture: Architecture) -> dict[str, Any]:
    if not isinstance(space, GenotypeSpace):
        raise InvalidInput(f"expected a space of genotypes, got {space.name!r}. Choose darts or nasnet")
    normal, reduce = space.genotype(architecture)
    return {"normal": normal, "reduce": reduce, "outputs": (space.outputs(normal), space.outputs(reduce))}


darts_network = SpaceNetwork(DARTSNetwork, _arguments)
for _name in ("darts", "darts-none", "nasnet"):
    NETWORKS.register(_name, darts_network)
