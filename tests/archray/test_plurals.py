"""Counts in words: one is singular, and thousands have a space."""

from __future__ import annotations

import numpy as np
import pytest

from archray.plurals import count


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1, "random architecture"), "1 random architecture"),
        ((0, "trial"), "0 trials"),
        ((2, "search", "searches"), "2 searches"),
        ((1.0, "CPU"), "1 CPU"),
        ((0.5, "GPU"), "0.5 GPUs"),
        ((np.int64(10**6), "row"), "1,000,000 rows"),
        ((15625, "architecture"), "15,625 architectures"),
    ],
)
def test_one_is_singular(arguments: tuple[int, str], words: str) -> None:
    assert count(*arguments) == words
