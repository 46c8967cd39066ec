"""The volume that points dominate up to a reference point, exactly, and what each adds to it. Zitzler and Thiele 1999.

In two dimensions a sweep; in more, slices along the last objective (HSO, While et al. 2006), which is exact and takes
time exponential in the number of objectives: some hundred points of three or four are well served.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import FloatArray
from archray.searchers.pareto.dominance import non_dominated


def hypervolume(losses: FloatArray, reference: Sequence[float] | FloatArray) -> float:
    """The volume of all that some point dominates and that dominates the reference.

    Args:
        losses: (n, k) less is better; a point that is no better than the reference in some objective, or that is not
            finite, adds nothing.
        reference: (k,) the worst value of interest of each objective.

    Raises: InvalidInput for shapes that do not fit.
    """
    points, corner = _checked(losses, reference)
    return _volume(points, corner)


def contributions(losses: FloatArray, reference: Sequence[float] | FloatArray) -> FloatArray:
    """(n,) by how much the hypervolume would shrink without each point; 0 for one that another equals or dominates.

    Args, Raises: as of `hypervolume`.
    """
    points = np.asarray(losses, dtype=np.float64)
    whole = hypervolume(points, reference)
    shares = np.zeros(len(points))
    usable = np.flatnonzero(np.isfinite(points).all(axis=1))
    for place in usable[non_dominated(points[usable])]:
        shares[place] = max(0.0, whole - hypervolume(np.delete(points, place, axis=0), reference))
    return shares


def _checked(losses: FloatArray, reference: Sequence[float] | FloatArray) -> tuple[FloatArray, FloatArray]:
    points, corner = np.asarray(losses, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if points.ndim != 2 or corner.shape != points.shape[1:] or not len(corner):
        raise InvalidInput(
            f"expected points of shape (n, k) and a reference of (k,), k of 1 or more, got {points.shape} and "
            f"{corner.shape}"
        )
    if not np.isfinite(corner).all():
        raise InvalidInput(f"expected a finite reference, got {corner.tolist()}")
    points = points[np.isfinite(points).all(axis=1)]
    return points[(points < corner).all(axis=1)], corner


def _volume(points: FloatArray, corner: FloatArray) -> float:
    if not len(points):
        return 0.0
    points = points[non_dominated(points)]
    if points.shape[1] == 1:
        return float(corner[0] - points[:, 0].min())
    if points.shape[1] == 2:
        points = points[np.argsort(points[:, 0])]  # the second objective falls
        ends = np.append(points[1:, 0], corner[0])
        return float(((ends - points[:, 0]) * (corner[1] - points[:, 1])).sum())
    points = points[np.argsort(points[:, -1], kind="stable")]
    ends = np.append(points[1:, -1], corner[-1])
    slices = zip(points[:, -1], ends, range(1, len(points) + 1), strict=True)
    return sum(float(end - start) * _volume(points[:n, :-1], corner[:-1]) for start, end, n in slices if end > start)
