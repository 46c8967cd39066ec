"""Random Fourier features, with a map per point. Rahimi and Recht 2008; Khodak et al. 2020, B.2.1; note W2.

The feature vector of a point x is sqrt(2/d) cos(s B x' + b), where x' is the preprocessed point, B (d, p) standard
normal and s = sqrt(2 gamma) for the Gaussian kernel exp(-gamma ||x - y||_2^2), B standard Cauchy and s = gamma for the
Laplace kernel exp(-gamma ||x - y||_1), and b uniform on [0, 2 pi).
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from archray.seeds import named_seed
from archray.trainables.feature_maps.features import (
    ALL,
    GIB,
    FeatureMap,
    blocks,
    check_fits,
    dense_memory,
    ridge_memory,
)
from archray.trainables.feature_maps.solve_settings import Bases, SolveSettings

Key = tuple[str | int, ...]  # of a basis: the kernel, and the number of the map if it has a separate basis

CACHE_ROWS = 256  # rows whose cosines are computed at once, within the cache
INPUT_ROWS = 2048  # points that are preprocessed at once


@dataclass(frozen=True)
class Statistics:
    """Statistics of the training points for preprocessing, (p,) each; a constant input has width and deviation 1."""

    low: Tensor
    width: Tensor
    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, inputs: Tensor) -> "Statistics":
        """Computes the statistics. inputs: (n, p) training points."""
        low, high = torch.aminmax(inputs, dim=0)
        deviation, mean = torch.std_mean(inputs, dim=0, correction=0)
        one = torch.ones_like(low)  # rounding gives a constant input a deviation that is not exactly zero
        return cls(low, torch.where(high > low, high - low, one), mean, torch.where(high > low, deviation, one))

    def preprocess(self, inputs: Tensor, how: str) -> Tensor:
        """inputs: (m, p). how: none, minmax, normalize (each row to length 1; zero rows stay) or standard."""
        if how == "minmax":
            return (inputs - self.low) / self.width
        if how == "standard":
            return (inputs - self.mean) / self.deviation
        if how == "normalize":
            length = torch.linalg.vector_norm(inputs, dim=1, keepdim=True)
            return inputs / torch.where(length > 0, length, torch.ones_like(length))
        return inputs


class FourierBases:
    """The bases of one solve, drawn on the CPU, so that all devices get the same.

    Args:
        bases: `shared` has one basis per kernel and one offset; `independent` has both for every map, and redraws them
            whenever they are needed, because they would not fit into memory.
    """

    def __init__(
        self, inputs: int, dimension: int, seed: int, bases: Bases = "shared", device: str | torch.device = "cpu"
    ) -> None:
        self.inputs, self.dimension, self.seed, self.bases = inputs, dimension, seed, bases
        self.device = torch.device(device)
        self._drawn: dict[Key, tuple[Tensor, Tensor]] = {}

    def key(self, kernel: str, number: int) -> Key:
        """Returns the key of the basis of map `number`; maps with equal keys share it."""
        return (kernel,) if self.bases == "shared" else (kernel, number)

    def groups(self, maps: Sequence[FeatureMap]) -> list[tuple[Key, str]]:
        """Returns the basis and preprocessing of each map. Maps with equal ones share projections, up to a factor."""
        return [(self.key(str(values["kernel"]), i), str(values["preprocess"])) for i, values in enumerate(maps)]

    def draw(self, key: Key) -> tuple[Tensor, Tensor]:
        """Returns the basis of a key, transposed (p, d), and its offset (d,)."""
        if key not in self._drawn:
            if self.bases == "independent":
                self._drawn.clear()
            kernel, *number = key
            basis = torch.empty(self.inputs, self.dimension)
            generator = torch.Generator().manual_seed(named_seed(self.seed, "basis", *key))
            if kernel == "gaussian":
                basis.normal_(generator=generator)
            else:
                # By the quantile function, because `cauchy_` in float32 could return infinity.
                basis.uniform_(generator=generator).sub_(0.5).clamp_(-0.4999999, 0.4999999).mul_(math.pi).tan_()
            generator.manual_seed(named_seed(self.seed, "offset", *number))
            offset = torch.rand(self.dimension, generator=generator).mul_(2 * math.pi)
            self._drawn[key] = basis.to(self.device), offset.to(self.device)
        return self._drawn[key]


class FourierFeatures:
    """The features of n points, each by the map that is assigned to it, computed in blocks.

    The points are processed in the order `order`, sorted by basis and preprocessing. A block is then one or a few
    matrix products, regardless of the number of maps, because gamma only scales rows.

    Args:
        inputs: (n, p) float32.
        assignment: (n,) index into `maps`.

    Attributes:
        seconds: Time spent in `block` so far.
    """

    def __init__(
        self,
        inputs: Tensor,
        maps: Sequence[FeatureMap],
        assignment: npt.NDArray[np.int64],
        bases: FourierBases,
        statistics: Statistics,
    ) -> None:
        self._inputs, self._bases, self._statistics = inputs, bases, statistics
        self.shape, self.device = (len(inputs), bases.dimension), inputs.device
        groups = bases.groups(maps)
        self._groups = list(dict.fromkeys(groups))
        number = np.array([self._groups.index(group) for group in groups])[assignment]  # (n,)
        order = np.argsort(number, kind="stable")
        self.order = torch.from_numpy(order).to(inputs.device)  # (n,) the point of each row
        self._starts = np.searchsorted(number[order], np.arange(len(self._groups) + 1))
        scales = np.array([row_scale(feature_map) for feature_map in maps], dtype=np.float32)[assignment[order]]
        self._scales = torch.from_numpy(scales).to(inputs.device)  # (n,)
        self.seconds = 0.0

    def block(self, rows: slice, columns: slice = ALL) -> Tensor:
        start = time.perf_counter()
        first, last, _ = rows.indices(len(self._inputs))
        width = len(range(self._bases.dimension)[columns])
        block = torch.empty(last - first, width, device=self.device)
        for (key, how), part in self._runs(first, last):
            basis, offset = self._bases.draw(key)
            points = self._statistics.preprocess(self._inputs[self.order[part]], how) * self._scales[part, None]
            target = block[part.start - first : part.stop - first]
            torch.mm(points, basis[:, columns], out=target)
            cosines_(target, offset[columns], self._bases.dimension)
        if self.device.type == "cuda":  # so that the clock measures this work
            torch.cuda.synchronize(self.device)
        self.seconds += time.perf_counter() - start
        return block

    def _runs(self, first: int, last: int) -> Iterator[tuple[tuple[Key, str], slice]]:
        """Yields the groups of rows first..last, and their rows."""
        for group, start, stop in zip(self._groups, self._starts[:-1], self._starts[1:], strict=True):
            for begin in range(max(int(start), first), min(int(stop), last), INPUT_ROWS):
                yield group, slice(begin, min(begin + INPUT_ROWS, int(stop), last))


def every_map(
    inputs: Tensor, maps: Sequence[FeatureMap], bases: FourierBases, statistics: Statistics, rows: int
) -> Iterator[tuple[int, slice, Tensor]]:
    """Yields all points by all maps: map number, rows of the inputs, their features (rows, d), valid until the next.

    Projections are computed once for all maps with the same basis and preprocessing. rows: number of rows at once.
    """
    groups: dict[tuple[Key, str], list[int]] = {}
    for number, group in enumerate(bases.groups(maps)):
        groups.setdefault(group, []).append(number)
    buffer = torch.empty(min(rows, len(inputs)), bases.dimension, device=inputs.device)
    for (key, how), numbers in groups.items():
        basis, offset = bases.draw(key)
        for part in blocks(len(inputs), rows):
            projections = statistics.preprocess(inputs[part], how) @ basis
            features = buffer[: len(projections)]
            for number in numbers:
                torch.mul(projections, row_scale(maps[number]), out=features)
                yield number, part, cosines_(features, offset, bases.dimension)


def fourier_memory(inputs: int, dimension: int, bases: Bases) -> float:
    """GiB of memory for bases, one per kernel or one at a time, and for points during preprocessing."""
    held = 2 if bases == "shared" else 1
    return (4 * held * (inputs + 1) * dimension + 12 * INPUT_ROWS * inputs) / GIB


def check_fourier_memory(settings: SolveSettings, points: int, inputs: int, classes: int, dimension: int) -> None:
    """Raises: InvalidInput if a solve with these numbers of points and inputs does not fit into `memory_gib`."""
    side, ridge = min(points, dimension), settings.loss_for("images") == "ridge"
    needed = fourier_memory(inputs, dimension, settings.bases)
    needed += (ridge_memory if ridge else dense_memory)(points, dimension, classes)
    matrix = f"with a Gram matrix of {side:,} x {side:,}" if ridge else "with all features at once"
    check_fits(needed, settings.memory_gib, f"a solve of {points:,} points and {dimension:,} features, {matrix}")


def row_scale(feature_map: FeatureMap) -> float:
    """Returns the factor of a map's projections: sqrt(2 gamma) or gamma."""
    gamma = float(feature_map["gamma"])
    return math.sqrt(2 * gamma) if feature_map["kernel"] == "gaussian" else gamma


def cosines_(projections: Tensor, offset: Tensor, dimension: int) -> Tensor:
    """Computes sqrt(2/d) cos(projections + offset) in place. projections: (m, w). offset: (w,)."""
    step = CACHE_ROWS if projections.device.type == "cpu" else max(1, len(projections))
    for rows in blocks(len(projections), step):
        projections[rows].add_(offset).cos_().mul_(math.sqrt(2 / dimension))
    return projections


class FourierNetwork(nn.Module):
    """Fourier features and their linear model as a plain torch module, whose source and graph can be exported.

    Maps images (n, C, H, W) with p numbers each to decision values (n, K): sqrt(2/d) cos(s B x' + b) by a linear model.

    x' is the image minus `shift`, divided by `width`, (p,) each, and then, if `unit_length`, scaled to length 1.
    """

    def __init__(self, inputs: int, dimension: int, classes: int, *, unit_length: bool) -> None:
        super().__init__()
        self.unit_length = unit_length
        self.shift = nn.Buffer(torch.zeros(inputs))
        self.width = nn.Buffer(torch.ones(inputs))
        self.scale = nn.Buffer(torch.ones(()))  # s, of the kernel's bandwidth
        self.basis = nn.Buffer(torch.zeros(inputs, dimension))  # B, transposed
        self.offset = nn.Buffer(torch.zeros(dimension))  # b
        self.weights = nn.Parameter(torch.zeros(dimension, classes))
        self.intercept = nn.Parameter(torch.zeros(classes))

    def forward(self, images: Tensor) -> Tensor:
        x = (images.flatten(1) - self.shift) / self.width  # (n, p)
        if self.unit_length:
            length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
            x = x / torch.where(length > 0, length, torch.ones_like(length))
        features = torch.cos((x * self.scale) @ self.basis + self.offset)  # (n, d)
        return features * math.sqrt(2 / self.basis.shape[1]) @ self.weights + self.intercept
