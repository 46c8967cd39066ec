"""Root of the mean diagonal of the neural tangent kernel. Shu 2022, Eq. 7.4."""

from __future__ import annotations

from torch import Tensor

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


def root_mean_trace(gram: Tensor) -> float:
    """M_trace = sqrt(tr(Theta) / m), Eq. 7.4. gram: (m, m)."""
    return float((gram.trace() / len(gram)).sqrt())


@proxy(direction="max")
def ntk_trace(shared: SharedPass) -> float:
    return root_mean_trace(shared.gram)
