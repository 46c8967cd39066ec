"""Theorem 3.1 of Khodak et al. (2020) compared with measured gaps: its bounds over seeds, and their section."""

import math
from pathlib import Path

import numpy as np
import pytest
from archray_test_feature_map_report import LEADERS, leaders_run, solve_with_leader
from archray_test_report import words

from archray.platform.methods.feature_maps.figures import generalization_section
from archray.platform.methods.feature_maps.tables import (
    excess_errors,
    gap_bound,
    hoeffding_bound,
    rounds_entropy,
    selection_bound,
    selection_gaps,
    validation_rate,
    weights_rate,
)
from archray.platform.report.figures import NothingToDraw
from archray.trainables.data import DataSettings, load_images
from archray.trainables.feature_maps.linear import loss_bound
from archray.trainables.feature_maps.problems import FourierProblem
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import get_space

DELTA = 0.05


# Bounds with known risks


@pytest.mark.parametrize("candidates", [1, 64])
def test_the_bounds_hold_for_the_least_validation_error_and_need_their_entropy(candidates: int) -> None:
    rng = np.random.default_rng(0)
    trials, points = 4000, 200
    risks = rng.uniform(0.4, 0.5, size=(trials, candidates))
    errors = rng.binomial(points, risks) / points
    chosen = errors.argmin(1)
    at = np.arange(trials)
    gaps = risks[at, chosen] - errors[at, chosen]
    excess = risks[at, chosen] - risks.min(1)
    entropy = math.log(candidates)
    broken = {bound: np.mean(gaps > bound(1.0, points, entropy)) for bound in (gap_bound, hoeffding_bound)}
    assert max(broken.values()) <= DELTA
    assert np.mean(excess > selection_bound(1.0, points, entropy)) <= DELTA
    if candidates > 1:  # without the entropy, Hoeffding's tighter bound is violated: the selection has a cost
        assert np.mean(gaps > hoeffding_bound(1.0, points, 0.0)) > 3 * DELTA


def test_the_terms_equal_values_computed_by_hand() -> None:
    assert gap_bound(2.0, 50, math.log(8)) == pytest.approx(2 * math.sqrt(2 / 50 * (math.log(8) + math.log(20))))
    assert selection_bound(1.0, 50, 1.0) == pytest.approx(3 / 2 * math.sqrt(2 / 50 * (1 + math.log(20))))
    # Hoeffding for the best candidate, step 3 of the proof, is no more than the half that Theorem 3.1 adds.
    assert math.sqrt(math.log(20) / (2 * 50)) <= selection_bound(1.0, 50, 1.0) - gap_bound(1.0, 50, 1.0)
    assert rounds_entropy(10, 10) == pytest.approx(math.log(10))
    assert rounds_entropy(10, 4) == pytest.approx(math.log(math.comb(10, 4) * 4))
    assert weights_rate(3.0, 90) == pytest.approx(math.sqrt(10 / 90 * math.log(20)))
    assert validation_rate(90, 1) == pytest.approx(math.sqrt(math.log(40) / 90))
    assert gap_bound(1.0, 0, 0.0) == math.inf


def test_the_bounds_hold_over_seeds_of_real_solves() -> None:
    space, rng = get_space("fourier"), np.random.default_rng(0)
    maps = [space.configuration(space.encode(space.canonical(space.sample(rng)))) for _ in range(8)]
    shares = []
    for seed in range(6):
        data = load_images(DataSettings(name="digits", limit=240, seed=seed))
        problem = FourierProblem(data, SolveSettings())
        solves = [problem.solve([each], 40, seed) for each in maps]
        tests = [problem.test(solved, 0) for solved in solves]
        best = int(np.argmin([1 - solved.accuracies[0] for solved in solves]))
        points, entropy = len(data.validation), math.log(len(maps))
        gap = solves[best].accuracies[0] - tests[best].accuracy
        assert gap <= gap_bound(1.0, points, entropy)
        largest = loss_bound("ridge", 10)
        assert tests[best].clipped - solves[best].clipped[0] <= gap_bound(largest, points, entropy)
        excess = max(test.accuracy for test in tests) - tests[best].accuracy
        assert excess <= selection_bound(1.0, points, entropy)
        shares.append(gap / gap_bound(1.0, points, entropy))
    assert max(shares) > -1 and len(set(shares)) > 1  # six draws of the data instead of one


# Section


def test_rows_are_the_rounds_and_the_winner(tmp_path: Path) -> None:
    run = leaders_run(tmp_path, LEADERS)
    gaps = selection_gaps(run)
    errors = gaps[gaps["loss"] == "error"]
    assert errors["gap"].tolist() == pytest.approx([0.02, 0.03, 0.02])
    assert errors["candidates"].tolist() == [4, 2, 4] and errors["winner"].tolist() == [False, False, True]
    assert errors["bound"].tolist() == pytest.approx([gap_bound(1, 300, math.log(size)) for size in (4, 2, 4)])
    assert errors["reused"].tolist() == pytest.approx(
        [gap_bound(1, 300, math.log(number)) for number in (4, math.comb(4, 2) * 2, 4)]
    )
    clipped = gaps[gaps["loss"] == "clipped"]
    assert (clipped["B"] == 40).all() and clipped["gap"].tolist() == pytest.approx([0.2, 0.3, 0.2])
    excess = excess_errors(run).iloc[0]
    assert excess["excess"] == pytest.approx(0.02) and (excess["known"], excess["of"]) == (2, 4)


def test_searches_that_solve_for_one_map_at_a_time_have_one_row(tmp_path: Path) -> None:
    rows = [solve_with_leader(n, 1, 0.1 / n, 0.12 / n, 300, name) for n, name in enumerate("abc", start=1)]
    frame = [{key: value for key, value in row.items() if key != "round"} for row in rows]
    run = leaders_run(tmp_path, frame, "random-maps")
    gaps = selection_gaps(run)
    (error,) = gaps[gaps["loss"] == "error"].to_dict("records")
    assert error["candidates"] == 3 and error["winner"] and error["validation"] == pytest.approx(0.1 / 3)
    assert error["reused"] == error["bound"] == pytest.approx(gap_bound(1, 300, math.log(3)))
    text = words(generalization_section(run).body)
    assert "Halving selects by shared weights" not in text


def test_a_run_without_leaders_has_no_section(tmp_path: Path) -> None:
    old = [{key: value for key, value in row.items() if not key.startswith("leader")} for row in LEADERS]
    with pytest.raises(NothingToDraw, match="test and validation errors"):
        generalization_section(leaders_run(tmp_path, old))
