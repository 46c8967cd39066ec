"""The lower problem in closed form: the interpolating model of an architecture, and its derivative; note U6.

With features phi_alpha of the training points, (n_T, p), p > n_T, the model of least norm that fits the labels is
f(x) = phi_alpha(x) phi_alpha^T (phi_alpha phi_alpha^T + ridge I)^-1 y; the ridge is 0 or light.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from archray.errors import InvalidInput

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
