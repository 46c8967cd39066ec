"""How flat a plane of losses is around its middle, in numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FLAT = 1.0  # nats above the middle within which a point counts as flat


def flatness(steps: NDArray[np.float64], losses: NDArray[np.float64], flat: float = FLAT) -> dict[str, float]:
    """Measures of a plane, losses (n, n) over alpha and beta in `steps` (n,), ascending and even.

    `centre`: the loss nearest to (0, 0). `rise`: the median over the plane of what is above it, which a few points of
    extremely large loss do not move. `flat_share`: the share of the points at most `flat` above it.
    `curvature`: the largest eigenvalue, in size, of the plane's Hessian by finite differences over its inner points.
    Points whose loss is not finite count as infinitely high, and their neighbours have no curvature; NaN if none has.
    """
    middle = int(np.abs(steps).argmin())
    centre = float(losses[middle, middle])
    above = np.where(np.isfinite(losses), losses, np.inf) - centre
    return {
        "centre": centre,
        "rise": float(np.median(above)),
        "flat_share": float((above <= flat).mean()),
        "curvature": _largest_curvature(losses, float(steps[1] - steps[0])),
    }


def _largest_curvature(losses: NDArray[np.float64], step: float) -> float:
    if len(losses) < 3:
        return float("nan")
    with np.errstate(invalid="ignore", over="ignore"):
        inner = losses[1:-1, 1:-1]
        aa = (losses[2:, 1:-1] - 2 * inner + losses[:-2, 1:-1]) / step**2
        bb = (losses[1:-1, 2:] - 2 * inner + losses[1:-1, :-2]) / step**2
        ab = (losses[2:, 2:] - losses[2:, :-2] - losses[:-2, 2:] + losses[:-2, :-2]) / (4 * step**2)
        mean, half = (aa + bb) / 2, np.hypot((aa - bb) / 2, ab)
        size = np.abs(mean) + half
    finite = size[np.isfinite(size)]
    return float(finite.max()) if finite.size else float("nan")
