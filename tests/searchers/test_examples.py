"""The examples of standalone searchers and the benchmarks of searchers run on small inputs."""

from __future__ import annotations

import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from archray.trainables.spaces import get_space


def run(path: Path) -> dict[str, Any]:
    """Runs a script and returns its names.

    Its classes are pickled by value for Ray's workers, as those of `__main__`.
    """
    return runpy.run_path(str(path), run_name="script")


@pytest.mark.usefixtures("ray_session")
def test_hnas_in_your_own_experiment(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = run(repository / "examples" / "hnas_in_your_own_experiment.py")
    best = example["main"](tmp_path, budget=3, epochs=1)
    assert "x" in best["architecture"]
    assert 0 < best["value"] <= 1
    assert f"best: {best['architecture']}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_halving_in_your_own_experiment(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = run(repository / "examples" / "halving_in_your_own_experiment.py")
    lines = inspect.getsource(example["shared_solve"]).splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 15
    best = example["main"](tmp_path, budget=64)
    assert best["candidate"] in example["CANDIDATES"]
    assert best["round"] == 7
    assert best["value"] > 0.5  # chance is 0.1
    printed = capsys.readouterr().out
    assert f"best: {best['candidate']}" in printed
    assert example["main"](tmp_path, budget=64) == best  # resumed without remaining work
    assert printed.splitlines()[-9:] == capsys.readouterr().out.splitlines()[-9:]
    assert len(list((tmp_path / "digits").glob("shared_solve_*"))) == 13


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_nesbs_in_your_own_experiment(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = run(repository / "examples" / "nesbs_in_your_own_experiment.py")
    best = example["main"](Path("kept"), budget=2, epochs=1)  # a relative path, which Tune rejects
    assert (tmp_path / "kept" / "digits").is_dir()
    assert len(set(best["members"])) == 3
    assert best["delta"] in (-0.5, 1.0)
    assert f"best: delta {best['delta']:g} with validation loss {best['value']:.3f}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_evolution_in_your_own_experiment(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = run(repository / "examples" / "evolution_in_your_own_experiment.py")
    best = example["main"](tmp_path, budget=8, epochs=3)
    assert best.keys() > example["DOMAINS"].keys()
    assert best["value"] > 0.3  # chance is 0.1
    assert "8 trials, " in capsys.readouterr().out


@pytest.mark.usefixtures("ray_session")
def test_durable_experiment(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = run(repository / "examples" / "durable_experiment.py")
    first = example["main"](tmp_path / "digits", trials=2)
    printed = capsys.readouterr().out
    assert "2 trials; best: width " in printed
    again = example["main"](tmp_path / "digits")  # finished, so no trial runs
    assert {result.path for result in again} == {result.path for result in first}  # in any order
    assert capsys.readouterr().out.splitlines()[-1] == printed.splitlines()[-1]


def test_suggest_benchmark(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = run(repository / "benchmarks" / "suggest.py")
    some = ["random", "evolution", "local-search", "reinforce", "metric-first", "hnas, uniform points"]
    benchmark["main"](["--trials", "4", "--rows", "60", "--searchers", *some])
    *lines, memory = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == some
    assert memory.startswith("peak memory: ")


@pytest.mark.slow
def test_conformance_benchmark(repository: Path) -> None:
    """In a separate process, since it runs pytest."""
    command = [sys.executable, str(repository / "benchmarks" / "searcher_conformance.py"), "test_metric_first.py"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed[0] == "|  | MetricFirst |"
    assert "| finishes | 1 |" in printed and not any("failed |" in line for line in printed)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_several_metrics_in_your_own_experiment(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = run(repository / "examples" / "several_metrics_in_your_own_experiment.py")
    best = example["main"](tmp_path, budget=4, epochs=1)
    assert len(example["layers"](best["architecture"])) >= 1
    assert 0 < best["value"] <= 1
    printed = capsys.readouterr().out
    assert "weight of gradient_norm" in printed and f"best: {best['architecture']}" in printed


def test_several_metrics_benchmark(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    rows = {"task": "jigsaw", "arch": [f"({a}, {b}, {c})" for a in range(3) for b in range(4) for c in range(9)]}
    table = pd.DataFrame(rows).assign(val_accuracy=rng.random(108), snip=rng.random(108), params=rng.random(108))
    table.to_csv(tmp_path / "transnas101_micro.csv.gz", index=False)
    benchmark = run(repository / "benchmarks" / "several_metrics.py")
    benchmark["main"]([str(tmp_path), "--seeds", "1", "--mislead", "negated"])
    lines = capsys.readouterr().out.splitlines()
    assert "transnas-jigsaw,108,random search,20,5.2,,1," in lines
    for method in ("robot", "rank-surrogate", "snip first"):
        assert sum(line.startswith(f"transnas-jigsaw,108,{method},") for line in lines) == 2  # budgets


@pytest.fixture
def scored_pool(tmp_path: Path) -> Path:
    """A pool and a table of 30 forms with synthetic values."""
    space, rng = get_space("nasbench201"), np.random.default_rng(0)
    forms = sorted({space.encode(space.canonical(space.sample(rng))) for _ in range(40)})[:30]
    n = len(forms)
    pool = pd.DataFrame({"architecture": forms, "kappa": rng.lognormal(3, 1, n), "failure": None})
    pool.assign(grad_norm=rng.random(n), snip=rng.random(n)).to_parquet(tmp_path / "pool.parquet")
    columns = ("cifar10_valid_12", "cifar100_valid_12", "imagenet16_valid_12", "params_m_cifar10", "flops_m_cifar10")
    table = pd.DataFrame({"arch": forms, **{column: rng.random(n) * 100 for column in columns}})
    table.assign(cifar10_test_200=table["cifar10_valid_12"] + 1).to_csv(tmp_path / "table.csv", index=False)
    return tmp_path


def test_benchmark(repository: Path, scored_pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = run(repository / "benchmarks" / "hnas_nasbench201.py")
    table = str(scored_pool / "table.csv")
    options = ["--metrics", "grad_norm", "snip", "--budget", "6", "--seeds", "2", "--settings", "random points"]
    benchmark["main"](["searches", str(scored_pool / "pool.parquet"), "--table", table, *options])
    lines = capsys.readouterr().out.splitlines()
    assert "| searched by | grad_norm | snip |" in lines
    assert sum(line.startswith(("| random points | ", "| random search")) for line in lines) == 2


def test_benchmark_rejects_another_table(repository: Path, scored_pool: Path) -> None:
    pd.read_csv(scored_pool / "table.csv").head(3).to_csv(scored_pool / "short.csv", index=False)
    benchmark = run(repository / "benchmarks" / "hnas_nasbench201.py")
    with pytest.raises(SystemExit, match="lacks 2"):
        benchmark["main"](["searches", str(scored_pool / "pool.parquet"), "--table", str(scored_pool / "short.csv")])


def test_nesbs_benchmark(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = run(repository / "benchmarks" / "nesbs.py")
    sampling = ["--particles", "2", "--restarts", "2", "--iterations", "40", "--repeats", "1"]
    evaluation = ["--sizes", "2", "--members", "4", "--images", "200", "--ensembles", "20"]
    assert benchmark["main"](sampling + evaluation) == 0
    printed = capsys.readouterr().out
    assert "| 2 | 2 | " in printed and "| logits | 2 | " in printed
