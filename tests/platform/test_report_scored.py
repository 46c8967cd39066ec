"""The plane of (mu, nu): the report draws the choices that the search would have made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from archray_test_report import write_run

from archray.platform.methods.hnas.figures import quantile_scale, spans
from archray.platform.methods.hnas.tables import Objective, PenaltyScale, in_percent, plane, usable_pool
from archray.platform.quantities import duration, quantity_of, significant
from archray.plurals import count
from archray.searchers.hnas.objective import Pool, objective


@pytest.mark.parametrize("penalty", ["square", "absolute"])
def test_the_plane_has_the_choices_of_the_search(penalty: str) -> None:
    rng = np.random.default_rng(0)
    m = rng.uniform(0.01, 1, 400)
    m[7] = 1.0
    pool = Pool([f"a{i}" for i in range(400)], m, 1 + rng.exponential(0.3, 400), 1.0, 0)
    ground = plane(pool, Objective(penalty))
    assert len(np.unique(ground.selected)) > 5
    for i, j in zip(rng.integers(0, ground.odds.size, 50), rng.integers(0, ground.root_nu.size, 50), strict=True):
        values = objective(pool.kappa, pool.metric, ground.mu[i, j], ground.root_nu[j] ** 2, penalty)
        assert ground.selected[i, j] == np.argmin(values)


def test_a_large_pool_is_ranked_completely() -> None:
    rng = np.random.default_rng(0)
    n = 60_000
    pool = Pool(range(n), rng.uniform(0.01, 1, n), 1 + rng.exponential(0.3, n), 1.0, 0)
    ground = plane(pool, Objective())
    for i, j in ((0, 0), (70, 70), (143, 100), (143, 143)):
        values = objective(pool.kappa, pool.metric, ground.mu[i, j], ground.root_nu[j] ** 2)
        assert ground.selected[i, j] == np.argmin(values)


def test_rows_without_a_score_are_excluded(tmp_path: Path) -> None:
    pool = pd.DataFrame(
        {"architecture": list("abcd"), "m": [2.0, 0.0, np.nan, -4.0], "kappa": [1.0, 1.0, 1.0, 3.0], "failure": None}
    )

    def usable(table: pd.DataFrame, proxy: str = "m") -> Pool | None:
        config = {"search": {"proxy": proxy}}
        return usable_pool(write_run(tmp_path, "hnas", config=config, tables={("pool", "pool.parquet"): table}))

    kept = usable(pool)
    assert kept.architectures == ["a", "d"] and kept.excluded == 2
    assert kept.metric.tolist() == [0.5, 1.0]
    assert usable(pool.head(0)) is None
    assert usable(pool.assign(m=np.nan)) is None
    assert usable(pool, "other") is None


def test_numbers_have_a_readable_format() -> None:
    assert quantity_of("test_accuracy").spread([0.5, 0.6, float("nan")]) == "55.00 ± 7.07 %"
    assert quantity_of("test_accuracy").spread([]) == "–"
    assert quantity_of("validation_loss").show(-0.25) == "−0.2500"
    assert significant(0.012345) == "0.0123"
    assert significant(1.25e-7) == "1.25 × 10⁻⁷"
    assert significant(0) == "0" and significant(None) == "–" and significant(float("inf")) == "–"
    assert duration(9.96) == "10.0 s" and duration(59.7) == "1 min 00 s" and duration(7323) == "2 h 02 min"
    assert duration(None) == "–"
    assert count(1, "trial") == "1 trial" and count(15625, "cell") == "15,625 cells"


def test_mu_is_shown_as_the_share_of_its_term() -> None:
    rng = np.random.default_rng(0)
    pool = Pool([f"a{i}" for i in range(99)], np.sort(rng.uniform(0.01, 1, 99)), 10 ** rng.uniform(1, 3, 99), 1.0, 0)
    scale, nu, mu = PenaltyScale(pool, Objective()), 0.25, 1234.5
    quotient, penalty = np.median(pool.kappa / pool.metric), mu * np.median((pool.metric**2 - nu) ** 2)
    odds = scale.odds(mu, nu)
    assert odds / (1 + odds) == pytest.approx(penalty / (quotient + penalty))
    assert scale.odds(scale.unit(nu), nu) == pytest.approx(1) and in_percent(1.0) == "50"
    odds_and_words = {5e-7: "0.00005", 1e-5: "0.001", 0.02: "2", 3.0: "75", 99.0: "99", 1e3: "99.9"}
    assert {odds: in_percent(odds) for odds in odds_and_words} == odds_and_words
    assert in_percent(np.nan) == "–"
    assert np.isnan(scale.odds(0.0, nu))


def test_an_outlier_does_not_use_up_the_color_scale() -> None:
    values = [0.1, *np.linspace(0.9, 0.94, 9)]
    scale = quantile_scale({f"a{i}": value for i, value in enumerate(values)})
    colors = scale(100 * np.array(values))
    np.testing.assert_allclose(colors, np.linspace(0, 1, 10))  # by rank: 0.1 has no more of them than any other value
    np.testing.assert_allclose(scale.inverse(colors), 100 * np.array(values))
    assert float(quantile_scale({"a": 0.9, "b": 0.9})(90.0)) == 0.5  # a single value is in the middle


def test_consecutive_numbers_are_joined() -> None:
    assert spans([3, 5, 6, 7, 9]) == ["3", "5–7", "9"]
    assert spans([1]) == ["1"]
