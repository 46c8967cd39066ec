"""Training, validation and test points under the features of h candidates; the lower and upper problem. Note U6."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from scipy.optimize import nnls
from torch import Tensor

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.activations.instances import uniform_on_simplex
from archray.trainables.activations.two_layer import Activation

# The lower problem in closed form: the interpolating model of an architecture, and its derivative.


Form = Literal["activation", "kernels"]


class Prediction(NamedTuple):
    """Of one architecture at n points, K outputs."""

    values: Tensor  # (n, K)
    jacobian: Tensor  # (n, K, h): of the values by alpha, through the solution of the lower problem


class Interpolation(ABC):
    """The models of all architectures over one training set.

    Args:
        train: (h, n_T, p) features psi_i of the training points. labels: (n_T, K).
        ridge: added to the diagonal of the kernel, whose mean entry is about 1.
    """

    def __init__(self, train: Tensor, labels: Tensor, ridge: float = 0.0) -> None:
        self.train, self.labels, self.ridge = train, labels, ridge

    @abstractmethod
    def seen(self, points: Tensor) -> Tensor:
        """What `predict` needs of points with features (h, n, p); made once for many architectures."""

    @abstractmethod
    def predict(self, alpha: Tensor, seen: Tensor) -> Prediction:
        """Of the architecture alpha, (h,). Raises: InvalidInput where the lower problem has no unique solution."""

    def training_loss(self, alpha: Tensor) -> float:
        """Mean square error on the training set: 0 but for the ridge and rounding."""
        return float((self.predict(alpha, self.seen(self.train)).values - self.labels).square().mean())

    def _factor(self, kernel: Tensor) -> Tensor:
        """The Cholesky factor of the training kernel (n_T, n_T) with its ridge."""
        factor, wrong = torch.linalg.cholesky_ex(kernel + self.ridge * torch.eye(len(kernel), dtype=kernel.dtype))
        if wrong.item():
            raise InvalidInput(
                "the features of an architecture do not fit every labelling of the training points: its kernel is "
                "singular; take more features, fewer training points, or a ridge above 0"
            )
        return factor


class Superposition(Interpolation):
    """One network with the activation sum_i alpha_i sigma_i: phi_alpha = sum_i alpha_i psi_i, bilinear in (alpha, w).

    The rank-one form too: f(x) = alpha^T X w with X, (h, p), the features psi_i(x) as rows.
    """

    def seen(self, points: Tensor) -> Tensor:
        return points  # (h, n, p)

    def predict(self, alpha: Tensor, seen: Tensor) -> Prediction:
        phi = torch.tensordot(alpha, self.train, 1)  # (n_T, p)
        factor = self._factor(phi @ phi.T)
        dual = torch.cholesky_solve(self.labels, factor)  # c = A^-1 y, (n_T, K)
        weights = phi.T @ dual  # w = phi^T c, (p, K)
        # dw/dalpha_i = psi_i^T c - phi^T A^-1 (psi_i w + phi psi_i^T c)
        own = self.train.mT @ dual  # psi_i^T c, (h, p, K)
        change = self.train @ weights + phi @ own  # (h, n_T, K)
        slopes = own - phi.T @ torch.cholesky_solve(change, factor.expand(len(alpha), -1, -1))  # (h, p, K)
        at = torch.tensordot(alpha, seen, 1)  # (n, p)
        jacobian = seen @ weights + at @ slopes  # (h, n, K)
        return Prediction(at @ weights, jacobian.permute(1, 2, 0))


class MultipleKernels(Interpolation):
    """A network of every activation beside each other, weighed by alpha: the kernel is sum_i alpha_i K_i."""

    def __init__(self, train: Tensor, labels: Tensor, ridge: float = 0.0) -> None:
        super().__init__(train, labels, ridge)
        self.kernels = train @ train.mT  # (h, n_T, n_T)

    def seen(self, points: Tensor) -> Tensor:
        return points @ self.train.mT  # (h, n, n_T)

    def predict(self, alpha: Tensor, seen: Tensor) -> Prediction:
        factor = self._factor(torch.tensordot(alpha, self.kernels, 1))
        dual = torch.cholesky_solve(self.labels, factor)  # (n_T, K)
        # df/dalpha_i = K_i(x, T) c - K(x, T) A^-1 K_i c
        change = torch.cholesky_solve(self.kernels @ dual, factor.expand(len(alpha), -1, -1))  # (h, n_T, K)
        at = torch.tensordot(alpha, seen, 1)  # (n, n_T)
        jacobian = seen @ dual - at @ change  # (h, n, K)
        return Prediction(at @ dual, jacobian.permute(1, 2, 0))


FORMS: dict[Form, type[Interpolation]] = {"activation": Superposition, "kernels": MultipleKernels}


# Features of a two-layer network in the lazy regime, for each of several activations.


Layers = Literal["output", "both"]  # which layers learn: random features, or the tangent features of both


class RandomFeatures:
    """psi_i(x) in R^p of h activations, all with one random first layer W, (m, d), and signs v, (m,).

    `output`: sigma_i(W x) / sqrt(m), so p = m. `both`: beside it v sigma_i'(W x) x^T / sqrt(m), so p = m (1 + d): the
    gradient of v^T sigma_i(W x) by v and W. The gradient at sigma_alpha = sum_i alpha_i sigma_i is then
    sum_i alpha_i psi_i(x): the features are linear in the architecture.

    Rows of W are N(0, I / d), for inputs of mean square 1 in each coordinate. Each activation is scaled so that
    |psi_i(x)|^2 is 1 on average over the points that `fit` is given.

    Args:
        activations: h of them. width: m. inputs: d.
    """

    def __init__(
        self, activations: Sequence[Activation], inputs: int, width: int, layers: Layers, rng: torch.Generator
    ) -> None:
        self.activations, self.layers = list(activations), layers
        self.first = torch.randn(width, inputs, generator=rng, dtype=torch.float64) / math.sqrt(inputs)
        self.signs = torch.randint(0, 2, (width,), generator=rng).double() * 2 - 1
        self.scales = torch.ones(len(self.activations), dtype=torch.float64)

    @property
    def dimension(self) -> int:
        """p."""
        width, inputs = self.first.shape
        return feature_dimension(width, inputs, self.layers)

    def fit(self, points: Tensor) -> "RandomFeatures":
        """Sets the scales. points: (n, d)."""
        self.scales = torch.ones_like(self.scales)
        self.scales = self(points).square().sum(-1).mean(-1).rsqrt()
        return self

    def __call__(self, points: Tensor) -> Tensor:
        """psi of points (n, d): (h, n, p)."""
        before = points @ self.first.T  # (n, m)
        return torch.stack([self._of(one, before, points) for one in self.activations]) * self.scales[:, None, None]

    def _of(self, activation: Activation, before: Tensor, points: Tensor) -> Tensor:
        width = len(self.first)
        output = activation(before) / math.sqrt(width)
        if self.layers == "output":
            return output
        at = before.clone().requires_grad_()
        [slopes] = torch.autograd.grad(activation(at).sum(), at)  # sigma'(W x): the function is elementwise
        slopes = slopes * self.signs / math.sqrt(width)
        return torch.cat([output, (slopes[:, :, None] * points[:, None, :]).flatten(1)], 1)


def feature_dimension(width: int, inputs: int, layers: Layers) -> int:
    """p of `RandomFeatures`."""
    return width if layers == "output" else width * (1 + inputs)


def scaled(activation: Activation, scale: float) -> Activation:
    """x -> activation(scale x): a candidate of its own, a faster one."""
    return lambda values: activation(scale * values)


# The upper problem: validation loss, hyper-gradient, and the architecture that they select.


DAMPING = 1e-3  # of the first step, of the curvature's mean diagonal entry
LESS, MORE = 0.2, 5.0  # what damping becomes after a step that lowered the loss, and one that did not
LEAST, MOST = 1e-10, 1e8  # damping: positive definite in float64 with it; and at which a step changes nothing
SUM_WEIGHT = 1e4  # of the row that holds the sum of the weights at 1, beside the problem's largest entry


class PointLosses(NamedTuple):
    """Of one architecture, point by point: a prefix's mean is what a smaller validation set would say."""

    losses: Tensor  # (n,): mean square error over the K outputs
    gradients: Tensor  # (n, h): of the losses by alpha


class Descent(NamedTuple):
    """What descent on a validation set came to."""

    alpha: Tensor  # (h,)
    loss: float  # on the validation set
    steps: int
    gap: float  # an upper bound on what a linear model of the loss could still gain on the simplex, Frank-Wolfe's


@dataclass(frozen=True)
class PointSet:
    """Points to judge an architecture on, seen by one training set's models. labels: (n, K)."""

    lower: Interpolation
    seen: Tensor  # of `lower.seen`: (h, n, ...)
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, points: int) -> "PointSet":
        """The first `points` of them."""
        return PointSet(self.lower, self.seen[:, :points], self.labels[:points])

    def point_losses(self, alpha: Tensor) -> PointLosses:
        """L and its exact hyper-gradient, dL/dalpha through the lower problem's solution, at each point."""
        values, jacobian = self.lower.predict(alpha, self.seen)
        residuals = values - self.labels  # (n, K)
        gradients = 2 * torch.einsum("nk,nkh->nh", residuals, jacobian) / residuals.shape[1]
        return PointLosses(residuals.square().mean(1), gradients)

    def second_order(self, alpha: Tensor) -> tuple[float, Tensor, Tensor]:
        """The mean loss, its hyper-gradient (h,), and Gauss and Newton's curvature 2 J^T J / n, (h, h)."""
        values, jacobian = self.lower.predict(alpha, self.seen)
        residuals, slopes = (values - self.labels).flatten(), jacobian.flatten(0, 1)  # (nK,), (nK, h)
        entries = len(residuals)
        curvature = 2 * slopes.T @ slopes / entries
        return float(residuals.square().mean()), 2 * residuals @ slopes / entries, curvature

    def loss(self, alpha: Tensor) -> float:
        """Mean square error."""
        return float(self.point_losses(alpha).losses.mean())


def select(points: PointSet, start: Tensor, steps: int, tolerance: float = 1e-5) -> Descent:
    """Levenberg and Marquardt's descent on the simplex; the loss never grows.

    1. g, H: the hyper-gradient and 2 J^T J / n of the residuals' derivatives on these points;
    2. proposal = argmin over the simplex of g^T (a - alpha) + 1/2 (a - alpha)^T (H + damping I) (a - alpha);
    3. taken if the loss is lower, and damping falls; else damping grows.

    Exponentiated gradient has the same limits and takes a hundred times as many steps: H is ill-conditioned.

    Args:
        start: (h,) on the simplex. steps: at most, evaluations of loss and gradient.
        tolerance: ends once Frank-Wolfe's gap, alpha^T g - min_i g_i, is below this times the loss.
    """
    alpha, taken, damping = start, 0, DAMPING
    loss, gradient, curvature = points.second_order(alpha)
    while taken < steps and damping < MOST and _gap(alpha, gradient) > tolerance * loss:
        unit = float(curvature.diagonal().mean()) * torch.eye(len(alpha), dtype=alpha.dtype)
        proposal = simplex_quadratic(curvature + damping * unit, gradient, alpha)
        new = points.second_order(proposal)
        taken += 1
        if new[0] < loss:
            alpha, (loss, gradient, curvature) = proposal, new
            damping = max(LEAST, LESS * damping)
        else:
            damping *= MORE
    return Descent(alpha, loss, taken, _gap(alpha, gradient))


def select_best(points: PointSet, starts: Tensor, steps: int) -> Descent:
    """The best, by the loss on these points, of descents from several starts (S, h): the loss is not convex."""
    return min((select(points, start, steps) for start in starts), key=lambda descent: descent.loss)


def simplex_quadratic(matrix: Tensor, gradient: Tensor, centre: Tensor) -> Tensor:
    """argmin over the simplex of g^T (a - c) + 1/2 (a - c)^T Q (a - c), by non-negative least squares.

    matrix: Q, (h, h), positive definite. gradient: g, centre: c, (h,).
    """
    factor = torch.linalg.cholesky(matrix, upper=True)  # Q = R^T R
    target = factor @ centre - torch.linalg.solve_triangular(factor.T, gradient[:, None], upper=False)[:, 0]
    weight = SUM_WEIGHT * float(factor.abs().max())
    rows = torch.cat([factor, torch.full((1, len(centre)), weight, dtype=factor.dtype)])
    solution, _ = nnls(rows.numpy(), torch.cat([target, target.new_tensor([weight])]).numpy())
    return torch.from_numpy(solution / solution.sum())


def _gap(alpha: Tensor, gradient: Tensor) -> float:
    return float((alpha * gradient).sum() - gradient.min())


Teacher = Literal["sparse", "dense"]
SPARSE = 2  # candidates that a sparse teacher has, the first ones


@dataclass(frozen=True)
class Points:
    """Inputs (n, d), of mean square about 1 in each coordinate, and labels (n, K), both float64."""

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class SplitProblem:
    """The models of all architectures over the training points, and what they are judged on."""

    lower: Interpolation
    validation: PointSet
    test: PointSet
    teacher: Tensor | None = None  # (h,): the architecture that made the labels, where one did

    @property
    def parameters(self) -> int:
        """h, of the architecture."""
        return len(self.lower.train)


def teacher_problem(
    activations: Sequence[Activation],
    *,
    inputs: int,
    width: int,
    layers: Layers = "output",
    form: Form = "activation",
    sizes: tuple[int, int, int],
    teacher: Teacher = "sparse",
    noise: float = 0.1,
    ridge: float = 0.0,
    seed: int = 0,
) -> SplitProblem:
    """Gaussian inputs, labels by an architecture alpha* of the candidates' own: a draw of its Gaussian process.

    y = phi_alpha*(x) w + noise, w standard normal, scaled so that y without noise has variance 1. With the kernel of
    alpha* the interpolation is what a Gaussian process with the true covariance predicts from labels without noise, so
    no architecture has a smaller expected test loss. A sparse alpha* is uniform on the first two candidates, a dense
    one is uniform on the simplex.

    Args:
        inputs: d. width: see `RandomFeatures`. sizes: of training, validation and test set.
        noise: standard deviation of the labels' noise. ridge: see `Interpolation`.
    """
    rng = torch.Generator().manual_seed(seed)
    h, points = len(activations), sum(sizes)
    x = torch.randn(points, inputs, generator=rng, dtype=torch.float64)
    features = RandomFeatures(activations, inputs, width, layers, rng)
    psi = features.fit(x[: sizes[0]])(x)  # (h, n, p)
    alpha = _teacher(teacher, h, rng)
    if form == "activation":
        y = torch.tensordot(alpha, psi, 1) @ torch.randn(psi.shape[2], generator=rng, dtype=torch.float64)
    else:  # features beside each other, each with weights of its own
        weights = torch.randn(h, psi.shape[2], 1, generator=rng, dtype=torch.float64)
        y = torch.tensordot(alpha.sqrt(), (psi @ weights)[:, :, 0], 1)
    y = y / y.std() + noise * torch.randn(points, generator=rng, dtype=torch.float64)
    return _problem(psi, y[:, None], sizes, form, ridge, alpha)


def data_problem(
    activations: Sequence[Activation],
    pool: Points,
    test: Points,
    *,
    width: int,
    layers: Layers = "output",
    form: Form = "activation",
    sizes: tuple[int, int, int],
    ridge: float = 0.0,
    seed: int = 0,
) -> SplitProblem:
    """Training and validation points drawn from `pool`, test points from `test`; `sizes` of the three.

    Raises: InvalidInput where the data hold fewer.
    """
    rng = torch.Generator().manual_seed(seed)
    train, validation, tested = sizes
    check_points(len(pool.labels), len(test.labels), sizes)
    own = torch.randperm(len(pool.labels), generator=rng)[: train + validation]
    others = torch.randperm(len(test.labels), generator=rng)[:tested]
    x = torch.cat([pool.inputs[own], test.inputs[others]])
    y = torch.cat([pool.labels[own], test.labels[others]])
    features = RandomFeatures(activations, x.shape[1], width, layers, rng)
    return _problem(features.fit(x[:train])(x), y, sizes, form, ridge, None)


def check_points(pool: int, test: int, sizes: tuple[int, int, int]) -> None:
    """Whether data with so many points hold `sizes` of training, validation and test points. Raises: InvalidInput."""
    train, validation, tested = sizes
    if train + validation > pool:
        raise InvalidInput(
            f"the data have {count(pool, 'point')} to train and validate on, expected {train} for training and up to "
            f"{validation} for validation; lower the largest of validation_sizes to {max(0, pool - train)} or less, or "
            "train_size"
        )
    if tested > test:
        raise InvalidInput(f"the data have {count(test, 'test point')}, expected {tested}; set test_size to {test}")


def points_of(images: Tensor, labels: Tensor, classes: int, mean: Tensor, scale: Tensor) -> Points:
    """Images (n, ...) as points, one class against the rest: labels +1 and -1, K = `classes`, 1 output of two classes.

    mean: (d,), subtracted. scale: divided by; both of the pool, see `input_scale`.
    """
    x = (images.flatten(1).double() - mean) / scale
    if classes == 2:
        return Points(x, labels.double()[:, None] * 2 - 1)
    return Points(x, torch.nn.functional.one_hot(labels, classes).double() * 2 - 1)


def input_scale(images: Tensor) -> tuple[Tensor, Tensor]:
    """The mean point (d,) and the one number after which coordinates have mean square 1."""
    x = images.flatten(1).double()
    mean = x.mean(0)
    return mean, (x - mean).square().mean().sqrt()


def _problem(
    psi: Tensor, y: Tensor, sizes: tuple[int, int, int], form: Form, ridge: float, teacher: Tensor | None
) -> SplitProblem:
    train, validation, _ = sizes
    lower = FORMS[form](psi[:, :train].contiguous(), y[:train], ridge)
    parts = (slice(train, train + validation), slice(train + validation, None))
    held_out, test = (PointSet(lower, lower.seen(psi[:, part]), y[part]) for part in parts)
    return SplitProblem(lower, held_out, test, teacher)


def _teacher(kind: Teacher, h: int, rng: torch.Generator) -> Tensor:
    if kind == "dense":
        return uniform_on_simplex(h, generator=rng)
    chosen = min(SPARSE, h)
    return torch.cat([torch.full((chosen,), 1 / chosen), torch.zeros(h - chosen)]).double()
