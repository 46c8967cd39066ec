"""Thompson sampling over selections: its Gaussian process, and a search that moves to the region of good rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from archray.searchers import HNASSearch, drive
from archray.searchers.hnas.mu_nu_search import LENGTH_SCALE, NOISE, standard_scores, thompson_sample


def test_samples_have_the_posterior_of_scikit_learns_gaussian_process() -> None:
    rng = np.random.default_rng(0)
    places, elsewhere, values = rng.random((12, 2)), rng.random((3, 2)), rng.standard_normal(12)
    process = GaussianProcessRegressor(Matern(LENGTH_SCALE, nu=2.5), alpha=NOISE, optimizer=None).fit(places, values)
    mean, covariance = process.predict(elsewhere, return_cov=True)
    samples = np.array([thompson_sample(places, values, elsewhere, rng) for _ in range(4000)])
    error = np.sqrt(np.diag(covariance) / len(samples))
    assert (np.abs(samples.mean(axis=0) - mean) < 4.5 * error + 1e-9).all()
    np.testing.assert_allclose(np.cov(samples.T), covariance, atol=0.08 * covariance.max())


def test_only_ranks_count() -> None:
    values = np.array([3.0, 1.0, 2.0, -5.0])
    np.testing.assert_allclose(standard_scores(values), standard_scores(np.exp(values)))
    assert standard_scores(values).argmax() == 0
    assert (standard_scores(np.ones(3)) == 0).all()


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("pool") / "pool.parquet"
    table = pd.DataFrame({"architecture": [f"a{row}" for row in range(400)]})
    table.assign(snip=rng.lognormal(0, 1, 400), kappa=rng.lognormal(4, 1, 400)).to_parquet(path)
    return path


def test_it_finds_a_region_of_the_pool_sooner_than_random_points(pool: Path) -> None:
    """The value depends on the position of a row in M: the best rows are at its fourth fifth."""
    table = pd.read_parquet(pool).set_index("architecture")
    place = table["snip"].rank() / len(table)
    value = (-((place - 0.7) ** 2) - 0.1 * table["kappa"].rank() / len(table)).to_dict()

    def mean_of_last(points: str) -> float:
        means = []
        for seed in range(5):
            search = HNASSearch(pool, "snip", points=points, budget=15, seed=seed, metric="value", mode="max")
            means.append(drive(search, lambda config: value[config["architecture"]])["value"].tail(7).mean())
        return float(np.mean(means))

    assert mean_of_last("selections") > mean_of_last("uniform")


def test_evaluated_points_count(pool: Path) -> None:
    """This includes an architecture without mu and nu, which a Gaussian process over (mu, nu) cannot use."""
    names = pd.read_parquet(pool)["architecture"]

    def suggested(evaluated: int) -> list[str]:
        search = HNASSearch(pool, "snip", budget=9, metric="value", mode="max")
        for name in names.head(evaluated):
            search.add_evaluated_point({"architecture": name}, float(len(name)))
        return drive(search, lambda config: 0.0)["architecture"].tolist()

    first, without = suggested(30), suggested(0)
    assert first[:5] == [name for name in without[:5] if name in first[:5]]  # the first points do not need results
    assert first != without


def test_every_trial_failed(pool: Path) -> None:
    search = HNASSearch(pool, "snip", budget=8, metric="value", mode="max")
    assert len(drive(search, lambda config: float("nan"))) == 8
    assert search.best() is None
