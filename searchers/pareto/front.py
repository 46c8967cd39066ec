"""Objectives and Pareto fronts.

Dominance and crowding: Deb et al. 2002, section III. Hypervolume: Zitzler and Thiele 1999.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import FloatArray, IntArray

# Objectives

LESS = "-"  # prefix of an objective to minimize


@dataclass(frozen=True)
class Objective:
    """An objective, a value of a trial or of a pool's row: `validation_accuracy`, or `-latency_ms` to minimize it."""

    name: str
    less: bool

    def loss(self, value: Any) -> Any:
        """Converts values (a number or an array) to losses (smaller is better), or losses to values."""
        return value if self.less else -value

    def __str__(self) -> str:
        return f"{LESS if self.less else ''}{self.name}"


def read_objectives(text: str | Iterable[str]) -> tuple[Objective, ...]:
    """Parses the objectives in `"validation_accuracy, -latency_ms"`, or in a list of such names.

    Raises: InvalidInput for an empty list, an invalid name or a repeated name.
    """
    parts = text.split(",") if isinstance(text, str) else list(text)
    if not parts or not all(isinstance(part, str) for part in parts):
        raise InvalidInput(f'objectives: expected names such as "validation_accuracy, -latency_ms", got {text!r}')
    objectives = []
    for part in parts:
        name = part.strip().removeprefix(LESS).strip()
        if not name or any(character.isspace() for character in name) or name.startswith(LESS):
            raise InvalidInput(
                "objectives: expected names separated by commas, with a minus before an objective to minimize "
                f'("validation_accuracy, -latency_ms"), got {part.strip()!r} in {text!r}'
            )
        objectives.append(Objective(name, part.strip().startswith(LESS)))
    names = [objective.name for objective in objectives]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"objectives: expected distinct names, got {', '.join(twice)} twice in {text!r}")
    return tuple(objectives)


# Dominance


def non_dominated(losses: FloatArray) -> IntArray:
    """Returns the indices of the non-dominated points, in order; of equal points, the first.

    A point dominates another if it is no worse in any objective and better in one.

    Args:
        losses: (n, k) finite, smaller is better.
    """
    if not len(losses):
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort(losses.T[::-1])  # lexicographic: no point is dominated by a later one
    if losses.shape[1] == 2:
        second = losses[order, 1]
        before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
        return np.sort(order[second < before])
    kept: list[int] = []
    for place in order:
        if not kept or not (losses[kept] <= losses[place]).all(axis=1).any():
            kept.append(int(place))
    return np.sort(np.array(kept, dtype=np.int64))


def front_ranks(losses: FloatArray) -> IntArray:
    """Returns the number of each point's front, (n,): 0 if not dominated, 1 if dominated only by front 0, and so on.

    Equal points share a rank.

    Args:
        losses: (n, k) finite, smaller is better.
    """
    ranks = np.full(len(losses), -1, dtype=np.int64)
    no_worse = np.asarray((losses[:, None] <= losses[None]).all(axis=2), dtype=bool)  # (n, n): row no worse than column
    dominates = no_worse & ~no_worse.T
    rank = 0
    while (left := ranks < 0).any():
        ranks[left & ~dominates[left].any(axis=0)] = rank
        rank += 1
    return ranks


def crowding_distance(losses: FloatArray) -> FloatArray:
    """Returns the crowding distance of the points of one front, (n,).

    It is the sum over objectives of the gap between a point's two neighbors, in units of the objective's range over
    these points; infinite for the end points. An objective with equal values adds nothing.

    Args:
        losses: (n, k).
    """
    distance = np.zeros(len(losses))
    for column in losses.T:
        order = np.argsort(column, kind="stable")
        spread = float(np.ptp(column)) if len(column) else 0.0
        if spread == 0.0:
            continue
        distance[order[[0, -1]]] = np.inf
        distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / spread
    return distance


def spread_order(losses: FloatArray) -> IntArray:
    """Returns the indices of the points of one front in an order whose every prefix is spread along the front.

    First the best point in each objective, then repeatedly the point that is farthest from the points before, with each
    objective in units of its range. The first of equal points is selected.

    Args:
        losses: (n, k), smaller is better.
    """
    if not len(losses):
        return np.zeros(0, dtype=np.int64)
    spread = np.ptp(losses, axis=0)
    points = (losses - losses.min(axis=0)) / np.where(spread > 0, spread, 1.0)  # (n, k) in [0, 1]
    order = list(dict.fromkeys(int(place) for place in losses.argmin(axis=0)))
    nearest = np.linalg.norm(points[:, None] - points[order], axis=2).min(axis=1)  # (n,) distance to `order`
    nearest[order] = -1.0  # below the distance 0 of their duplicates
    while len(order) < len(losses):
        place = int(nearest.argmax())
        order.append(place)
        nearest = np.minimum(nearest, np.linalg.norm(points - points[place], axis=1))
        nearest[place] = -1.0
    return np.array(order, dtype=np.int64)


def crowded_order(losses: FloatArray) -> IntArray:
    """Returns all indices, best first, by the crowded-comparison operator of Deb et al. 2002, section III-C.

    Points are ordered by front, and within a front by decreasing crowding distance; of equal points the first.
    """
    ranks = front_ranks(losses)
    distance = np.zeros(len(losses))
    for rank in np.unique(ranks):
        places = np.flatnonzero(ranks == rank)
        distance[places] = crowding_distance(losses[places])
    return np.lexsort((-distance, ranks)).astype(np.int64)


def front_places(vectors: Iterable[FloatArray | None]) -> list[int]:
    """Returns the indices of the non-dominated vectors of losses, (k,) each, the best in the first objective first.

    None stands for a trial without a value of every objective, which is ignored.
    """
    points = {place: vector for place, vector in enumerate(vectors) if vector is not None}
    if not points:
        return []
    losses, places = np.array(list(points.values())), np.array(list(points))
    front = non_dominated(losses)
    front = front[np.argsort(losses[front, 0], kind="stable")]
    return [int(place) for place in places[front]]


# Hypervolume


def hypervolume(losses: FloatArray, reference: Sequence[float] | FloatArray) -> float:
    """Returns the hypervolume: the volume of the region that a point dominates and that dominates the reference.

    The computation is exact: a sweep in two dimensions, and slices along the last objective in more (HSO, While et al.
    2006). Slices take time exponential in k, which allows a few hundred points of three or four objectives.

    Args:
        losses: (n, k) smaller is better. A point adds nothing if it is not finite, or in some objective no better than
            the reference.
        reference: (k,) the worst value of interest of each objective.

    Raises: InvalidInput for shapes that do not match.

    Example:
        ```python
        losses = np.array([[1.0, 2.0], [2.0, 1.0]])
        print(hypervolume(losses, [3.0, 3.0]))  # 3.0
        ```
    """
    points, corner = np.asarray(losses, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if points.ndim != 2 or corner.shape != points.shape[1:] or not len(corner):
        raise InvalidInput(
            f"Expected points of shape (n, k) and a reference of shape (k,) with k >= 1, got {points.shape} and "
            f"{corner.shape}"
        )
    if not np.isfinite(corner).all():
        raise InvalidInput(f"Expected a finite reference, got {corner.tolist()}")
    points = points[np.isfinite(points).all(axis=1)]
    return _volume(points[(points < corner).all(axis=1)], corner)


def contributions(losses: FloatArray, reference: Sequence[float] | FloatArray) -> FloatArray:
    """Returns by how much the hypervolume would shrink without each point, (n,).

    A point that another point equals or dominates contributes 0.

    Args:
        losses, reference: as for `hypervolume`.

    Raises: as `hypervolume`.

    Example:
        ```python
        losses = np.array([[1.0, 2.0], [2.0, 1.0]])
        print(contributions(losses, [3.0, 3.0]))  # [1. 1.]
        ```
    """
    points = np.asarray(losses, dtype=np.float64)
    whole = hypervolume(points, reference)
    shares = np.zeros(len(points))
    usable = np.flatnonzero(np.isfinite(points).all(axis=1))
    for place in usable[non_dominated(points[usable])]:
        shares[place] = max(0.0, whole - hypervolume(np.delete(points, place, axis=0), reference))
    return shares


def _volume(points: FloatArray, corner: FloatArray) -> float:
    if not len(points):
        return 0.0
    points = points[non_dominated(points)]
    if points.shape[1] == 1:
        return float(corner[0] - points[:, 0].min())
    if points.shape[1] == 2:
        points = points[np.argsort(points[:, 0])]  # the second objective decreases
        ends = np.append(points[1:, 0], corner[0])
        return float(((ends - points[:, 0]) * (corner[1] - points[:, 1])).sum())
    points = points[np.argsort(points[:, -1], kind="stable")]
    ends = np.append(points[1:, -1], corner[-1])
    slices = zip(points[:, -1], ends, range(1, len(points) + 1), strict=True)
    return sum(float(end - start) * _volume(points[:n, :-1], corner[:-1]) for start, end, n in slices if end > start)
