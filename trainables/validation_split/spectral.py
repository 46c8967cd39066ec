"""The upper problem solved by an eigenvector, and the same objective for gradient ascent; notes U6 and U7.

The paper's abstract promises spectral solutions for low-rank and multiple-kernel problems; the two forms here are
derived in note U7, not taken from it. The lower problem takes one gradient step from zero, whose model is linear in
the labels, and the upper one maximises its alignment with the validation labels, for models of norm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from archray.trainables.validation_split.sphere_ascent import Ascent, ascend

NUGGET = 1e-10  # of the metric's mean diagonal entry: candidates of equal features leave it singular


@dataclass(frozen=True)
class RankOneAlignment:
    """f(x) = alpha^T X w, X the (h, p) features of a point; the rank-one matrix alpha w^T is what is learned.

    One step from w = 0 on the training set gives w(alpha) = M_T^T alpha with M_T = mean of y X, (h, p K). The alignment
    of its predictions with the validation labels is mean y alpha^T X w(alpha) = alpha^T M_V M_T^T alpha. Over
    alpha^T G alpha = 1, G the mean of X X^T (so that features have norm 1 on average), its maximum is the top
    generalised eigenvector of the symmetric part of M_V M_T^T and G.

    Attributes:
        train, validation: features (h, n, p). train_labels, validation_labels: (n, K).
        metric: G, (h, h); `feature_metric` of the training points, or the identity for whitened features.
    """

    train: Tensor
    train_labels: Tensor
    validation: Tensor
    validation_labels: Tensor
    metric: Tensor

    def spectral(self) -> Tensor:
        """alpha, (h,), with alpha^T G alpha = 1, the largest entry positive."""
        product = moment(self.validation, self.validation_labels) @ moment(self.train, self.train_labels).T
        symmetric, whiten = (product + product.T) / 2, _whitening(self.metric)
        vectors = torch.linalg.eigh(whiten.T @ symmetric @ whiten).eigenvectors
        return signed(whiten @ vectors[:, -1])

    def ascent(self, start: Tensor, steps: int, tolerance: float = 1e-9) -> tuple[Tensor, Ascent]:
        """Gradient ascent on the same objective, through the validation points as a bilevel search does it.

        start: (h,). Returns: alpha as from `spectral`, and how it was reached.
        """
        whiten = _whitening(self.metric)
        of_train = moment(self.train, self.train_labels)  # w(alpha) = of_train^T alpha
        points = self.validation.shape[1]

        def evaluate(beta: Tensor) -> tuple[float, Tensor]:
            alpha = whiten @ beta
            weights = (of_train.T @ alpha).reshape(self.validation.shape[2], -1)  # (p, K)
            by_alpha = ((self.validation @ weights) * self.validation_labels).sum((1, 2))  # y . X w, (h,)
            by_weights = torch.tensordot(alpha, self.validation, 1).T @ self.validation_labels  # d/dw, (p, K)
            gradient = by_alpha + of_train @ by_weights.flatten()
            return float(alpha @ by_alpha) / points, whiten.T @ gradient / points

        found = ascend(evaluate, start, steps, tolerance)
        return signed(whiten @ found.point), found


@dataclass(frozen=True)
class KernelAlignment:
    """K_alpha = sum_i alpha_i K_i. One functional gradient step gives f(x) = mean over train of y_j K_alpha(x, x_j).

    That is F(x)^T alpha. Its alignment with the validation labels is a^T alpha, a = mean of y F; for |K_alpha| = 1
    between validation and training points in Frobenius' norm (divided by the number of entries) the top generalised
    eigenvector of a a^T and M_ij = <K_i, K_j> is M^-1 a, up to length: as Cortes, Mohri and Rostamizadeh 2012 align
    kernels, here not centred, and with the kernel between the two sets instead of that of one.

    Attributes:
        kernels: (h, n_V, n_T), K_i between validation and training points.
        train_labels: (n_T, K). validation_labels: (n_V, K).
    """

    kernels: Tensor
    train_labels: Tensor
    validation_labels: Tensor

    @property
    def metric(self) -> Tensor:
        """M, (h, h)."""
        flat = self.kernels.flatten(1)
        return flat @ flat.T / flat.shape[1]

    def predictions(self) -> Tensor:
        """F, (h, n_V, K): one step's predictions of every kernel."""
        return self.kernels @ self.train_labels / len(self.train_labels)

    def spectral(self) -> Tensor:
        """alpha, (h,), with alpha^T M alpha = 1."""
        whiten = _whitening(self.metric)
        direction = whiten.T @ (self.predictions() * self.validation_labels).sum((1, 2))
        return whiten @ (direction / torch.linalg.vector_norm(direction))

    def ascent(self, start: Tensor, steps: int, tolerance: float = 1e-9) -> tuple[Tensor, Ascent]:
        """Gradient ascent on the same objective, through kernel, lower step and validation points at each step."""
        whiten, points = _whitening(self.metric), len(self.validation_labels)

        def evaluate(beta: Tensor) -> tuple[float, Tensor]:
            alpha = whiten @ beta
            predicted = torch.tensordot(alpha, self.kernels, 1) @ self.train_labels / len(self.train_labels)
            gradient = ((self.kernels @ self.train_labels) * self.validation_labels).sum((1, 2))
            value = float((predicted * self.validation_labels).sum()) / points
            return value, whiten.T @ gradient / len(self.train_labels) / points

        found = ascend(evaluate, start, steps, tolerance)
        return whiten @ found.point, found


def moment(features: Tensor, labels: Tensor) -> Tensor:
    """The mean of y X over points: (h, p K). features: (h, n, p). labels: (n, K)."""
    return (features.mT @ labels).flatten(1) / len(labels)


def feature_metric(features: Tensor) -> Tensor:
    """The mean of X X^T over points, features (h, n, p): G, (h, h)."""
    flat = features.flatten(1)
    return flat @ flat.T / features.shape[1]


def single_set(train: Tensor, labels: Tensor, metric: Tensor) -> Tensor:
    """What the training points alone would select, as `RankOneAlignment` with them as validation points."""
    return RankOneAlignment(train, labels, train, labels, metric).spectral()


def cosine(one: Tensor, other: Tensor) -> float:
    """|cos| of the angle between two vectors (h,)."""
    return float((one @ other).abs() / torch.linalg.vector_norm(one) / torch.linalg.vector_norm(other))


def signed(alpha: Tensor) -> Tensor:
    """alpha or -alpha, the one whose largest entry is positive: both are the same model."""
    return alpha * alpha[alpha.abs().argmax()].sign()


def _whitening(metric: Tensor) -> Tensor:
    """W with W^T G W = I."""
    nugget = NUGGET * metric.diagonal().mean() * torch.eye(len(metric), dtype=metric.dtype)
    factor = torch.linalg.cholesky(metric + nugget, upper=True)  # G = R^T R
    return torch.linalg.solve_triangular(factor, torch.eye(len(metric), dtype=metric.dtype), upper=True)
