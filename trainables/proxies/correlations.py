"""How alike a network finds images: its gradients by them, correlated. Mellor et al. 2021; Lopes et al. 2021."""

from __future__ import annotations

from torch import Tensor

from archray.trainables.proxies.proxy_registry import NoScore

# k of both papers: what keeps the logarithm of an eigenvalue, or of a correlation, finite.
OFFSET = 1e-5


def correlations(rows: Tensor) -> Tensor:
    """(m, m) float64: Pearson's correlation of each two of `rows` (m, d).

    Raises: NoScore if a row is constant or not finite, so that it correlates with nothing.
    """
    centred = rows.double() - rows.double().mean(1, keepdim=True)
    norms = centred.norm(dim=1, keepdim=True)
    if not bool((norms > 0).all() and norms.isfinite().all()):
        raise NoScore("the output's gradient by an image is constant or not finite, so it correlates with no other")
    centred /= norms
    return (centred @ centred.T).clamp(-1, 1)
