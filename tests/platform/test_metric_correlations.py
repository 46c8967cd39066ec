"""`archray bench proxies`: correlations of the metrics of a table, without and within the bounds of HNAS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from archray_test_bench import synthetic_table
from scipy.stats import kendalltau, spearmanr
from typer.testing import CliRunner

import archray
from archray.errors import InvalidInput, RunFolderError
from archray.platform.bench.correlations import correlations
from archray.platform.cli import application
from archray.searchers.hnas.objective import fit_trade_off
from archray.trainables.tabular import read_table


def test_every_metric_in_every_scenario(tmp_path: Path) -> None:
    frame = synthetic_table(tmp_path / "table.csv")
    arguments = ("bench", "proxies", "--table", str(tmp_path / "table.csv"), "--out", str(tmp_path / "out"))
    shown = CliRunner().invoke(application(arguments), arguments)
    assert shown.exit_code == 0, shown.output
    table = pd.read_csv(tmp_path / "out" / "proxies.csv")
    assert shown.output.count("snip") >= 4 and "| snip | κ/M + trade-off |" in (tmp_path / "out/proxies.md").read_text()

    def row(metric: str, scenario: str, judged_on: str = "test_accuracy", fitted_on: str | None = None) -> pd.Series:
        own = table.query("metric == @metric and scenario == @scenario and judged_on == @judged_on")
        return own[own["fitted_on"].isna() if fitted_on is None else own["fitted_on"] == fitted_on].iloc[0]

    for column in ("snip", "nwot", "kappa", "params"):
        own = row(column, "as it is")
        assert own["spearman"] == pytest.approx(spearmanr(frame[column], frame["test_accuracy"]).statistic)
        assert own["kendall"] == pytest.approx(kendalltau(frame[column], frame["test_accuracy"]).statistic)
    quotient = frame["kappa"] / frame["snip"]
    assert row("snip", "κ/M")["spearman"] == pytest.approx(spearmanr(-quotient, frame["test_accuracy"]).statistic)
    assert row("nwot", "1/M")["n"] == (frame["nwot"] > 0).sum(), "M = 0 is left out"
    in_sample = row("snip", "κ/M + trade-off", fitted_on="test_accuracy")["spearman"]
    fitted = row("snip", "κ/M + trade-off", fitted_on="val_accuracy")
    assert in_sample >= max(fitted["spearman"], row("snip", "κ/M")["spearman"] - 0.005)
    scaled = frame["snip"] / frame["snip"].max()
    bound = frame["kappa"] / scaled + fitted["mu"] * (scaled**2 - fitted["nu"]) ** 2
    assert fitted["spearman"] == pytest.approx(spearmanr(-bound, frame["test_accuracy"]).statistic)
    with pytest.raises(RunFolderError, match=r"contains proxies.csv"):
        archray.bench_proxies(tmp_path / "table.csv", out=tmp_path / "out")


def test_the_fit_finds_an_existing_trade_off() -> None:
    rng = np.random.default_rng(0)
    metric = np.exp(rng.normal(0, 1, 5000))
    metric /= metric.max()
    quotient = 1 / metric
    values = -np.abs(np.log(metric) - np.median(np.log(metric)))  # the best M is the median, not the largest
    assert spearmanr(-quotient, values).statistic < 0.1
    fit = fit_trade_off(metric, quotient, values)
    assert spearmanr(-(quotient + fit.mu * (metric**2 - fit.nu) ** 2), values).statistic > 0.5


def test_smaller_can_be_better(tmp_path: Path) -> None:
    frame = synthetic_table(tmp_path / "table.csv")
    frame["test_accuracy"] *= -1
    frame["val_accuracy"] *= -1
    frame.to_csv(tmp_path / "errors.csv", index=False)
    one, other = (
        correlations(read_table(tmp_path / "table.csv")),
        correlations(read_table(tmp_path / "errors.csv", mode="min")),
    )
    pd.testing.assert_frame_equal(one, other)


def test_a_table_without_metrics_raises_an_error(tmp_path: Path) -> None:
    synthetic_table(tmp_path / "table.csv").drop(columns=["snip", "nwot", "kappa"]).to_csv(
        tmp_path / "none.csv", index=False
    )
    with pytest.raises(InvalidInput, match="expected a table with a training-free metric"):
        archray.bench_proxies(tmp_path / "none.csv")
