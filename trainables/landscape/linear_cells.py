"""The widest and the narrowest linear cell, and the bounds of Theorems 4.3 and 4.4 compared with measurements.

Shu 2022, sections 4.3.3 and A.2; notes U1 and U2. In the widest cell y_i = W_i x, in the narrowest
y_i = W_i W_{i-1} ... W_1 x; z is the concatenation of all y_i, f an objective of z, lambda_i = |W_i| the spectral norm
("largest eigenvalue" in Shu 2022). All computations are exact, in float64, for a batch of instances at once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pandas as pd
import torch
from torch import Tensor

from archray.errors import InvalidInput


@dataclass(frozen=True)
class Objective:
    """f(z; t) of N instances: z (N, ..., D) the cell's output, t (N, ..., K) a sample's target.

    Attributes:
        matrix: (N, K, D), or (N, D, D) symmetric for `indefinite`.
        gradient: (matrix, z, t) -> (N, ..., D), df/dz.
        hessian: (matrix, z) -> (N, D, D), of z (N, D).
        smoothness: (matrix, blocks) -> (N,), the least L with |df/dz_S(z) - df/dz_S(z')| <= L |z_S - z'_S| for all z
            and z' that differ only in the coordinates S, `blocks`.
        bound: (matrix, blocks) -> (N,), the least known bound of |df/dz_S| over all z and t; None: unbounded.
    """

    name: str
    matrix: Tensor
    gradient: Callable[[Tensor, Tensor, Tensor], Tensor]
    hessian: Callable[[Tensor, Tensor], Tensor]
    smoothness: Callable[[Tensor, slice], Tensor]
    bound: Callable[[Tensor, slice], Tensor] | None
    targets: Tensor  # (N, M, K), of M samples


def spectral_norm(matrix: Tensor) -> Tensor:
    """(..., a, b) -> (...): the largest singular value."""
    return torch.linalg.matrix_norm(matrix, ord=2)


def _times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """(N, a, b), (N, ..., b) -> (N, ..., a)."""
    return torch.einsum("nab,n...b->n...a", matrix, vectors)


def least_squares(instances: int, samples: int, size: int, targets: int, generator: torch.Generator) -> Objective:
    """f = |C z - t|^2 / 2: convex, with unbounded gradients. C: (K, D) normal, columns with norm 1 on average."""
    matrix = _normal(generator, instances, targets, size) / targets**0.5
    return Objective(
        "least-squares",
        matrix,
        lambda c, z, t: _times(c.mT, _times(c, z) - t),
        lambda c, z: c.mT @ c,
        lambda c, blocks: spectral_norm(c[..., blocks]).square(),
        None,
        _normal(generator, instances, samples, targets),
    )


def logistic(instances: int, samples: int, size: int, targets: int, generator: torch.Generator) -> Objective:
    """f = -log softmax(C z)_t: convex, with bounded gradients. t: one-hot classes, drawn uniformly.

    The Hessian is C^T (diag(p) - p p^T) C: along v the variance of the rows' products with v under p. It is largest, a
    fourth of the squared range, where two classes share p evenly, so L = max_rs |C_r - C_s|^2 / 4. The gradient is
    C^T (p - t), a mean of differences of rows: |.| <= max_rs |C_r - C_s|.
    """
    matrix = _normal(generator, instances, targets, size) / targets**0.5
    classes = torch.randint(targets, (instances, samples), generator=generator)
    return Objective(
        "logistic",
        matrix,
        lambda c, z, t: _times(c.mT, _times(c, z).softmax(-1) - t),
        _softmax_hessian,
        lambda c, blocks: _largest_difference(c[..., blocks]).square() / 4,
        lambda c, blocks: _largest_difference(c[..., blocks]),
        torch.nn.functional.one_hot(classes, targets).double(),
    )


def indefinite(instances: int, samples: int, size: int, targets: int, generator: torch.Generator) -> Objective:
    """f = z^T H z / 2 + t^T z with H symmetric and indefinite: not convex. `targets` is not used, t is (D,)."""
    matrix = _normal(generator, instances, size, size) / size**0.5
    return Objective(
        "indefinite",
        (matrix + matrix.mT) / 2**0.5,
        lambda h, z, t: _times(h, z) + t,
        lambda h, z: h,
        lambda h, blocks: spectral_norm(h[..., blocks, blocks]),
        None,
        _normal(generator, instances, samples, size),
    )


OBJECTIVES = (least_squares, logistic, indefinite)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _softmax_hessian(matrix: Tensor, z: Tensor) -> Tensor:
    p = _times(matrix, z).softmax(-1)  # (N, K)
    centered = matrix - torch.einsum("nk,nkd->nd", p, matrix)[:, None]
    return centered.mT @ (p[..., None] * centered)


def _largest_difference(matrix: Tensor) -> Tensor:
    """Computes max_rs |C_r - C_s| of the rows, (N,)."""
    return torch.cdist(matrix, matrix, compute_mode="donot_use_mm_for_euclid_dist").amax((-2, -1))


NODES = (2, 3, 5)  # n, of a cell
WIDTHS = (3, 6)  # of x and of every node
# Ranges of the weights' spectral norms, log-uniform: all contract, some contract, all expand.
NORMS = {"below 1": (0.3, 0.95), "around 1": (0.5, 2.0), "above 1": (1.05, 3.0)}
TARGETS = 4  # K: rows of C, or classes
SAMPLES = 16  # for the expectation of Theorem 4.4
STEPS = 8  # random pairs (W, W') of a block, in addition to the pair along the largest curvature
COLUMNS = ("instance", "objective", "nodes", "width", "norms", "theorem", "gradient", "block")
BOUNDS = ("printed", "corrected", "measured")


@dataclass(frozen=True)
class LinearCells:
    """N instances of a cell's weights and inputs, each with an objective.

    Attributes:
        weights: (N, n, d, d) float64.
        inputs: (N, M, d), of M samples.
        objective: Objective of z (N, ..., n d).
    """

    weights: Tensor
    inputs: Tensor
    objective: Objective

    @property
    def nodes(self) -> int:
        return self.weights.shape[1]

    @property
    def width(self) -> int:
        return self.weights.shape[2]

    @property
    def norms(self) -> Tensor:
        """lambda: (N, n)."""
        return spectral_norm(self.weights)

    def blocks(self, first: int, last: int | None = None) -> slice:
        """Returns the coordinates of z that are y_first ... y_last; with last None, only y_first."""
        return slice(first * self.width, (1 + (first if last is None else last)) * self.width)

    def wide(self) -> Tensor:
        """Computes z of the widest cell: (N, M, n d)."""
        return torch.einsum("nkab,nmb->nmka", self.weights, self.inputs).flatten(2)

    def narrow(self) -> Tensor:
        """Computes z of the narrowest cell: (N, M, n d)."""
        nodes, y = [], self.inputs
        for k in range(self.nodes):
            y = torch.einsum("nab,nmb->nma", self.weights[:, k], y)
            nodes.append(y)
        return torch.cat(nodes, -1)

    def before(self, block: int) -> Tensor:
        """Computes B = W_{i-1} ... W_1 of the narrowest cell: (N, d, d)."""
        b = torch.eye(self.width, dtype=torch.float64).expand(len(self.weights), -1, -1)
        for k in range(block):
            b = self.weights[:, k] @ b
        return b

    def after(self, block: int) -> Tensor:
        """Computes A_k = W_k ... W_{i+1} for k = i ... n of the narrowest cell: (N, n - i + 1, d, d)."""
        parts = [torch.eye(self.width, dtype=torch.float64).expand(len(self.weights), -1, -1)]
        for k in range(block + 1, self.nodes):
            parts.append(self.weights[:, k] @ parts[-1])
        return torch.stack(parts, 1)

    def by_outputs(self, z: Tensor, targets: Tensor) -> Tensor:
        """Computes df/dy_k at z (N, ..., n d): (N, ..., n, d)."""
        gradient = self.objective.gradient(self.objective.matrix, z, targets)
        return gradient.unflatten(-1, (self.nodes, self.width))

    def narrow_gradients(self, block: int, by_outputs: Tensor) -> Tensor:
        """Computes Eq. A.2: df/dW_i of the narrowest cell by sample, (N, M, d, d), from df/dy_k (N, M, n, d)."""
        left = torch.einsum("nkba,nmkb->nma", self.after(block), by_outputs[:, :, block:])
        right = torch.einsum("nab,nmb->nma", self.before(block), self.inputs)
        return left[..., None] * right[..., None, :]

    def scales(self, block: int) -> Tensor:
        """Computes (1 / lambda_i) prod_{j <= k} lambda_j for k = i ... n: (N, n - i + 1)."""
        norms = self.norms
        before = norms[:, :block].prod(1, keepdim=True)
        return before * torch.cat([torch.ones_like(before), norms[:, block + 1 :].cumprod(1)], 1)

    def smoothness(self, first: int, last: int | None = None) -> Tensor:
        """Returns the smoothness of f in the blocks, (N,)."""
        return self.objective.smoothness(self.objective.matrix, self.blocks(first, last))


def draw_cells(
    instances: int,
    *,
    objective: Callable[[int, int, int, int, torch.Generator], Objective],
    nodes: int,
    width: int,
    norms: tuple[float, float],
    generator: torch.Generator,
    samples: int = SAMPLES,
) -> LinearCells:
    """Draws normal weights, scaled to spectral norms that are log-uniform in `norms`, and normal inputs.

    objective: one of OBJECTIVES. Raises: InvalidInput for fewer than one instance, node or coordinate, or two samples.
    """
    if min(instances, nodes, width) < 1 or samples < 2:
        raise InvalidInput(
            "expected at least one instance, one node, one coordinate and two samples, got "
            f"{instances}, {nodes}, {width} and {samples}"
        )
    weights = _normal(generator, instances, nodes, width, width)
    low, high = map(math.log, norms)
    drawn = low + (high - low) * torch.rand(instances, nodes, generator=generator, dtype=torch.float64)
    weights *= (drawn.exp() / spectral_norm(weights))[..., None, None]
    inputs = _normal(generator, instances, samples, width)
    return LinearCells(weights, inputs, objective(instances, samples, nodes * width, TARGETS, generator))


def lipschitz_bounds(cells: LinearCells, block: int, generator: torch.Generator) -> dict[str, tuple[Tensor, ...]]:
    """Compares Theorem 4.3 for the block W_i: (printed, corrected, measured), (N,) each, by the measured gradient.

    `proof`: the quantity in the proof, its Eq. A.8 without the terms k != i and with the widest cell's df/dy_i in place
    of the narrowest's: |dG_i B^T| / |dW|. The printed bound, L_i prod_{j<i} lambda_j, is valid for it.
    `narrow`: the gradient of the narrowest cell. W_i moves every y_k with k >= i, by A_k dW B x, and the gradient of f
    returns through A^T and (B x)^T. With L the smoothness of f in the blocks i ... n together,
    |dG| <= L |A|^2 |B x|^2 |dW| <= L |x|^2 sum_{k>=i} ((1/lambda_i) prod_{j<=k} lambda_j)^2 |dW|: `corrected`.

    Only the first sample x is used. L_i = (smoothness of f in y_i) |x|^2 is the least constant of the widest cell for
    all W. measured: the largest of |dG| / |dW|, spectral norms, over STEPS random pairs and the pair along the largest
    curvature.
    """
    x = cells.inputs[:, 0]
    squared = x.square().sum(-1)
    printed = cells.norms[:, :block].prod(1) * cells.smoothness(block) * squared
    corrected = cells.smoothness(block, cells.nodes - 1) * squared * cells.scales(block).square().sum(1)
    a, bx = cells.after(block), torch.einsum("nab,nb->na", cells.before(block), x)
    identity = torch.zeros_like(a)
    identity[:, 0] = torch.eye(cells.width, dtype=torch.float64)
    ways = {
        "proof": (printed, cells.wide()[:, 0], identity, x, bx),
        "narrow": (corrected, cells.narrow()[:, 0], a, bx, bx),
    }
    bounds: dict[str, tuple[Tensor, ...]] = {}
    for gradient, (bound, z, through, left, right) in ways.items():
        bounds[gradient] = (printed, bound, _steepest(cells, block, z, through, left, right, generator))
    return bounds


def _steepest(
    cells: LinearCells, block: int, z: Tensor, a: Tensor, u: Tensor, right: Tensor, generator: torch.Generator
) -> Tensor:
    """Computes (N,): the largest |A^T (g(z + A dW u) - g(z)) right^T| / |dW| over dW, with g = df/dy_k, k >= i.

    z: (N, n d). a: (N, n - i + 1, d, d). u, right: (N, d).
    """
    n, d = len(z), cells.width
    low = cells.blocks(block, cells.nodes - 1)
    targets = cells.objective.targets[:, 0]
    hessian = cells.objective.hessian(cells.objective.matrix, z)[:, low, low]
    stacked = a.flatten(1, 2)  # ((n - i + 1) d, d) for each instance
    values, vectors = torch.linalg.eigh(stacked.mT @ hessian @ stacked)
    steep = torch.gather(vectors, 2, values.abs().argmax(1)[:, None, None].expand(-1, d, 1))  # (N, d, 1)
    # A short step, for an objective with changing curvature, and random steps of all lengths.
    along = 1e-3 * steep @ (u / u.norm(dim=1, keepdim=True))[:, None]
    lengths = torch.logspace(-2, 1, STEPS, dtype=torch.float64).view(1, -1, 1, 1)
    drawn = _normal(generator, n, STEPS, d, d) * lengths
    steps = torch.cat([along[:, None], drawn], 1)  # (N, 1 + STEPS, d, d)
    moved = z[:, None].repeat(1, steps.shape[1], 1)
    moved[..., low] += torch.einsum("nkab,nsbc,nc->nska", a, steps, u).flatten(2)
    many = targets[:, None].expand(-1, steps.shape[1], -1)
    change = cells.by_outputs(moved, many) - cells.by_outputs(z, targets)[:, None]  # (N, S, n, d)
    left = torch.einsum("nkab,nska->nsb", a, change[:, :, block:])
    return (left.norm(dim=-1) * right.norm(dim=-1)[:, None] / spectral_norm(steps)).amax(1)


def variance_bounds(cells: LinearCells, block: int) -> dict[str, tuple[Tensor, ...]]:
    """Compares Theorem 4.4 for the block W_i: (printed, corrected, measured), (N,) each, by the measured gradient.

    The variance E|G - E G|^2 is over the samples, with the vector norm of G (d, d) (|A M B| <= |A| |M| |B| with
    spectral norms of A and B is valid for it). sigma_k^2 is the variance of df/dy_k x^T.

    `proof`: the narrowest cell's gradient with the widest cell's df/dy_k, Eq. A.4. The printed bound,
    n sum_{k>=i} (sigma_k (1/lambda_i) prod_{j<=k} lambda_j)^2, is valid, also with n - i + 1, the number of terms.
    `narrow`: the gradient of the narrowest cell. The same is valid with sigma_k at its activations, `corrected`; the
    printed bound uses the widest cell's, at the same weights.
    `uniform`: the same gradient, with sigma_k a bound over all weights, if the objective has one. The narrowest
    cell is a widest one with the weights W_k ... W_1, so the printed bound is valid then.
    """
    x, targets = cells.inputs, cells.objective.targets
    scales = cells.scales(block).square()
    terms = cells.nodes - block

    def sigmas(by_outputs: Tensor) -> Tensor:
        """Computes sigma_k^2 for k = i ... n: (N, n - i + 1)."""
        per_weight = by_outputs[:, :, block:, :, None] * x[:, :, None, None, :]  # (N, M, n - i + 1, d, d)
        return _variance(per_weight.flatten(3))

    wide, narrow = (cells.by_outputs(z, targets) for z in (cells.wide(), cells.narrow()))
    of_wide, of_narrow = ((sigmas(by) * scales).sum(1) for by in (wide, narrow))
    of_proof, measured = (_variance(cells.narrow_gradients(block, by).flatten(2)) for by in (wide, narrow))
    bounds: dict[str, tuple[Tensor, ...]] = {
        "proof": (cells.nodes * of_wide, terms * of_wide, of_proof),
        "narrow": (cells.nodes * of_wide, terms * of_narrow, measured),
    }
    bound = cells.objective.bound
    if bound is not None:
        largest = torch.stack(
            [bound(cells.objective.matrix, cells.blocks(k)) for k in range(block, cells.nodes)], 1
        ).square() * x.square().sum(-1).mean(1, keepdim=True)  # E|g_k x^T|^2 is at least its variance
        everywhere = (largest * scales).sum(1)
        bounds["uniform"] = (cells.nodes * everywhere, terms * everywhere, measured)
    return bounds


def _variance(samples: Tensor) -> Tensor:
    """Computes E|g - E g|^2 over the second axis: (N, M, ..., p) -> (N, ...)."""
    return (samples - samples.mean(1, keepdim=True)).square().sum(-1).mean(1)


def bounds_table(instances: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Compares both theorems on random cells: a row per instance, block, theorem and `gradient` (see above).

    Columns: `instance`, `objective`, `nodes` (n), `width` (d), `norms` (of the weights), `theorem` ("4.3" or "4.4"),
    `gradient` (`proof`, `narrow`, `uniform`), `block` (i, from 1), the `printed` and the `corrected` bound, and the
    `measured` value. Objectives, n, widths and ranges of norms have equally many instances, computed together.

    Raises: InvalidInput for fewer than one instance.
    """
    if instances < 1:
        raise InvalidInput(f"expected at least one instance, got {instances}")
    generator = torch.Generator().manual_seed(seed)
    tables, first = [], 0
    kinds = list(product(OBJECTIVES, NODES, WIDTHS, NORMS))
    for number, (objective, nodes, width, norms) in enumerate(kinds):
        size = instances // len(kinds) + (number < instances % len(kinds))
        if size == 0:
            continue
        cells = draw_cells(size, objective=objective, nodes=nodes, width=width, norms=NORMS[norms], generator=generator)
        kind = (range(first, first + size), cells.objective.name, nodes, width, norms)
        for block in range(cells.nodes):
            theorems = {"4.3": lipschitz_bounds(cells, block, generator), "4.4": variance_bounds(cells, block)}
            for theorem, bounds in theorems.items():
                for gradient, values in bounds.items():
                    row = dict(zip(COLUMNS, (*kind, theorem, gradient, block + 1), strict=True))
                    row |= {name: value.numpy() for name, value in zip(BOUNDS, values, strict=True)}
                    tables.append(pd.DataFrame(row))
        first += size
    return pd.concat(tables, ignore_index=True)
