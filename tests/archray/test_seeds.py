"""Seeds never change: a run that is repeated or resumed by a later version draws the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from archray.seeds import first_seeds, named_seed, stage_seed, stream_seed, trial_seed


@pytest.mark.parametrize(
    ("seed", "arguments", "expected"),
    [
        (trial_seed, (0, 1), 1982462498),
        (trial_seed, (0, 2), 1570558271),
        (trial_seed, (7, 1), 184785996),
        (trial_seed, (2**32 + 5, 40), 846366367),
        (stage_seed, (0, "search"), 2353253374),
        (stage_seed, (0, "final"), 3433232360),
        (stage_seed, (3, "pool"), 2917921430),
        (stream_seed, (0, 0, 0), 2968811710),
        (stream_seed, (1, 2, 6), 1399277988),
        (stream_seed, (2**31, 5, 9), 1517536211),
        (partial(stream_seed, bits=31), (4, 1_000_003, 12), 323894988),
        (first_seeds, (3433232360, 3), [4020304235, 1919702539, 3546896218]),
        (first_seeds, (3433232360, 2), [4020304235, 1919702539]),
        (named_seed, (0, "assignment", "train"), 4270458800897208096),
        (named_seed, (5, "basis", 3), 7720316178860310154),
        (named_seed, (2**40, "hash"), 3229125284578499741),
    ],
)
def test_seeds_have_fixed_values(seed: Callable[..., Any], arguments: tuple[int | str, ...], expected: Any) -> None:
    assert seed(*arguments) == expected


def test_trial_seeds_differ_by_run_and_number() -> None:
    seeds = {trial_seed(seed, number) for seed in range(20) for number in range(1, 50)}
    assert len(seeds) == 20 * 49
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_named_seeds_differ_by_seed_and_names() -> None:
    names = (("a",), ("b",), ("a", 0), ("a", 1))
    seeds = {named_seed(seed, *each) for seed in (0, 1, 2**63) for each in names}
    assert len(seeds) == 3 * len(names)
    assert all(0 <= seed < 2**63 for seed in seeds)
