"""Which points no other betters, front by front, and how far apart they lie. NSGA-II, Deb et al. 2002, section III."""

from __future__ import annotations

import numpy as np

from archray.searchers.arguments import FloatArray, IntArray


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
    """(n,) the number of each point's front: 0 for those that none dominates, 1 once they are gone, and so on.

    Equal points share a rank. losses: (n, k), less is better, finite.
    """
    ranks = np.full(len(losses), -1, dtype=np.int64)
    no_worse = np.asarray(
        (losses[:, None, :] <= losses[None, :, :]).all(axis=2), dtype=bool
    )  # (n, n): the first no worse than the second
    dominates = no_worse & ~no_worse.T
    rank = 0
    while (left := ranks < 0).any():
        ranks[left & ~dominates[left].any(axis=0)] = rank
        rank += 1
    return ranks


def crowding_distance(losses: FloatArray) -> FloatArray:
    """(n,) of the points of one front: the sum over objectives of the gap between a point's two neighbours.

    In units of the objective's range over these points; infinite for the ends. An objective in which all are equal
    says nothing. losses: (n, k).
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
    """All places of the points of one front, in an order of which every beginning is spread along it.

    The best in the first objective, then in the others, then always the point that is farthest from those before, each
    objective in units of its range: who takes more of them later keeps what was taken. Of equal ones the first.
    losses: (n, k), less is better.
    """
    if not len(losses):
        return np.zeros(0, dtype=np.int64)
    spread = np.ptp(losses, axis=0)
    points = (losses - losses.min(axis=0)) / np.where(spread > 0, spread, 1.0)  # (n, k) in [0, 1]
    order = list(dict.fromkeys(int(place) for place in losses.argmin(axis=0)))
    nearest = np.linalg.norm(points[:, None] - points[order], axis=2).min(axis=1)  # (n,) to what was taken
    nearest[order] = -1.0  # behind copies of what was taken, too
    while len(order) < len(losses):
        place = int(nearest.argmax())
        order.append(place)
        nearest = np.minimum(nearest, np.linalg.norm(points - points[place], axis=1))
        nearest[place] = -1.0
    return np.array(order, dtype=np.int64)


def crowded_order(losses: FloatArray) -> IntArray:
    """All places, the best first: by front, within one the least crowded first; of equal ones the first.

    It is the crowded-comparison operator of the paper, section III-C.
    """
    ranks = front_ranks(losses)
    distance = np.zeros(len(losses))
    for rank in np.unique(ranks):
        places = np.flatnonzero(ranks == rank)
        distance[places] = crowding_distance(losses[places])
    return np.lexsort((-distance, ranks)).astype(np.int64)
