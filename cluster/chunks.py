"""The items of an `actor_map` in chunks: which goes next, how large, and which goes again after a failure."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

ATTEMPTS = 2  # an item that failed so often is left out; a chunk that killed so many actors is split
CHUNK_SECONDS = 5.0  # how long a chunk should take when its size is ours to choose: what a killed driver loses


@dataclass
class Chunk:
    """Items (by index) that travel together. `alone`: nothing else may wait in its actor, so that blame is sure."""

    indices: list[int]
    deaths: int = 0
    alone: bool = False


class ChunkQueue:
    """What is to be done: items that have not been sent yet, and chunks that go again.

    Args:
        items: how many there are. num_actors: who work on them; may change.
        chunk_size: items per chunk; None: as many as take CHUNK_SECONDS, one until it is known how long an item takes.
    """

    def __init__(self, items: int, num_actors: int, chunk_size: int | None) -> None:
        self._items, self.num_actors, self._chunk_size = items, num_actors, chunk_size
        self._next = 0  # items from here on have not been sent yet
        self._again: deque[Chunk] = deque()
        self._failures: Counter[int] = Counter()  # by item
        self._seconds_per_item: float | None = None

    def __len__(self) -> int:
        """How many more actors could find work: items not sent, and chunks to be done again."""
        return self._items - self._next + len(self._again)

    def clear(self) -> None:
        self._next = self._items
        self._again.clear()

    def take(self, *, beside_another: bool) -> Chunk | None:
        """The next chunk for an actor, in which another one runs already or not; None if there is none for it."""
        for chunk in self._again:
            if not (chunk.alone and beside_another):
                self._again.remove(chunk)
                return chunk
        if self._next >= self._items:
            return None
        start, self._next = self._next, min(self._next + self._size(), self._items)
        return Chunk(list(range(start, self._next)))

    def _size(self) -> int:
        if self._chunk_size is not None:
            return self._chunk_size
        if self._seconds_per_item is None:
            return 1
        even = math.ceil((self._items - self._next) / (2 * self.num_actors))  # smaller towards the end
        return max(1, min(even, int(CHUNK_SECONDS / max(self._seconds_per_item, 1e-6))))

    def took(self, seconds: float, items: int) -> None:
        """Learns how long an item takes."""
        self._seconds_per_item = seconds / items

    def put_first(self, chunks: Iterable[Chunk]) -> None:
        """Has chunks that nothing is held against done again, before all else and in their order."""
        self._again.extendleft(reversed(list(chunks)))

    def put_last(self, chunk: Chunk) -> None:
        self._again.append(chunk)

    def suspect(self, chunk: Chunk) -> None:
        """Has a chunk of several items that killed an actor done again, alone; the second time item by item."""
        chunk.deaths, chunk.alone = chunk.deaths + 1, True
        if chunk.deaths < ATTEMPTS:
            self._again.append(chunk)
        else:
            self._again.extend(Chunk([index], alone=True) for index in chunk.indices)

    def failed(self, index: int) -> bool:
        """Counts a failure of one item; whether it goes again, alone, or is to be left out."""
        self._failures[index] += 1
        if self._failures[index] >= ATTEMPTS:
            return False
        self._again.append(Chunk([index], alone=True))
        return True
