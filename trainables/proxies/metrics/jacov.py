"""How little the gradients by the images correlate. Mellor et al. 2021, in its first version (arXiv:2006.04647v1)."""

from __future__ import annotations

import torch
from torch import Tensor

from archray.trainables.proxies.correlations import OFFSET, correlations
from archray.trainables.proxies.proxy_registry import NoScore, proxy
from archray.trainables.proxies.shared_pass import SharedPass


def divergence(matrix: Tensor) -> float:
    """-sum_i [log(v_i + k) + 1 / (v_i + k)], v the eigenvalues of the correlation matrix and k = 1e-5.

    It is largest, -m, where all correlations are zero. matrix: (m, m) symmetric.
    """
    shifted = torch.linalg.eigvalsh(matrix.double()) + OFFSET
    if not bool((shifted > 0).all()):
        raise NoScore(
            f"the correlations of the gradients by the images have an eigenvalue of {shifted[0] - OFFSET:.3g}"
        )
    return -float((shifted.log() + 1 / shifted).sum())


@proxy(direction="max")
def jacov(shared: SharedPass) -> float:
    return divergence(correlations(shared.image_gradients))
