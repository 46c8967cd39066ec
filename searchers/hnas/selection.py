"""Which row of a pool each (mu, nu) selects: the minimiser of Eq. 7.7, also where a pool has a million rows.

What no (mu, nu) changes, kappa/M and M^2, is computed once; the rest runs through blocks that stay in the cache. The
values are bit by bit those of `scored_pool.objective`, which stands for the formula.
"""

from __future__ import annotations

import numpy as np

from archray.searchers.arguments import BoolArray, FloatArray
from archray.searchers.hnas.scored_pool import Penalty, Pool

BLOCK = 2**14  # rows: three arrays of them are 384 KiB


class Selection:
    """Minimises kappa/(M + epsilon) + mu F(M^2 - nu) over the rows of one pool."""

    def __init__(self, pool: Pool, penalty: Penalty, epsilon: float = 0.0) -> None:
        self.penalty = penalty
        self.quotient = pool.kappa / (pool.metric + epsilon)  # (n,)
        self.squared = pool.metric**2  # (n,)

    def lowest(self, mu: float, nu: float, left_out: BoolArray) -> int | None:
        """The row with the lowest objective among those not `left_out` (n,); the first of equals; None if none is."""
        best_row, best_value = None, np.inf
        for start in range(0, len(self.squared), BLOCK):
            block = slice(start, start + BLOCK)
            values = penalise(self.squared[block] - nu, self.penalty)
            values *= mu
            values += self.quotient[block]
            values[left_out[block]] = np.inf
            row = int(values.argmin())
            if values[row] < best_value:
                best_row, best_value = start + row, values[row]
        if best_row is None and not left_out.all():
            return int(np.argmin(left_out))  # every objective overflows: the first of those equals
        return best_row


def penalise(differences: FloatArray, penalty: Penalty) -> FloatArray:
    """F(x) = x^2 or |x|, in place."""
    return np.square(differences, out=differences) if penalty == "square" else np.abs(differences, out=differences)


def median_distance(squared: FloatArray, nu: float, penalty: Penalty) -> float:
    """The median of F(M^2 - nu) over a pool, from its M^2 in ascending order, (n,); in O(log n).

    F grows with the distance to nu, and the rows nearest to nu lie side by side.
    """
    half = len(squared) // 2 + 1  # the largest of this many smallest distances is the (upper) median
    low, high = 0, len(squared) - half
    while low < high:  # the first window of `half` rows whose left end is no farther from nu than what follows it
        middle = (low + high) // 2
        low, high = (middle + 1, high) if nu - squared[middle] > squared[middle + half] - nu else (low, middle)
    last = low + half - 1
    ends = squared[sorted({low, min(low + 1, last), max(last - 1, low), last})]  # the two largest are among them
    values = np.sort(penalise(ends - nu, penalty))
    return float(values[-1] if len(squared) % 2 else (values[-2] + values[-1]) / 2)
