"""Which point is featurised by which candidate. Khodak et al. 2020, Algorithm 1."""

from __future__ import annotations

import numpy as np

from archray.seeds import named_seed

FEW_POINTS = 30  # validation points per candidate; with fewer, a score by assigned points is mostly noise (note W3)

Assignment = np.ndarray[tuple[int], np.dtype[np.int64]]


def assign(points: int, candidates: int, seed: int, part: str) -> Assignment:
    """A candidate for every point, uniformly and independently.

    part: "train" or "validation", which have streams of their own. Returns: (points,) in 0..candidates-1.
    """
    return np.random.default_rng(named_seed(seed, "assignment", part)).integers(candidates, size=points)


def score_all(validation: str, points: int, candidates: int) -> bool:
    """Whether every candidate is scored on every point. validation: as in `SolveSettings`."""
    return validation == "all" or (validation == "auto" and points < FEW_POINTS * candidates)
