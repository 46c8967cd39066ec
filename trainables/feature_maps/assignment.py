"""Which point is featurised by which candidate, and the separate random streams of one seed. Algorithm 1."""

from __future__ import annotations

import zlib

import numpy as np

FEW_POINTS = 30  # validation points per candidate; with fewer, a score by assigned points is mostly noise (note W3)

Assignment = np.ndarray[tuple[int], np.dtype[np.int64]]


def stream(seed: int, *names: str | int) -> int:
    """The seed of one purpose: a function of `seed` and the names; streams of different names are independent."""
    words = [zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names]
    return int(np.random.SeedSequence(seed, spawn_key=words).generate_state(1, np.uint64)[0] >> np.uint64(1))


def assign(points: int, candidates: int, seed: int, part: str) -> Assignment:
    """A candidate for every point, uniformly and independently.

    part: "train" or "validation", which have streams of their own. Returns: (points,) in 0..candidates-1.
    """
    return np.random.default_rng(stream(seed, "assignment", part)).integers(candidates, size=points)


def score_all(validation: str, points: int, candidates: int) -> bool:
    """Whether every candidate is scored on every point. validation: as in `SolveSettings`."""
    return validation == "all" or (validation == "auto" and points < FEW_POINTS * candidates)
