"""Root of the mean entry of the neural tangent kernel. Shu 2022, Eq. D.11; note P3."""

from __future__ import annotations

from torch import Tensor

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


def root_mean_entry(gram: Tensor) -> float:
    """M_KNAS = sqrt(|sum_ij Theta_ij| / m^2), Eq. D.11: the norm of the mean of the per-sample gradients.

    gram: (m, m). With the per-sample gradients of note P2 this is ||grad sum_i f_{y_i}(x_i)|| / m (note P3).
    """
    return float(gram.double().sum().abs().sqrt() / len(gram))


@proxy(direction="max")
def knas(shared: SharedPass) -> float:
    return root_mean_entry(shared.gram)
