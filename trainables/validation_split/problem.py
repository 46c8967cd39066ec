"""Training, validation and test points with the features of h candidates; the lower and upper problem. Note U6."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.optimize import nnls
from torch import Tensor

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.activations.instances import uniform_on_simplex
from archray.trainables.activations.two_layer import Activation
from archray.trainables.data.dataset import Dataset
from archray.trainables.validation_split.settings import Form, Layers, SplitSettings, Teacher

# The lower problem in closed form: the interpolating model of an architecture, and its derivative.


class Prediction(NamedTuple):
    """The K outputs of one architecture at n points."""

    values: Tensor  # (n, K)
    jacobian: Tensor  # (n, K, h): of the values by alpha, through the solution of the lower problem


class Interpolation(ABC):
    """Base class: the models of all architectures over one training set.

    Args:
        train: (h, n_T, p) features psi_i of the training points.
        labels: (n_T, K).
        ridge: Added to the diagonal of the kernel, whose mean entry is about 1.
    """

    def __init__(self, train: Tensor, labels: Tensor, ridge: float = 0.0) -> None:
        self.train, self.labels, self.ridge = train, labels, ridge

    @abstractmethod
    def represent(self, points: Tensor) -> Tensor:
        """Returns the input of `predict` for points with features (h, n, p), for all architectures."""

    @abstractmethod
    def predict(self, alpha: Tensor, representation: Tensor) -> Prediction:
        """Predicts with the architecture alpha, (h,). Raises: InvalidInput without a unique solution."""

    def training_loss(self, alpha: Tensor) -> float:
        """Computes the mean square error on the training set: 0 except for the ridge and rounding."""
        return float((self.predict(alpha, self.represent(self.train)).values - self.labels).square().mean())

    def _factor(self, kernel: Tensor) -> Tensor:
        """Computes the Cholesky factor of the training kernel (n_T, n_T) with its ridge."""
        factor, wrong = torch.linalg.cholesky_ex(kernel + self.ridge * torch.eye(len(kernel), dtype=kernel.dtype))
        if wrong.item():
            raise InvalidInput(
                "expected features of an architecture that fit all labels of the training points, got a singular "
                "kernel. "
                "Use more features, fewer training points, or a ridge above 0"
            )
        return factor


class Superposition(Interpolation):
    """One network with the activation sum_i alpha_i sigma_i: phi_alpha = sum_i alpha_i psi_i, bilinear in (alpha, w).

    Also the rank-one form: f(x) = alpha^T X w with X, (h, p), the features psi_i(x) as rows.
    """

    def represent(self, points: Tensor) -> Tensor:
        return points  # (h, n, p)

    def predict(self, alpha: Tensor, representation: Tensor) -> Prediction:
        phi = torch.tensordot(alpha, self.train, 1)  # (n_T, p)
        factor = self._factor(phi @ phi.T)
        dual = torch.cholesky_solve(self.labels, factor)  # c = A^-1 y, (n_T, K)
        weights = phi.T @ dual  # w = phi^T c, (p, K)
        # dw/dalpha_i = psi_i^T c - phi^T A^-1 (psi_i w + phi psi_i^T c)
        direct = self.train.mT @ dual  # psi_i^T c, (h, p, K)
        change = self.train @ weights + phi @ direct  # (h, n_T, K)
        slopes = direct - phi.T @ torch.cholesky_solve(change, factor.expand(len(alpha), -1, -1))  # (h, p, K)
        at = torch.tensordot(alpha, representation, 1)  # (n, p)
        jacobian = representation @ weights + at @ slopes  # (h, n, K)
        return Prediction(at @ weights, jacobian.permute(1, 2, 0))


class MultipleKernels(Interpolation):
    """A network with a layer for every activation, weighted by alpha: the kernel is sum_i alpha_i K_i."""

    def __init__(self, train: Tensor, labels: Tensor, ridge: float = 0.0) -> None:
        super().__init__(train, labels, ridge)
        self.kernels = train @ train.mT  # (h, n_T, n_T)

    def represent(self, points: Tensor) -> Tensor:
        return points @ self.train.mT  # (h, n, n_T)

    def predict(self, alpha: Tensor, representation: Tensor) -> Prediction:
        factor = self._factor(torch.tensordot(alpha, self.kernels, 1))
        dual = torch.cholesky_solve(self.labels, factor)  # (n_T, K)
        # df/dalpha_i = K_i(x, T) c - K(x, T) A^-1 K_i c
        change = torch.cholesky_solve(self.kernels @ dual, factor.expand(len(alpha), -1, -1))  # (h, n_T, K)
        at = torch.tensordot(alpha, representation, 1)  # (n, n_T)
        jacobian = representation @ dual - at @ change  # (h, n, K)
        return Prediction(at @ dual, jacobian.permute(1, 2, 0))


FORMS: dict[Form, type[Interpolation]] = {"activation": Superposition, "kernels": MultipleKernels}


class RandomFeatures:
    """psi_i(x) in R^p of h activations in the lazy regime, with common random W, (m, d), and signs v, (m,).

    `output`: sigma_i(W x) / sqrt(m), so p = m. `both`: also v sigma_i'(W x) x^T / sqrt(m), so p = m (1 + d): the
    gradient of v^T sigma_i(W x) by v and W. The gradient at sigma_alpha = sum_i alpha_i sigma_i is then
    sum_i alpha_i psi_i(x), so that the features are linear in the architecture.

    Rows of W are N(0, I / d), for inputs with mean square 1 in each coordinate. Each activation is scaled so that
    |psi_i(x)|^2 is 1 on average over the points of `fit`.

    Args:
        activations: h activations.
        width: m.
        inputs: d.
    """

    def __init__(
        self, activations: Sequence[Activation], inputs: int, width: int, layers: Layers, rng: torch.Generator
    ) -> None:
        self.activations, self.layers = list(activations), layers
        self.first = torch.randn(width, inputs, generator=rng, dtype=torch.float64) / math.sqrt(inputs)
        self.signs = torch.randint(0, 2, (width,), generator=rng).double() * 2 - 1
        self.scales = torch.ones(len(self.activations), dtype=torch.float64)

    def fit(self, points: Tensor) -> "RandomFeatures":
        """Sets the scales. points: (n, d)."""
        self.scales = torch.ones_like(self.scales)
        self.scales = self(points).square().sum(-1).mean(-1).rsqrt()
        return self

    def __call__(self, points: Tensor) -> Tensor:
        """Computes psi of points (n, d): (h, n, p)."""
        before = points @ self.first.T  # (n, m)
        features = [self._features(activation, before, points) for activation in self.activations]
        return torch.stack(features) * self.scales[:, None, None]

    def _features(self, activation: Activation, before: Tensor, points: Tensor) -> Tensor:
        width = len(self.first)
        output = activation(before) / math.sqrt(width)
        if self.layers == "output":
            return output
        at = before.clone().requires_grad_()
        [slopes] = torch.autograd.grad(activation(at).sum(), at)  # sigma'(W x), as the function is elementwise
        slopes = slopes * self.signs / math.sqrt(width)
        return torch.cat([output, (slopes[:, :, None] * points[:, None, :]).flatten(1)], 1)


def feature_dimension(width: int, inputs: int, layers: Layers) -> int:
    """Returns p of `RandomFeatures`."""
    return width if layers == "output" else width * (1 + inputs)


def scaled(activation: Activation, scale: float) -> Activation:
    """Returns x -> activation(scale x)."""
    return lambda values: activation(scale * values)


# The upper problem: validation loss, hyper-gradient, and the architecture that they select.

DAMPING = 1e-3  # of the first step, relative to the curvature's mean diagonal entry
LESS, MORE = 0.2, 5.0  # factors of damping after a step that lowered the loss, and after one that did not
LEAST, MOST = 1e-10, 1e8  # damping: keeps the curvature positive definite in float64; makes a step negligible
SUM_WEIGHT = 1e4  # of the row for the sum of the weights, 1, relative to the problem's largest entry


class PointLosses(NamedTuple):
    """Losses of one architecture, point by point. The mean of a prefix is the value of a smaller validation set."""

    losses: Tensor  # (n,): mean square error over the K outputs
    gradients: Tensor  # (n, h): of the losses by alpha


class Descent(NamedTuple):
    """The result of descent on a validation set."""

    alpha: Tensor  # (h,)
    loss: float  # on the validation set
    steps: int
    gap: float  # upper bound on the gain by a linear model of the loss on the simplex (Frank-Wolfe)


@dataclass(frozen=True)
class PointSet:
    """Points for the loss of an architecture, as input of one training set's models. labels: (n, K)."""

    lower: Interpolation
    representation: Tensor  # from `lower.represent`: (h, n, ...)
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, points: int) -> "PointSet":
        """Returns the first `points` points."""
        return PointSet(self.lower, self.representation[:, :points], self.labels[:points])

    def point_losses(self, alpha: Tensor) -> PointLosses:
        """Computes L and its exact hyper-gradient, dL/dalpha through the lower problem's solution, at each point."""
        values, jacobian = self.lower.predict(alpha, self.representation)
        residuals = values - self.labels  # (n, K)
        gradients = 2 * torch.einsum("nk,nkh->nh", residuals, jacobian) / residuals.shape[1]
        return PointLosses(residuals.square().mean(1), gradients)

    def second_order(self, alpha: Tensor) -> tuple[float, Tensor, Tensor]:
        """Computes the mean loss, its hyper-gradient (h,), and the Gauss-Newton curvature 2 J^T J / n, (h, h)."""
        values, jacobian = self.lower.predict(alpha, self.representation)
        residuals, slopes = (values - self.labels).flatten(), jacobian.flatten(0, 1)  # (nK,), (nK, h)
        entries = len(residuals)
        curvature = 2 * slopes.T @ slopes / entries
        return float(residuals.square().mean()), 2 * residuals @ slopes / entries, curvature

    def loss(self, alpha: Tensor) -> float:
        """Computes the mean square error."""
        return float(self.point_losses(alpha).losses.mean())


def select(points: PointSet, start: Tensor, steps: int, tolerance: float = 1e-5) -> Descent:
    """Levenberg-Marquardt descent on the simplex; the loss never increases.

    1. g, H: the hyper-gradient and 2 J^T J / n of the residuals' derivatives on these points.
    2. proposal = argmin over the simplex of g^T (a - alpha) + 1/2 (a - alpha)^T (H + damping I) (a - alpha).
    3. If the loss is lower, the proposal is accepted, and damping decreases; otherwise damping increases.

    Exponentiated gradient has the same limits but takes a hundred times as many steps, because H is ill-conditioned.

    Args:
        start: (h,) on the simplex.
        steps: Maximum number of evaluations of loss and gradient.
        tolerance: Stops when Frank-Wolfe's gap, alpha^T g - min_i g_i, is below this times the loss.
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
    """Returns the best descent, by the loss on these points, from several starts (S, h): the loss is not convex."""
    return min((select(points, start, steps) for start in starts), key=lambda descent: descent.loss)


def simplex_quadratic(matrix: Tensor, gradient: Tensor, center: Tensor) -> Tensor:
    """Computes argmin over the simplex of g^T (a - c) + 1/2 (a - c)^T Q (a - c), by non-negative least squares.

    matrix: Q, (h, h), positive definite. gradient: g, center: c, (h,).
    """
    factor = torch.linalg.cholesky(matrix, upper=True)  # Q = R^T R
    target = factor @ center - torch.linalg.solve_triangular(factor.T, gradient[:, None], upper=False)[:, 0]
    weight = SUM_WEIGHT * float(factor.abs().max())
    rows = torch.cat([factor, torch.full((1, len(center)), weight, dtype=factor.dtype)])
    solution, _ = nnls(rows.numpy(), torch.cat([target, target.new_tensor([weight])]).numpy())
    return torch.from_numpy(solution / solution.sum())


def _gap(alpha: Tensor, gradient: Tensor) -> float:
    return float((alpha * gradient).sum() - gradient.min())


SPARSE = 2  # number of candidates of a sparse teacher, the first ones


@dataclass(frozen=True)
class Points:
    """Inputs (n, d), with mean square about 1 in each coordinate, and labels (n, K), both float64."""

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class SplitProblem:
    """The models of all architectures over the training points, and the points for their losses."""

    lower: Interpolation
    validation: PointSet
    test: PointSet
    teacher: Tensor | None = None  # (h,): the architecture that generated the labels, if any

    @property
    def parameters(self) -> int:
        """h, the number of parameters of the architecture."""
        return len(self.lower.train)


def teacher_problem(
    activations: Sequence[Activation], settings: SplitSettings, form: Form, seed: int = 0
) -> SplitProblem:
    """Creates Gaussian inputs with labels by an architecture alpha* of the candidates: a draw of its Gaussian process.

    y = phi_alpha*(x) w + noise, w standard normal, scaled so that y without noise has variance 1. With the kernel of
    alpha*, interpolation is the prediction of a Gaussian process with the true covariance from labels without noise,
    so no architecture has a smaller expected test loss. A sparse alpha* is uniform on the first two candidates, a dense
    one is uniform on the simplex.
    """
    rng = torch.Generator().manual_seed(seed)
    h, points = len(activations), sum(settings.sizes)
    x = torch.randn(points, settings.inputs, generator=rng, dtype=torch.float64)
    features = RandomFeatures(activations, settings.inputs, settings.width, settings.layers, rng)
    psi = features.fit(x[: settings.train_size])(x)  # (h, n, p)
    alpha = _teacher(settings.teacher, h, rng)
    if form == "activation":
        y = torch.tensordot(alpha, psi, 1) @ torch.randn(psi.shape[2], generator=rng, dtype=torch.float64)
    else:  # each candidate's features have separate weights
        weights = torch.randn(h, psi.shape[2], 1, generator=rng, dtype=torch.float64)
        y = torch.tensordot(alpha.sqrt(), (psi @ weights)[:, :, 0], 1)
    y = y / y.std() + settings.noise * torch.randn(points, generator=rng, dtype=torch.float64)
    return _problem(psi, y[:, None], settings, form, alpha)


def data_problem(
    activations: Sequence[Activation], settings: SplitSettings, pool: Points, test: Points, form: Form, seed: int = 0
) -> SplitProblem:
    """Draws training and validation points from `pool`, test points from `test`.

    Raises: InvalidInput if the data have fewer points than the `sizes` in `settings`.
    """
    rng = torch.Generator().manual_seed(seed)
    train, validation, tested = settings.sizes
    check_points(len(pool.labels), len(test.labels), settings.sizes)
    of_pool = torch.randperm(len(pool.labels), generator=rng)[: train + validation]
    of_test = torch.randperm(len(test.labels), generator=rng)[:tested]
    x = torch.cat([pool.inputs[of_pool], test.inputs[of_test]])
    y = torch.cat([pool.labels[of_pool], test.labels[of_test]])
    features = RandomFeatures(activations, x.shape[1], settings.width, settings.layers, rng)
    return _problem(features.fit(x[:train])(x), y, settings, form, None)


def check_points(pool: int, test: int, sizes: tuple[int, int, int]) -> None:
    """Raises: InvalidInput if the data have too few points for the `sizes` of training, validation and test set."""
    train, validation, tested = sizes
    if train + validation > pool:
        raise InvalidInput(
            f"expected {train} points for training and up to {validation} for validation, got {count(pool, 'point')} "
            f"for both. Lower the largest of validation_sizes to {max(0, pool - train)} or less, or train_size"
        )
    if tested > test:
        raise InvalidInput(f"expected {tested} test points, got {count(test, 'point')}. Set test_size to {test}")


def points_of(data: Dataset) -> tuple[Points, Points]:
    """Returns the pool of training and validation images, and the test images, with labels +1 and -1 per class.

    K is the number of classes, each against the rest, or 1 for two. Coordinates are relative to the pool's mean, with
    mean square 1 over all.
    """

    def points(images: Tensor, labels: Tensor) -> Points:
        one_hot = labels[:, None] if data.num_classes == 2 else torch.nn.functional.one_hot(labels, data.num_classes)
        return Points((images.flatten(1).double() - mean) / scale, one_hot.double() * 2 - 1)

    images = torch.cat([data.train.images, data.validation.images])
    labels = torch.cat([data.train.labels, data.validation.labels])
    x = images.flatten(1).double()
    mean = x.mean(0)
    scale = (x - mean).square().mean().sqrt()
    return points(images, labels), points(data.test.images, data.test.labels)


def _problem(psi: Tensor, y: Tensor, settings: SplitSettings, form: Form, teacher: Tensor | None) -> SplitProblem:
    train, validation, _ = settings.sizes
    lower = FORMS[form](psi[:, :train].contiguous(), y[:train], settings.ridge)
    parts = (slice(train, train + validation), slice(train + validation, None))
    held_out, test = (PointSet(lower, lower.represent(psi[:, part]), y[part]) for part in parts)
    return SplitProblem(lower, held_out, test, teacher)


def _teacher(kind: Teacher, h: int, rng: torch.Generator) -> Tensor:
    if kind == "dense":
        return uniform_on_simplex(h, generator=rng)
    chosen = min(SPARSE, h)
    return torch.cat([torch.full((chosen,), 1 / chosen), torch.zeros(h - chosen)]).double()
