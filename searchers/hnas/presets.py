"""How HNAS tunes its objective: as the thesis says it, or as the authors' program does it (note H2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from archray.searchers.array_types import BoolArray
from archray.searchers.hnas.coordinates import Coordinates, PaperCodeCoordinates, PoolCoordinates
from archray.searchers.hnas.objective import Penalty


@dataclass(frozen=True)
class Preset:
    """What `preset` of `HNASSearch` decides.

    Args:
        coordinates: of the square that is searched.
        penalty: F, where the caller names none.
        epsilon: is added to M in the quotient, in M's own units.
        growth: rows of the pool, in an order drawn at random, that each step adds to the candidates; None: all rows
            are candidates from the start.
    """

    coordinates: type[Coordinates]
    penalty: Penalty
    epsilon: float = 0.0
    growth: int | None = None

    def candidates(self, rows: int, step: int, rng: np.random.Generator) -> BoolArray:
        """(rows,) True for the rows of the pool that are candidates at a step, from 1. `rng`: the same at all steps."""
        if self.growth is None or self.growth * step >= rows:
            return np.ones(rows, dtype=bool)
        candidates = np.zeros(rows, dtype=bool)
        candidates[rng.permutation(rows)[: self.growth * step]] = True
        return candidates


PRESETS: dict[str | None, Preset] = {
    None: Preset(PoolCoordinates, "square"),
    "paper-code": Preset(PaperCodeCoordinates, "absolute", epsilon=1e-6, growth=2000),
}
