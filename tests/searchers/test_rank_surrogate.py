"""The search over several metrics: its input, the input that it rejects, and its robustness to each metric."""

from __future__ import annotations

import math
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from archray.errors import InvalidInput, InvalidPool
from archray.searchers import RankSurrogateSearch, RoBoTSearch, drive
from archray.searchers.bayesian_optimization import normal_scores
from archray.searchers.rank_surrogate import search as search_module
from archray.searchers.rank_surrogate.surrogate import (
    KernelSetting,
    RankKernel,
    RankSurrogate,
    metric_scores,
    mixture,
    result_scores,
)
from archray.trainables.spaces import get_space

Search = RankSurrogateSearch | RoBoTSearch
ROWS = 320
RANDOM_RANK = (ROWS + 1) / 21  # of the best of 20 random architectures, on average


def landscape(seed: int = 0) -> tuple[pd.DataFrame, dict[str, float]]:
    """Architectures with five operations each, three metrics with a correlation of about 0.6 to their values, and
    noise.
    """
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (4 * ROWS, 5))
    codes = np.unique(codes, axis=0)[rng.permutation(len(np.unique(codes, axis=0)))][:ROWS]
    worth = rng.standard_normal((5, 4))
    value = worth[np.arange(5), codes].sum(axis=1) + 0.5 * rng.standard_normal(ROWS)
    metrics = {f"metric{k}": np.exp(value / 2 + 1.5 * rng.standard_normal(ROWS)) for k in range(3)}
    names = ["|".join(map(str, row)) for row in codes]
    return pd.DataFrame({"architecture": names, **metrics}), dict(zip(names, value, strict=True))


Write = Callable[[pd.DataFrame], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(table: pd.DataFrame) -> Path:
        table.to_csv(tmp_path / "pool.csv", index=False)
        return tmp_path / "pool.csv"

    return to_file


def ranks(pool: Path, values: dict[str, float], search: type[Search] = RankSurrogateSearch, **options: Any) -> float:
    """Returns the mean rank of the best of 20, over five seeds."""
    order = {name: 1 + place for place, name in enumerate(sorted(values, key=lambda name: -values[name]))}
    found = []
    for seed in range(5):
        searcher = search(pool, budget=20, seed=seed, metric="accuracy", mode="max", **options)
        drive(searcher, lambda config: values[config["architecture"]])
        best = searcher.best()
        assert best is not None
        found.append(order[best["architecture"]])
    return float(np.mean(found))


def negated(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**{name: -table[name] for name in table.columns[1:]})


def shuffled(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**{name: table[name].sample(frac=1, random_state=1).to_numpy() for name in table.columns[1:]})


@pytest.mark.parametrize("mislead", [lambda table: table, negated, shuffled])
def test_no_single_metric_misleads_it(write: Write, mislead: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    table, values = landscape()
    assert ranks(write(mislead(table)), values) < RANDOM_RANK


@pytest.mark.parametrize("mislead", [lambda table: table, shuffled])
def test_a_shortlist_of_a_large_pool_keeps_good_rows(
    write: Write, mislead: Callable[[pd.DataFrame], pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "WHOLE", ROWS // 2)
    monkeypatch.setattr(search_module, "SHORTLIST", ROWS // 2)
    table, values = landscape()
    pool = write(mislead(table))
    assert ranks(pool, values) < RANDOM_RANK
    search = RankSurrogateSearch(pool, budget=5, seed=1, metric="accuracy", mode="max")
    listed = {search.pool.architectures[row] for row in search.pool.rows}
    assert len(listed) == len(search.pool.rows) == ROWS // 2
    other = next(name for name in table["architecture"] if name not in listed)
    search = RankSurrogateSearch(
        pool, budget=5, seed=1, metric="accuracy", mode="max", points_to_evaluate=[{"architecture": other}]
    )
    first, *rest = drive(search, lambda config: values[config["architecture"]])["architecture"]
    assert first == other and len(rest) == 4 and set(rest) <= listed
    assert set(search.trust()) == {"metric0", "metric1", "metric2"}


def test_codes_alone_and_metrics_alone(write: Write) -> None:
    table, values = landscape()
    pool = write(table)
    assert ranks(pool, values, metrics=[]) < RANDOM_RANK
    assert ranks(pool, values, encoding="none") < RANDOM_RANK
    assert ranks(pool, values, metrics=["metric1"]) < RANDOM_RANK


def test_robot_finds_the_results_of_one_weighting(write: Write) -> None:
    table, values = landscape()
    assert ranks(write(table), values, RoBoTSearch) < RANDOM_RANK


def test_seeds_give_different_and_repeatable_results(write: Write) -> None:
    table, values = landscape()
    pool = write(table)

    def names(seed: int) -> list[str]:
        searcher = RankSurrogateSearch(pool, seed=seed, metric="accuracy", mode="max")
        return drive(searcher, lambda config: values[config["architecture"]])["architecture"].tolist()

    assert names(0) == names(0)
    assert len({tuple(names(seed)) for seed in range(8)}) >= 3  # many seeds start with the same row


def test_only_the_order_counts(write: Write) -> None:
    """Units and tails of metrics and results change nothing."""
    table, values = landscape()

    def names(table: pd.DataFrame, evaluate: Callable[[float], float]) -> list[str]:
        searcher = RankSurrogateSearch(write(table), metric="accuracy", mode="max")
        return drive(searcher, lambda config: evaluate(values[config["architecture"]]))["architecture"].tolist()

    stretched = table.assign(metric0=table["metric0"] ** 3 * 1e6)
    assert names(table, float) == names(stretched, lambda value: math.exp(5 * value))


def test_a_metric_with_a_minus_is_reversed(write: Write) -> None:
    table, values = landscape()
    names = list(table.columns[1:])
    turned = [f"-{name}" for name in names]

    def first(table: pd.DataFrame, metrics: list[str]) -> list[str]:
        searcher = RankSurrogateSearch(write(table), metrics, metric="accuracy", mode="max")
        return drive(searcher, lambda config: values[config["architecture"]])["architecture"].tolist()

    assert first(table, names) == first(negated(table), turned)


def test_missing_values_are_between_the_other_metrics_and_the_median() -> None:
    columns = np.array([[1.0, 10.0, np.nan], [2.0, 20.0, np.inf], [3.0, np.nan, 5.0], [np.nan] * 3, [4.0, 30.0, 7.0]])
    scores = metric_scores(columns)
    assert np.isfinite(scores).all()
    assert scores[0, 2] == pytest.approx(scores[0, :2].sum() / 3)
    assert (scores[3] == 0).all()
    np.testing.assert_allclose(scores[[0, 1, 2, 4], 0], normal_scores(columns[:, 0])[[0, 1, 2, 4]])


def test_result_scores() -> None:
    scores = result_scores([3.0, None, 1.0, 2.0, 1.0])
    assert scores[1] is None
    assert scores[2] == scores[4] == max(score for score in scores if score is not None)
    assert scores[0] == min(score for score in scores if score is not None)
    assert result_scores([None]) == [None]


def test_the_pool_is_not_part_of_pickle_and_state(write: Write, tmp_path: Path) -> None:
    table, values = landscape()
    for search in (RankSurrogateSearch, RoBoTSearch):
        searcher = search(write(table), budget=15, metric="accuracy", mode="max")
        drive(searcher, lambda config: values[config["architecture"]])
        searcher.save(str(tmp_path / "state"))
        assert len(pickle.dumps(searcher)) < 20_000
        assert (tmp_path / "state").stat().st_size < 20_000


def test_points_and_evaluations_of_the_user(write: Write) -> None:
    table, values = landscape()
    pool, names = write(table), table["architecture"]
    searcher = RankSurrogateSearch(
        pool, budget=4, metric="accuracy", mode="max", points_to_evaluate=[{"architecture": names[5]}] * 2
    )
    searcher.add_evaluated_point({"architecture": names[9]}, 3.0)
    suggested = drive(searcher, lambda config: values[config["architecture"]])["architecture"].tolist()
    assert suggested[0] == names[5]
    assert len(set(suggested)) == 4
    assert names[9] not in suggested
    with pytest.raises(InvalidInput, match="is in the pool"):
        searcher.add_evaluated_point({"architecture": "unknown"}, 3.0)


def test_the_learned_weights_of_metrics(write: Write) -> None:
    table, values = landscape()
    table["noise"] = np.random.default_rng(2).random(ROWS)
    table["against"] = [-values[name] for name in table["architecture"]]
    searcher = RankSurrogateSearch(write(table), budget=40, metric="accuracy", mode="max")
    assert list(searcher.trust().values()) == pytest.approx([2 / 3 / 5] * 5)  # one process of three ignores all metrics
    drive(searcher, lambda config: values[config["architecture"]])
    trust = searcher.trust()
    assert min(trust, key=trust.__getitem__) == "against"
    assert trust["against"] < 0 < trust["metric0"]


def test_the_weights_of_metrics_need_only_the_rows_with_results() -> None:
    rng, (rows, results) = np.random.default_rng(0), (4000, 60)
    scores, codes = rng.standard_normal((rows, 3)), rng.integers(0, 4, (rows, 5))
    observed = rng.permutation(rows)[:results].tolist()
    losses = (-scores[observed] @ [1.0, 0.5, -0.5] + 0.1 * rng.standard_normal(results)).tolist()
    surrogate, kernel, targets = RankSurrogate(scores, codes), RankKernel(scores, codes), result_scores(losses)
    expected = []
    for setting in KernelSetting().hypotheses:
        covariance = np.array([kernel.row(row, setting)[observed] for row in observed])
        residual = np.array(targets) - kernel.mean(setting)[observed]
        solved = np.linalg.solve(covariance + setting.noise * np.eye(results), residual)
        expected.append((setting.prior + setting.linear * kernel.scores[observed].T @ solved) / 3)
    evidence = [posterior.evidence for posterior in RankSurrogate(scores, codes).posteriors(observed, targets)]
    tracemalloc.start()
    weights = surrogate.metric_weights(observed, losses)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(weights, mixture(evidence) @ np.array(expected), atol=1e-10)
    assert peak < 8 * results * rows  # bytes of one array of results x rows; the posterior of all rows needs several


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"metric0": 1.0}, {}, "the column metric0, got the same number, 1, in every row"),
        ({"metric0": math.nan}, {"metrics": ["metric0"]}, "the column metric0, got no finite number"),
        ({}, {"metrics": ["unknown"]}, "no column unknown; it has architecture, metric0"),
        ({"word": "a"}, {"metrics": ["word"]}, "expected numbers in the column word"),
        ({"architecture": "a"}, {}, "'a' more than once"),
        ({}, {"metrics": [], "encoding": "none"}, "has no metric"),
        ({"accuracy": 1.0}, {"metrics": ["accuracy"], "results": ["accuracy"]}, "metrics that are not results"),
    ],
)
def test_bad_tables_raise_an_error(write: Write, change: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPool, match=message):
        RankSurrogateSearch(write(landscape()[0].assign(**change)), **options)


def test_bad_arguments_raise_an_error(write: Write) -> None:
    pool = write(landscape()[0])
    with pytest.raises(InvalidInput, match="expected a list of columns"):
        RankSurrogateSearch(pool, metrics="metric0")
    with pytest.raises(InvalidInput, match="there is no encoding 'one-hot'"):
        RankSurrogateSearch(pool, encoding="one-hot")
    with pytest.raises(InvalidPool, match="has no metric"):
        RoBoTSearch(pool, metrics=[])


def test_columns_of_results_are_left_out(write: Write) -> None:
    table, values = landscape()
    table["accuracy"] = [values[name] for name in table["architecture"]]
    searcher = RankSurrogateSearch(write(table), results=["accuracy"])
    assert searcher.metrics == ("metric0", "metric1", "metric2")


def test_a_space_provides_the_codes(write: Write) -> None:
    space, rng = get_space("nasbench1shot1-1"), np.random.default_rng(0)
    names = sorted({space.encode(space.sample(rng)) for _ in range(40)})
    pool = write(pd.DataFrame({"architecture": names, "snip": rng.random(len(names))}))
    with pytest.raises(InvalidInput, match="for the encoding tokens"):
        RankSurrogateSearch(pool)
    searcher = RankSurrogateSearch(pool, encoding=space, budget=5, metric="accuracy", mode="max")
    assert searcher.pool.codes.shape == (len(names), len(space.decisions))
    assert len(drive(searcher, lambda config: len(config["architecture"]))) == 5
