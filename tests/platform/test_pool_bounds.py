"""How the bounds of a scored pool order the trained architectures: rank agreements with intervals, and the section."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_report import rendered, section_ids, words, write_run
from scipy.stats import kendalltau, spearmanr

from archray.platform.methods.report import judged_bounds, pool_bounds, pool_bounds_section
from archray.platform.report.figures import NothingToDraw
from archray.platform.report.statistics import rank_agreement
from archray.platform.run.run import Run
from archray.searchers.hnas.objective import chance_correlations, fit_trade_off
from archray.trainables.spaces import get_space

# Agreements


@pytest.mark.parametrize("n", [12, 60])
def test_intervals_have_their_nominal_coverage(n: int) -> None:
    rng, true = np.random.default_rng(0), 0.5
    tau, rho = 2 / math.pi * math.asin(true), 6 / math.pi * math.asin(true / 2)  # for a bivariate normal distribution
    inside = np.zeros(2)
    for _ in range(250):
        x = rng.normal(size=n)
        y = true * x + math.sqrt(1 - true**2) * rng.normal(size=n)
        agreement = rank_agreement(x, y)
        inside += (
            agreement.tau_interval[0] <= tau <= agreement.tau_interval[1],
            agreement.rho_interval[0] <= rho <= agreement.rho_interval[1],
        )
    assert (inside / 250 > 0.91).all() and (inside / 250 < 0.99).all()


def test_missing_values_are_left_out() -> None:
    x, y = [1, 2, math.nan, 4, 5, 6, 7], [1, 3, 2, 4, 6, 5, math.inf]
    agreement = rank_agreement(x, y)
    assert agreement.n == 5 and agreement.tau == pytest.approx(kendalltau([1, 2, 4, 5, 6], [1, 3, 4, 6, 5]).statistic)
    assert agreement.rho == pytest.approx(spearmanr([1, 2, 4, 5, 6], [1, 3, 4, 6, 5]).statistic)
    assert math.isnan(rank_agreement([1, 2], [1, 2]).tau) and math.isnan(rank_agreement([1, 1, 1], [1, 2, 3]).tau)
    few = rank_agreement([1, 2, 3], [1, 2, 3])
    assert few.tau == 1 and math.isnan(few.tau_interval[0]) and not few.excludes_zero
    perfect = rank_agreement(range(9), range(9))
    assert perfect.excludes_zero and perfect.tau_interval[1] == pytest.approx(1)


def test_chance_is_the_agreement_of_fits_to_random_orders() -> None:
    rng = np.random.default_rng(1)
    metric, kappa = np.exp(rng.normal(0, 1, 9)), np.exp(rng.normal(3, 1, 9))
    reached = []
    for order in np.random.default_rng(0).random((5, 9)):  # the same draws
        fit = fit_trade_off(metric, kappa / metric, order)
        reached.append(spearmanr(-(kappa / metric + fit.mu * (metric**2 - fit.nu) ** 2), order).statistic)
    np.testing.assert_allclose(chance_correlations(metric, kappa / metric, 5), reached, atol=1e-12)


# Pool of a run


def scored_pool(n: int, space: str, seed: int = 0) -> pd.DataFrame:
    """A pool with known kappa/ntk_trace."""
    rng, found = np.random.default_rng(seed), get_space(space)
    names = list(dict.fromkeys(found.encode(found.canonical(found.sample(rng))) for _ in range(3 * n)))[:n]
    kappa, metric = np.exp(rng.normal(3, 1, n)), np.exp(rng.normal(0, 1, n))
    parameters = rng.integers(1000, 9000, n)
    table = {"architecture": names, "ntk_trace": metric, "kappa": kappa, "parameters": parameters}
    return pd.DataFrame(table)


def run_search(place: Path, pool: pd.DataFrame, error: np.ndarray, method: str = "zero-cost", **more: Any) -> Run[Any]:
    trials = pd.DataFrame(
        {
            "architecture": pool["architecture"][: len(error)],
            "validation_accuracy": 1 - error,
            "train_accuracy": 1 - error / 2,
            "epoch": 3,
            "failure": None,
        }
        | more
    )
    tables = {("search", "trials.parquet"): trials, ("pool", "pool.parquet"): pool}
    config = {"space": "darts" if "Genotype" in pool["architecture"][0] else "nasbench201"}
    return write_run(place, method, config=config, tables=tables, documents={})


@pytest.mark.parametrize("method", ["zero-cost", "hnas"])
def test_an_error_that_the_bound_orders_is_reported(tmp_path: Path, method: str) -> None:
    pool = scored_pool(40, "nasbench201")
    quotient = (pool["kappa"] / pool["ntk_trace"])[:30].rank().to_numpy()
    run = run_search(tmp_path, pool, 0.01 * quotient, method)
    judged = judged_bounds(run)
    assert judged is not None and judged.value == "validation_accuracy" and len(judged.rows) == 30
    agreement = dict(zip([predictor.name for predictor in judged.predictors], judged.errors, strict=True))
    assert agreement["κ/M, M = ntk_trace"].tau == pytest.approx(1)
    assert agreement["1/M, M = ntk_trace"].tau == pytest.approx(
        kendalltau(1 / pool["ntk_trace"][:30], quotient).statistic
    )
    assert agreement["κ alone"].tau == pytest.approx(kendalltau(pool["kappa"][:30], quotient).statistic)
    assert agreement["most parameters"].tau == pytest.approx(kendalltau(-pool["parameters"][:30], quotient).statistic)
    assert agreement["κ/M + μ(M² − ν)², M = ntk_trace"].rho > 0.99
    assert judged.gaps[0].tau == pytest.approx(1)  # here the gap is half of the error
    section_text = words(pool_bounds_section(run))
    assert "the best is κ/M, M = ntk_trace, τ = 1.00" in section_text and "τ with the gap" in section_text
    axes = pool_bounds(run).axes[0]
    assert len(axes.collections) == len(judged.predictors)
    assert ("pool-bounds" in section_ids(rendered(run))) == (method == "hnas")


def test_random_errors_are_reported(tmp_path: Path) -> None:
    pool = scored_pool(20, "darts")
    rng = np.random.default_rng(3)
    run = run_search(tmp_path, pool, rng.uniform(0.1, 0.2, 10))
    judged = judged_bounds(run)
    assert judged is not None
    names = [predictor.name for predictor in judged.predictors]
    assert {"widest normal cell", "shallowest normal cell"} <= set(names)
    fitted = next(predictor for predictor in judged.predictors if predictor.group == "fitted")
    assert 0.4 < fitted.chance < 1  # two fitted numbers for ten errors in a random order
    low, high = judged.errors[0].tau_interval
    assert high - low > 0.5
    assert "With only 10 trained architectures" in words(pool_bounds_section(run))


def test_the_result_of_a_table_is_compared(tmp_path: Path) -> None:
    pool = scored_pool(12, "nasbench201")
    run = run_search(tmp_path, pool, np.linspace(0, 0.3, 12), result=np.linspace(94, 90, 12))
    judged = judged_bounds(run)
    assert judged is not None and judged.value == "result"
    np.testing.assert_allclose(judged.rows["error"], -np.linspace(94, 90, 12))
    assert "gap" not in words(pool_bounds_section(run)).split("Predictor")[1]


@pytest.mark.parametrize("lacking", ["kappa", "metric", "trainings"])
def test_a_run_without_the_data_has_no_section(tmp_path: Path, lacking: str) -> None:
    pool = scored_pool(8, "nasbench201")
    if lacking == "kappa":
        pool = pool.drop(columns="kappa")
    elif lacking == "metric":
        pool = pool.rename(columns={"ntk_trace": "synflow"})
    run = run_search(tmp_path, pool, np.linspace(0.1, 0.2, 2 if lacking == "trainings" else 8))
    with pytest.raises(NothingToDraw, match="three or more trained architectures"):
        pool_bounds_section(run)
