"""The alpha that is best for given weights, exactly: a small quadratic problem on the simplex. Note U5."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor


def best_alpha(components: Tensor, labels: Tensor) -> Tensor:
    """argmin over the simplex of 1/2 E (y - G alpha)^2: components (S, n, h) and labels (S, n) give (S, h).

    On the simplex y - G alpha = (y 1^T - G) alpha = B alpha. For u >= 0 of any sum, ||B u||^2 + (1^T u - 1)^2 has its
    minimum along the ray of alpha at ||B alpha||^2 / (1 + ||B alpha||^2), which grows with ||B alpha||: so the
    non-negative least squares solution, an active-set method's, divided by its sum, is the minimiser.
    """
    best = [_minimiser(one.cpu().numpy(), other.cpu().numpy()) for one, other in zip(components, labels, strict=True)]
    return torch.as_tensor(np.stack(best), dtype=components.dtype, device=components.device)


def _minimiser(components: np.ndarray, labels: np.ndarray) -> np.ndarray:
    residuals = (labels[:, None] - components) / np.sqrt(len(labels))  # B, (n, h)
    triangle = np.asarray(np.linalg.qr(residuals, mode="r"))  # as many rows as columns, and the same norms
    scale = max(np.linalg.norm(triangle, 2), np.finfo(float).tiny)
    system = np.vstack([triangle / scale, np.ones(components.shape[1])])
    solution, _ = nnls(system, np.append(np.zeros(len(triangle)), 1.0))
    alpha: np.ndarray = solution / solution.sum()
    return alpha
