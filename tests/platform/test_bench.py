"""`archray bench`: the contents of its tables, the inputs that it rejects, and how it resumes after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_bench import FEW_VALUES, bench_here, synthetic_table
from archray_test_command import finish, kill_when, start
from scipy import stats
from typer.testing import CliRunner

import archray
from archray import plots
from archray.errors import ArchrayError, InvalidInput, RunFolderError, UnknownName
from archray.platform.bench.page import bench_regret, curves
from archray.platform.bench.question import PARTS
from archray.platform.bench.result import BenchResult, paired
from archray.platform.bench.run import make_question
from archray.platform.cli import application
from archray.trainables.tabular import read_table

OUTPUTS = ("summary.csv", "searches.csv", "differences.csv", "bench.md", "bench.html")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    place = tmp_path_factory.mktemp("table") / "table.csv"
    return place, synthetic_table(place)


@pytest.fixture(scope="module")
def bench(table: tuple[Path, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> BenchResult:
    out = tmp_path_factory.mktemp("bench") / "bench"
    return bench_here(["evolution"], table=table[0], out=out, seeds=4, budget=[5, 12])


def test_random_largest_and_metric_first_rows_are_in_every_table(bench: BenchResult) -> None:
    unasked = ["random", "params first", "snip first", f"{FEW_VALUES} first", "kappa first"]
    assert bench.labels == ["evolution", *unasked]
    summary = bench.summary()
    for budget in (5, 12):
        own = summary[summary["budget"] == budget]
        assert list(own["method"]) == bench.labels and set(own["evaluations"]) == {budget}
    text = (Path(bench.folder.path) / "bench.md").read_text()
    assert all(text.count(f"| {label} |") >= 2 for label in unasked)


def test_random_search_runs_alone_on_a_table_without_metrics(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    pd.DataFrame({"arch": ["a", "b", "c"], "val_accuracy": [1, 3, 2]}).to_csv(path, index=False)
    result = bench_here(["random"], table=path, out=tmp_path / "bench", seeds=2, budget=[2, 20])
    assert result.labels == ["random"] and result.differences().empty
    assert result.question.budgets == (2, 3) and set(result.searches["evaluations"]) == {2, 3}, "at most the table"
    assert {path.name for path in (tmp_path / "bench").iterdir()} >= set(OUTPUTS)


@pytest.mark.parametrize(("column", "sign"), [("snip", -1), ("params", -1), ("kappa", 1)])
def test_column_first_picks_the_best_objective_of_the_first_rows(
    bench: BenchResult, table: tuple[Path, pd.DataFrame], column: str, sign: int
) -> None:
    frame = table[1]
    first = frame.iloc[np.argsort(sign * frame[column])[:12]]
    best = first.loc[first["val_accuracy"].idxmax()]
    own = bench.searches.query("method == @column + ' first' and budget == 12")
    assert len(own) == 1, "without equal values it runs once"
    assert own["architecture"].item() == best["architecture"]
    assert own["result"].item() == best["test_accuracy"]
    assert own["rank"].item() == 1 + (frame["val_accuracy"] > best["val_accuracy"]).sum()
    assert own["seconds"].item() == pytest.approx(first["train_seconds"].sum())
    assert own["params"].item() == best["params"]


def test_the_seed_orders_equal_values(bench: BenchResult) -> None:
    own = bench.trials.query("method == @FEW_VALUES + ' first' and budget == 12".replace("@FEW_VALUES", "'nwot'"))
    orders = {tuple(search["row"]) for _, search in own.groupby("seed")}
    assert len(orders) == 4
    assert (bench.table.metrics[FEW_VALUES][own["row"]] == 3).all()


def test_the_summary_aggregates_the_searches(bench: BenchResult) -> None:
    own = bench.searches.query("method == 'random' and budget == 12")
    result = bench.summary().query("method == 'random' and budget == 12").iloc[0]
    assert result["seeds"] == 4
    assert result["result"] == pytest.approx(own["result"].mean())
    assert result["result_std"] == pytest.approx(np.std(own["result"], ddof=1))
    assert result["result_worst"] == own["result"].min()
    assert result["rank_worst"] == own["rank"].max()


def test_paired_intervals_equal_those_of_scipy(bench: BenchResult) -> None:
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(1, 1, 12), rng.normal(0, 1, 12)
    result, test = paired(ours, theirs, 7), stats.ttest_rel(ours, theirs)
    assert result["difference"] == pytest.approx((ours - theirs).mean())
    assert (result["low"], result["high"]) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert (result["low_all"], result["high_all"]) == pytest.approx(tuple(test.confidence_interval(1 - 0.05 / 7)))
    assert result["better"] == pytest.approx((ours > theirs).mean())
    once = paired(np.array([1.0]), theirs)
    assert (once["low"], once["high"]) == pytest.approx(tuple(stats.ttest_1samp(1 - theirs, 0).confidence_interval()))
    assert np.isnan(paired(np.array([1.0]), np.array([2.0]))["low"])
    differences = bench.differences("params first")
    assert "params first" not in set(differences["method"]) and len(differences) == 2 * 5
    with pytest.raises(UnknownName, match="expected one of the rows evolution"):
        bench.differences("absent")


def test_the_figure_draws_the_best_value_so_far(bench: BenchResult) -> None:
    x, best = curves(bench, "random")
    assert x.tolist() == list(range(1, 13)) and best.shape == (4, 12)
    assert (np.diff(best, axis=1) >= 0).all()
    assert best[:, -1].tolist() == bench.searches.query("method == 'random' and budget == 12")["objective"].tolist()
    canvas = plots.bench_regret(bench.folder.path)
    assert len(canvas.axes) == 2 and all(axes.has_data() for axes in canvas.axes)
    assert {"random", "evolution"} <= {text.get_text() for text in canvas.legends[0].get_texts()}


def test_smaller_can_be_better(table: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    frame = table[1].assign(loss=100 - table[1]["val_accuracy"]).drop(columns=["val_accuracy", "test_accuracy"])
    from archray.trainables.tabular import Roles
    from archray.trainables.tabular.table_file import write_table_file

    roles = Roles(("architecture",), objective="loss", mode="min", metrics=("snip",))
    write_table_file(tmp_path / "loss.parquet", frame, roles)
    result = bench_here(["random"], table=tmp_path / "loss.parquet", out=tmp_path / "out", seeds=2, budget=256)
    assert result.labels == ["random", "snip first"]
    assert set(result.searches["result"]) == {frame["loss"].min()} and set(result.searches["rank"]) == {1}


def test_budget_in_training_seconds(table: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    result = bench_here(["evolution"], table=table[0], out=tmp_path / "out", seeds=2, budget_seconds=60)
    spent = result.searches["seconds"]
    assert (spent <= 60).all() and (spent > 60 - 10).all()
    assert result.searches["evaluations"].between(6, 11).all()
    assert len(bench_regret(result).axes) == 2


def test_options_get_rows_with_their_names(table: tuple[Path, pd.DataFrame]) -> None:
    words = ["evolution:population=3,sample_size=2", "evolution", "evolution"]
    question = make_question(words, read_table(table[0]), table[0], seeds=20, budget=8)
    assert [entrant.label for entrant in question.entrants if entrant.asked] == words[:2]
    assert question.entrants[0].options == {"population": 3, "sample_size": 2}


def test_hnas_is_compared_with_random_points_of_its_square(table: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    words = ["hnas", "hnas:proxy=nwot,penalty=absolute"]
    result = bench_here(words, table=table[0], out=tmp_path / "out", seeds=2, budget=7, proxy=["snip"])
    named = ["hnas:proxy=snip", "hnas:proxy=nwot,penalty=absolute"]
    assert result.labels[:5] == [
        named[0],
        f"{named[0]}, random points",
        named[1],
        f"{named[1]}, random points",
        "random",
    ]
    assert set(result.searches["evaluations"]) == {7}
    points = result.trials[result.trials["method"] == f"{named[0]}, random points"]
    assert points[points["seed"] == 0]["row"].tolist() != points[points["seed"] == 1]["row"].tolist()


# Rejected before the start, without a folder

BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"budget": 0}, "expected positive integers"),
    ({"seeds": 0}, "seeds: expected 1 to 1,000,000"),
    ({"methods": ["evolutoin"]}, "did you mean 'evolution'"),
    ({"methods": ["darts"]}, "darts cannot search a table"),
    ({"methods": ["evolution:populatoin=3"]}, "evolution:populatoin=3: .*populatoin"),
    ({"methods": ["evolution:population"]}, "METHOD:OPTION=VALUE"),
    ({"methods": ["hnas"]}, "hnas needs a training-free metric. Name one or several with --proxy"),
    ({"proxy": ["absent"]}, "no metric 'absent'; it has snip, nwot, kappa, params"),
    ({"against": "absent"}, "against: expected one of the rows .*, got 'absent'"),
    ({"budget": 5, "budget_seconds": 60.0}, "got both"),
    ({"budget_seconds": 1.0}, "the longest training run in the table"),
    ({"where": {"task": "a"}}, "no column 'task'"),
]


@pytest.mark.parametrize(("changed", "message"), BAD_INPUT, ids=lambda value: str(value))
def test_bad_input_raises_an_error(
    table: tuple[Path, pd.DataFrame], tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    question = {"methods": ["evolution"], "table": table[0], "out": tmp_path / "out", "budget": 8} | changed
    if "budget_seconds" in changed and "budget" not in changed:
        del question["budget"]
    with pytest.raises(InvalidInput, match=message) as caught:
        archray.bench(**question)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_metric_first_follows_the_direction_and_the_constraint(
    table: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    methods = ["zero-cost:proxy=kappa", "zero-cost:proxy=snip,mu=2", "zero-cost:proxy=snip,mu=1,nu=1.5"]
    question = {"table": table[0], "seeds": 1, "budget": 1}
    chosen = bench_here(methods, out=tmp_path / "bench", **question).searches.set_index("method")["architecture"]
    values = table[1].set_index("architecture")
    assert chosen[methods[0]] == values["kappa"].idxmin()
    assert chosen[methods[1]] == (values["snip"] - values["snip"].mean()).abs().idxmin()
    assert chosen[methods[2]] == values["snip"][values["snip"] >= 1.5].idxmin()
    with pytest.raises(InvalidInput, match="zero-cost:proxy=kappa,mu=2: mu: expected a metric whose largest values"):
        archray.bench(["zero-cost:proxy=kappa,mu=2"], out=tmp_path / "rejected", **question)


def test_a_constant_metric_is_left_out_with_a_note(
    table: tuple[Path, pd.DataFrame], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table[1].assign(snip=1.0).to_csv(tmp_path / "flat.csv", index=False)
    question = {"table": tmp_path / "flat.csv", "budget": 5, "seeds": 1}
    with pytest.raises(InvalidInput, match=r"flat.csv: expected a metric that varies, got snip"):
        archray.bench(["zero-cost"], proxy="snip", out=tmp_path / "named", **question)
    assert "snip first" not in bench_here(["random"], out=tmp_path / "unnamed", **question).labels
    archray.bench(["random"], out=tmp_path / "unnamed", **question)  # no work is left
    assert "ignoring constant columns: snip\n" in capsys.readouterr().out


def test_a_folder_holds_a_single_benchmark(
    bench: BenchResult, table: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    again = {"table": table[0], "out": bench.folder.path, "seeds": 4, "budget": [5, 12]}
    assert archray.bench(["evolution"], **again).summary().equals(bench.summary()), "nothing was left to do"
    with pytest.raises(RunFolderError, match=r"its seeds are 4, now 5\. Run the same command"):
        archray.bench(["evolution"], **{**again, "seeds": 5})
    with pytest.raises(RunFolderError, match="its rows are evolution, random"):
        archray.bench(["random"], **again)
    (tmp_path / "other.txt").touch()
    with pytest.raises(RunFolderError, match="expected a new folder or a bench"):
        archray.bench(["random"], **{**again, "out": tmp_path})


def test_the_command_reports_bad_input(table: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    """METHOD is accepted before or after the options, with or without `run`."""
    options = ("--table", str(table[0]), "--out", str(tmp_path / "out"), "--budget", "0")
    for arguments in (
        ("bench", "evolution", *options),
        ("bench", *options, "evolution"),
        ("bench", "run", "evolution", *options),
    ):
        result = CliRunner().invoke(application(arguments), arguments)
        assert isinstance(result.exception, ArchrayError) and "positive integers" in str(result.exception)
    shown = CliRunner().invoke(application(("bench", "--help")), ("bench", "--help"))
    assert shown.exit_code == 0 and "archray bench evolution --table" in shown.output


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_resumed_bench_reports_the_same_results(table: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    command = ("bench", "evolution", "--table", str(table[0]), "--seeds", "16", "--budget", "60,200", "--out", "killed")
    process = start(*command, cwd=tmp_path)
    parts = tmp_path / "killed" / PARTS
    kill_when(process, lambda: len(list(parts.glob("[!.]*.parquet"))) >= 3, tmp_path)
    done = {part.name: part.stat().st_mtime_ns for part in parts.glob("[!.]*.parquet")}
    assert not (tmp_path / "killed" / "summary.csv").exists()
    with pytest.raises(RunFolderError, match="has not ended"):
        BenchResult.read(str(tmp_path / "killed"))
    finish(*command, cwd=tmp_path)
    assert all((parts / name).stat().st_mtime_ns == before for name, before in done.items()), "done once"
    whole = bench_here(["evolution"], table=table[0], out=tmp_path / "whole", seeds=16, budget=[60, 200])
    assert len(whole.searches) == len(BenchResult.read(str(tmp_path / "killed")).searches)
    for name in OUTPUTS:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
