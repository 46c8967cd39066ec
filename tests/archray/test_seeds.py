"""Seeds are the same for ever: a run that is repeated or resumed by a later version draws the same numbers."""

from __future__ import annotations

import pytest

from archray.seeds import first_seeds, named_seed, stage_seed, stream_seed, trial_seed


@pytest.mark.parametrize(
    ("seed", "number", "expected"),
    [(0, 1, 1982462498), (0, 2, 1570558271), (7, 1, 184785996), (2**32 + 5, 40, 846366367)],
)
def test_a_trials_seed(seed: int, number: int, expected: int) -> None:
    assert trial_seed(seed, number) == expected


@pytest.mark.parametrize(
    ("seed", "stage", "expected"), [(0, "search", 2353253374), (0, "final", 3433232360), (3, "pool", 2917921430)]
)
def test_a_stages_seed(seed: int, stage: str, expected: int) -> None:
    assert stage_seed(seed, stage) == expected


@pytest.mark.parametrize(
    ("words", "expected"), [((0, 0, 0), 2968811710), ((1, 2, 6), 1399277988), ((2**31, 5, 9), 1517536211)]
)
def test_a_streams_seed(words: tuple[int, ...], expected: int) -> None:
    assert stream_seed(*words) == expected


def test_a_streams_seed_of_fewer_bits() -> None:
    assert stream_seed(4, 1_000_003, 12, bits=31) == 323894988


def test_the_first_seeds_of_a_root() -> None:
    assert first_seeds(3433232360, 3) == [4020304235, 1919702539, 3546896218]
    assert first_seeds(3433232360, 2) == [4020304235, 1919702539]


@pytest.mark.parametrize(
    ("seed", "names", "expected"),
    [
        (0, ("assignment", "train"), 4270458800897208096),
        (5, ("basis", 3), 7720316178860310154),
        (2**40, ("hash",), 3229125284578499741),
    ],
)
def test_a_named_seed(seed: int, names: tuple[str | int, ...], expected: int) -> None:
    assert named_seed(seed, *names) == expected


def test_trial_seeds_differ_by_run_and_number() -> None:
    seeds = {trial_seed(seed, number) for seed in range(20) for number in range(1, 50)}
    assert len(seeds) == 20 * 49
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_named_seeds_differ_by_seed_and_names() -> None:
    names = (("a",), ("b",), ("a", 0), ("a", 1))
    seeds = {named_seed(seed, *each) for seed in (0, 1, 2**63) for each in names}
    assert len(seeds) == 3 * len(names)
    assert all(0 <= seed < 2**63 for seed in seeds)
