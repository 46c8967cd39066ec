"""The seconds that a searcher takes to decide."""

from __future__ import annotations

import time
from typing import Any


class Stopwatch:
    """Adds up the wall time of the blocks that it is entered for; one inside another counts once.

    Attributes:
        seconds: of all blocks that have ended, in this process.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._began = 0, 0.0

    def __enter__(self) -> None:
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def __exit__(self, *raised: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began
