"""Objectives and Pareto fronts: dominance and crowding (Deb et al. 2002, section III), and hypervolume (Zitzler and
Thiele 1999)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import FloatArray, IntArray

# Objectives

LESS = "-"  # before the name of an objective of which less is better


@dataclass(frozen=True)
class Objective:
    """A number of a trial or of a row of a pool: `validation_accuracy`, or `-latency_ms`, of which less is better."""

    name: str
    less: bool

    def loss(self, value: Any) -> Any:
        """A number or an array as a loss, which is minimized; a loss as a value."""
        return value if self.less else -value

    def __str__(self) -> str:
        return f"{LESS if self.less else ''}{self.name}"


def read_objectives(text: str | Iterable[str]) -> tuple[Objective, ...]:
    """The objectives of `"validation_accuracy, -latency_ms"`, or of a list of such names.

    Raises: InvalidInput for an empty list or name, and for a repeated name.
    """
    parts = text.split(",") if isinstance(text, str) else list(text)
    if not parts or not all(isinstance(part, str) for part in parts):
        raise InvalidInput(f'objectives: expected names, as "validation_accuracy, -latency_ms", got {text!r}')
    objectives = []
    for part in parts:
        name = part.strip().removeprefix(LESS).strip()
        if not name or any(character.isspace() for character in name) or name.startswith(LESS):
            raise InvalidInput(
                "objectives: expected names with commas between them and a minus before one of which less is better, "
                f'as "validation_accuracy, -latency_ms", got {part.strip()!r} in {text!r}'
            )
        objectives.append(Objective(name, part.strip().startswith(LESS)))
    names = [objective.name for objective in objectives]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"objectives: expected each once, got {', '.join(twice)} twice in {text!r}")
    return tuple(objectives)


# Dominance


def non_dominated(losses: FloatArray) -> IntArray:
    """The places of the points that none dominates, in order; of equal points, the first.

    A point dominates another if it is no worse in any objective and better in one. losses: (n, k), less is better,
    finite.
    """
    if not len(losses):
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort(losses.T[::-1])  # by the first objective, then by the next: none is dominated by a later one
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
    """(n,) the number of each point's front: 0 for points that none dominates, 1 once they are removed, and so on.

    Equal points share a rank. losses: (n, k), less is better, finite.
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
    """(n,) for the points of one front: the sum over objectives of the gap between a point's two neighbors.

    In units of the objective's range over these points; infinite for the ends. An objective in which all are equal
    adds nothing. losses: (n, k).
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
    """All places of the points of one front, in an order whose every prefix is spread along the front.

    The best in the first objective, then in the others, then always the point that is farthest from the points before,
    each objective in units of its range. Of equal points the first. losses: (n, k), less is better.
    """
    if not len(losses):
        return np.zeros(0, dtype=np.int64)
    spread = np.ptp(losses, axis=0)
    points = (losses - losses.min(axis=0)) / np.where(spread > 0, spread, 1.0)  # (n, k) in [0, 1]
    order = list(dict.fromkeys(int(place) for place in losses.argmin(axis=0)))
    nearest = np.linalg.norm(points[:, None] - points[order], axis=2).min(axis=1)  # (n,) to the points in order
    nearest[order] = -1.0  # after copies of these points, too
    while len(order) < len(losses):
        place = int(nearest.argmax())
        order.append(place)
        nearest = np.minimum(nearest, np.linalg.norm(points - points[place], axis=1))
        nearest[place] = -1.0
    return np.array(order, dtype=np.int64)


def crowded_order(losses: FloatArray) -> IntArray:
    """All places, the best first: by front, within a front the least crowded first; of equal points the first.

    It is the crowded-comparison operator of Deb et al. 2002, section III-C.
    """
    ranks = front_ranks(losses)
    distance = np.zeros(len(losses))
    for rank in np.unique(ranks):
        places = np.flatnonzero(ranks == rank)
        distance[places] = crowding_distance(losses[places])
    return np.lexsort((-distance, ranks)).astype(np.int64)


def front_places(vectors: Iterable[FloatArray | None]) -> list[int]:
    """The places of the non-dominated vectors of losses, (k,) each, the best in the first objective first.

    None: a trial without a value of every objective, which takes no part.
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
    """The volume of all that some point dominates and that dominates the reference.

    A sweep in two dimensions; in more, slices along the last objective (HSO, While et al. 2006), which is exact and
    takes time exponential in k: up to some hundred points of three or four objectives.

    Args:
        losses: (n, k) less is better; a point that is no better than the reference in some objective, or that is not
            finite, adds nothing.
        reference: (k,) the worst value of interest of each objective.

    Raises: InvalidInput for shapes that do not fit.
    """
    points, corner = np.asarray(losses, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if points.ndim != 2 or corner.shape != points.shape[1:] or not len(corner):
        raise InvalidInput(
            f"expected points of shape (n, k) and a reference of (k,), k of 1 or more, got {points.shape} and "
            f"{corner.shape}"
        )
    if not np.isfinite(corner).all():
        raise InvalidInput(f"expected a finite reference, got {corner.tolist()}")
    points = points[np.isfinite(points).all(axis=1)]
    return _volume(points[(points < corner).all(axis=1)], corner)


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
