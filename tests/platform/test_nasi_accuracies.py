"""Correlations of metrics with the accuracies of a table, with and without nu, bins, and the space of a table."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from archray.platform.methods.nasi.config import METRICS, TableValues
from archray.platform.methods.nasi.figures import ALL, WITHIN, Accuracies, binned, correlations
from archray.trainables.spaces import get_space


def accuracies_table(mode: str = "max") -> Accuracies:
    """Ten random architectures with an edge at nu, one without a trace norm, and one that the search found."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(11, len(METRICS))), columns=list(METRICS))
    rows[METRICS[0]] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, math.nan, 100.0]
    rows = rows.assign(
        architecture=list("abcdefghijk"), parameters=7.0, result=rng.normal(size=11), drawn=[True] * 10 + [False]
    )
    return Accuracies(rows, "accuracy", mode, best=3.0, nu=5.0)


def test_correlations_of_all_and_within_nu() -> None:
    accuracies, mu = accuracies_table(), 2.0
    statistics = {(one.metric, one.of): one for one in correlations(accuracies, mu)}
    rows = accuracies.rows[:9]
    rewards = [1.0, 2.0, 3.0, 4.0, 5.0, 4.0, 3.0, 2.0, 1.0]  # trace - 2 max(0, trace - 5)
    for key, values, results in (
        (("trace norm", ALL), rows[METRICS[0]], rows["result"]),
        (("trace norm", WITHIN), rows[METRICS[0]][:5], rows["result"][:5]),
        (("reward", ALL), rewards, rows["result"]),
        (("snip", WITHIN), rows["snip"][:5], rows["result"][:5]),
    ):
        one = statistics[key]
        assert one.spearman == pytest.approx(stats.spearmanr(values, results).statistic)
        assert one.kendall == pytest.approx(stats.kendalltau(values, results).statistic)
        assert one.pearson == pytest.approx(stats.pearsonr(values, results).statistic)
        assert one.number == len(results)
    assert ("reward", WITHIN) not in statistics, "it is the trace norm there"
    assert math.isnan(statistics["parameters", ALL].spearman), "equal values have no correlation"


def test_a_positive_correlation_with_errors_is_also_correct() -> None:
    signs = [correlations(accuracies_table(mode), 1.0)[0].pearson for mode in ("max", "min")]
    assert signs[0] == pytest.approx(-signs[1]) and abs(signs[0]) > 0.01


def test_bins_have_equal_sizes_in_the_order_of_trace_norms() -> None:
    traces = np.array([5.0, 1.0, 2.0, 10.0, 9.0, 3.0, 4.0, 8.0, 7.0, 6.0])
    middles, means, deviations = binned(traces, 2 * traces)
    np.testing.assert_allclose(middles, [3.0, 8.0])
    np.testing.assert_allclose(means, [6.0, 16.0])
    np.testing.assert_allclose(deviations, [2 * math.sqrt(2.5)] * 2)
    assert len(binned(traces[:9], traces[:9])[0]) == 0


def test_values_of_a_table_are_keyed_by_canonical_forms(tmp_path: Path) -> None:
    """The first row of two spellings of a cell counts. For errors the smaller value is better."""
    space = get_space("nasbench201")
    spellings = ["|none~0|+|none~0|skip_connect~1|+|nor_conv_3x3~0|none~1|none~2|"]
    spellings += ["|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|"]
    others = [space.encode(space.decode(f"|{op}~0|+|{op}~0|{op}~1|+|{op}~0|{op}~1|{op}~2|")) for op in OPERATIONS]
    place = tmp_path / "errors.csv"
    pd.DataFrame({"arch": [*spellings, *others], "error": [0.3, 0.3, 0.2, 0.1]}).to_csv(place, index=False)
    statistics = TableValues.read(f"{place}?objective=error&mode=min", space)
    assert len(statistics.values) == 3 and sorted(statistics.values.values()) == [0.1, 0.2, 0.3]
    assert all(space.encode(space.canonical(space.decode(name))) == name for name in statistics.values)
    assert statistics.described() == {
        "location": str(place), "checksum": statistics.checksum, "column": "error", "mode": "min", "architectures": 3,
        "best": 0.1,
    }  # fmt: skip


OPERATIONS = ("nor_conv_3x3", "avg_pool_3x3")
