"""Seeds: every stream of random numbers is a function of the run's seed and of what the numbers are for.

Pure functions over NumPy's `SeedSequence`, which makes streams of different words independent.
"""

import zlib

import numpy as np


def stream_seed(seed: int, *words: int, bits: int = 32) -> int:
    """The seed of one stream of `seed`, such as `stream_seed(seed, epoch, purpose)`.

    seed, words: whole numbers of 0 or more. bits: of the result, at most 32.
    """
    return int(np.random.SeedSequence([seed, *words]).generate_state(1)[0]) >> (32 - bits)


def trial_seed(seed: int, number: int) -> int:
    """The seed of trial `number` of the run with `seed`, in 0 .. 2**31 - 1: it fits where a signed word is wanted."""
    return stream_seed(seed, number, bits=31)


def stage_seed(seed: int, stage: str) -> int:
    """The root seed of one stage: a function of the run's seed and the stage's name."""
    return stream_seed(seed, zlib.crc32(stage.encode()))


def first_seeds(root: int, count: int) -> list[int]:
    """The first `count` seeds that `root` gives: fewer of them are the first of more."""
    return [int(seed) for seed in np.random.SeedSequence(root).generate_state(count)]


def named_seed(seed: int, *names: str | int, bits: int = 63) -> int:
    """The seed of one purpose, such as `named_seed(seed, "local-search", 3)`; those of different names are independent.

    bits: of the result, at most 63.
    """
    words = [zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names]
    return int(np.random.SeedSequence(seed, spawn_key=words).generate_state(1, np.uint64)[0]) >> (64 - bits)


def named_rng(seed: int, *names: str | int) -> np.random.Generator:
    """A generator of random numbers for one purpose, from its `named_seed`."""
    return np.random.default_rng(named_seed(seed, *names))
