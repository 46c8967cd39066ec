"""The queue of chunks hands out every item until it succeeds or has failed twice, and adapts chunk sizes to the
measured time.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from archray.cluster.actor_pool import ATTEMPTS, CHUNK_SECONDS, Chunk, ChunkQueue


def sizes(queue: ChunkQueue, number: int) -> list[int]:
    chunks = [queue.take(beside_another=False) for _ in range(number)]
    return [len(chunk.indices) if chunk else 0 for chunk in chunks]


def test_chunks_have_the_requested_size() -> None:
    queue = ChunkQueue(7, num_actors=2, chunk_size=3)
    assert len(queue) == 7 and sizes(queue, 4) == [3, 3, 1, 0] and not queue


def test_chunks_take_the_target_time_and_are_even_at_the_end() -> None:
    queue = ChunkQueue(100, num_actors=2, chunk_size=None)
    assert sizes(queue, 2) == [1, 1], "the duration of an item is unknown at first"
    queue.took(CHUNK_SECONDS, items=10)
    assert sizes(queue, 1) == [10]
    queue.took(0.001, items=10)
    assert sizes(queue, 3) == [22, 17, 13], "a quarter of the remaining items, for two actors"


def test_items_of_a_failed_chunk_are_handed_out_first() -> None:
    queue = ChunkQueue(6, num_actors=1, chunk_size=2)
    first, second = queue.take(beside_another=False), queue.take(beside_another=True)
    assert first and second
    queue.put_last(Chunk([9]))
    queue.put_first([first, second])
    assert [queue.take(beside_another=False) for _ in range(2)] == [first, second]
    assert queue.take(beside_another=False) == Chunk([9])


def test_a_chunk_that_killed_its_actor_is_retried_alone_and_then_item_by_item() -> None:
    queue = ChunkQueue(3, num_actors=2, chunk_size=3)
    chunk = queue.take(beside_another=False)
    assert chunk
    queue.suspect(chunk)
    assert queue.take(beside_another=True) is None, "so that the failing item is certain"
    assert queue.take(beside_another=False) is chunk
    queue.suspect(chunk)
    assert [queue.take(beside_another=False) for _ in range(4)] == [*(Chunk([n], alone=True) for n in range(3)), None]


@given(
    items=st.integers(1, 30), chunk_size=st.integers(1, 5), bad=st.sets(st.integers(0, 29)), actors=st.integers(1, 4)
)
def test_every_item_succeeds_once_or_fails_twice(items: int, chunk_size: int, bad: set[int], actors: int) -> None:
    queue, tries, left_out = ChunkQueue(items, actors, chunk_size), Counter[int](), []
    while (chunk := queue.take(beside_another=False)) is not None:
        for place, index in enumerate(chunk.indices):
            tries[index] += 1
            if index in bad:
                queue.put_first([Chunk(rest)] if (rest := chunk.indices[place + 1 :]) else [])
                left_out += [] if queue.failed(index) else [index]
                break
    assert sorted(left_out) == sorted(bad & set(range(items)))
    assert tries == {index: ATTEMPTS if index in bad else 1 for index in range(items)}
