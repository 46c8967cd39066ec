"""Seeds: every stream of random numbers is a function of the run's seed and of its purpose.

The functions are pure and use NumPy's `SeedSequence`, which makes streams of different words independent.

Example:
    ```python
    seed = trial_seed(0, 3)  # the seed of trial 3 of the run with seed 0
    rng = named_rng(0, "local-search", 3)
    ```
"""

import zlib

import numpy as np


def stream_seed(seed: int, *words: int, bits: int = 32) -> int:
    """Returns the seed of one stream of `seed`, such as `stream_seed(seed, epoch, purpose)`.

    Args:
        seed, words: integers of 0 or more.
        bits: number of bits of the result, at most 32.
    """
    return int(np.random.SeedSequence([seed, *words]).generate_state(1)[0]) >> (32 - bits)


def trial_seed(seed: int, number: int) -> int:
    """Returns the seed of trial `number` of a run with `seed`, in 0 .. 2**31 - 1, so that it fits a signed integer."""
    return stream_seed(seed, number, bits=31)


def stage_seed(seed: int, stage: str) -> int:
    """Returns the root seed of one stage, a function of the run's seed and the stage's name."""
    return stream_seed(seed, zlib.crc32(stage.encode()))


def first_seeds(root: int, count: int) -> list[int]:
    """Returns the first `count` seeds of `root`; a smaller count gives a prefix."""
    return [int(seed) for seed in np.random.SeedSequence(root).generate_state(count)]


def named_seed(seed: int, *names: str | int, bits: int = 63) -> int:
    """Returns the seed of one purpose, such as `named_seed(seed, "local-search", 3)`.

    Seeds of different names are independent.

    Args:
        seed: an integer of 0 or more.
        names: the purpose.
        bits: number of bits of the result, at most 63.
    """
    words = [zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names]
    return int(np.random.SeedSequence(seed, spawn_key=words).generate_state(1, np.uint64)[0]) >> (64 - bits)


def named_rng(seed: int, *names: str | int) -> np.random.Generator:
    """Returns a random generator for one purpose, seeded by `named_seed`."""
    return np.random.default_rng(named_seed(seed, *names))
