"""The report of searches for feature maps: its numbers compared with plain loops, its sections, and several runs."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_feature_map_report import feature_map_run, feature_map_tables, method_progress
from archray_test_report import HOSTILE, MISSING_NUMBER, rendered, section_ids, words, write_run
from scipy.stats import spearmanr

from archray.errors import InvalidInput
from archray.platform.methods.feature_maps.figures import (
    correlation_panels,
    correlation_section,
    seconds_section,
    shared_against_standalone,
    solver_calls_section,
)
from archray.platform.methods.feature_maps.report import SECTIONS, equal_cost_sections, headline, rounds_section
from archray.platform.methods.feature_maps.tables import (
    accuracy_at,
    accuracy_curve,
    calls_compared,
    comparison_table,
    progress_of,
    reaches,
    seconds_compared,
)
from archray.platform.report.cell import cell_section, decided, decision_table
from archray.platform.report.figures import NothingToDraw
from archray.platform.report.page import render, write_page
from archray.platform.report.rounds import rounds_of
from archray.platform.report.statistics import spearman
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space

METHODS = ("halving", "fast-halving", "random-maps", "successive-halving", "hyperband")
TABLES = feature_map_tables()

NewRun = Callable[..., Run[Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    return feature_map_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def new_run(tmp_path_factory: pytest.TempPathFactory) -> NewRun:
    """Makes a `feature_map_run` in a new folder."""
    return lambda **content: feature_map_run(tmp_path_factory.mktemp("run"), **content)


@pytest.fixture(scope="module")
def runs() -> list[tuple[str, pd.DataFrame]]:
    return [(method, method_progress(method)) for method in METHODS]


# Test accuracy by calls and by seconds


def loop_reference(progress: pd.DataFrame, by: str, x: float) -> list[float]:
    """Returns the last known test accuracy of each repeat at or before x."""
    found = []
    for repeat in sorted(set(progress["repeat"])):
        last = None
        for row in progress[progress["repeat"] == repeat].to_dict("records"):
            if row[by] <= x and not math.isnan(row["search_test_accuracy"]):
                last = row["search_test_accuracy"]
        if last is not None:
            found.append(last)
    return found


def with_gaps(progress: pd.DataFrame) -> pd.DataFrame:
    """Removes the test accuracies of the first two calls of a repeat, and one in five elsewhere."""
    rng = np.random.default_rng(0)
    unknown = (rng.random(len(progress)) < 0.2) | ((progress["repeat"] == 1) & (progress["calls"] <= 2))
    return progress.assign(search_test_accuracy=progress["search_test_accuracy"].mask(unknown))


@pytest.mark.parametrize("method", ["halving", "random-maps", "hyperband"])
@pytest.mark.parametrize("by", ["calls", "seconds"])
def test_accuracy_at_a_budget_is_the_last_value_of_each_repeat(method: str, by: str) -> None:
    progress = with_gaps(method_progress(method))
    end = progress[by].max()
    for x in [0, 1, 2, *np.linspace(0.01, 1.1, 25) * end]:
        expected = loop_reference(progress, by, x)
        mean, deviation, repeats = accuracy_at(progress, by, x)  # type: ignore[arg-type]
        assert repeats == len(expected)
        if expected:
            assert mean == pytest.approx(sum(expected) / len(expected), rel=1e-12)
        else:
            assert math.isnan(mean)
        if len(expected) > 1:
            assert deviation == pytest.approx(np.std(expected, ddof=1), rel=1e-9, abs=1e-15)
        else:
            assert math.isnan(deviation)


def test_accuracy_at_the_end() -> None:
    progress = method_progress("halving")
    last = progress.groupby("repeat")["search_test_accuracy"].last()
    assert accuracy_at(progress) == pytest.approx((last.mean(), last.std(), 3))
    assert accuracy_at(pd.DataFrame())[2] == 0


def test_the_order_of_the_rows_does_not_matter() -> None:
    progress = method_progress("random-maps")
    mixed = progress.sample(frac=1, random_state=0)
    assert accuracy_at(mixed, "calls", 7) == accuracy_at(progress, "calls", 7)
    assert accuracy_at(mixed) == accuracy_at(progress)


@pytest.mark.parametrize("by", ["calls", "seconds"])
def test_the_curve_is_the_mean_on_a_common_grid(by: str) -> None:
    progress = with_gaps(method_progress("halving"))
    curve = accuracy_curve(progress, by)  # type: ignore[arg-type]
    assert curve is not None and curve.repeats == 3
    assert (np.diff(curve.x) > 0).all()
    for x, mean in zip(curve.x, curve.mean, strict=True):
        values = loop_reference(progress, by, x)
        assert len(values) == 3  # it starts where every repeat has a value
        assert mean == pytest.approx(np.mean(values))
    before = progress.loc[progress[by] < curve.x[0], by].max()
    assert len(loop_reference(progress, by, before)) < 3
    assert curve.x[-1] == progress[by].max()


def test_a_long_curve_is_thinned_on_its_steps() -> None:
    progress = pd.concat([method_progress("hyperband", repeats=5).assign(repeat=lambda t, i=i: t["repeat"] + 5 * i)
                          for i in range(2)])  # fmt: skip
    curve = accuracy_curve(progress, "seconds")
    assert curve is not None and len(curve.x) == 400
    assert curve.x[-1] == progress["seconds"].max()
    assert curve.mean[-1] == pytest.approx(accuracy_at(progress)[0])


def test_a_repeat_without_any_accuracy_is_left_out() -> None:
    progress = method_progress("halving")
    lost = progress.assign(search_test_accuracy=progress["search_test_accuracy"].mask(progress["repeat"] == 2))
    curve = accuracy_curve(lost, "calls")
    assert curve is not None and curve.repeats == 2 == accuracy_at(lost)[2]
    assert accuracy_curve(progress.assign(search_test_accuracy=np.nan), "calls") is None
    assert accuracy_curve(progress.drop(columns="seconds"), "seconds") is None


def test_an_accuracy_counts_as_reached_only_if_it_is_kept() -> None:
    progress = pd.DataFrame({"repeat": 0, "calls": [1, 2, 3, 4], "search_test_accuracy": [0.7, 0.9, 0.8, 0.95]})
    assert reaches(progress, 0.9, "calls") == 4
    assert reaches(progress, 0.8, "calls") == 2
    assert reaches(progress, 0.7, "calls") == 1
    assert math.isnan(reaches(progress, 0.99, "calls"))
    assert math.isnan(reaches(progress, 0.9, "seconds"))
    late = pd.concat([progress, progress.assign(repeat=1, calls=progress["calls"] + 2)])
    assert reaches(late, 0.7, "calls") == 3  # not before both repeats have one


# Figure 1


def test_rho_equals_that_of_scipy_on_the_same_rows(run: Run[Any]) -> None:
    panels = list(correlation_panels(TABLES["correlation"]))
    assert [(panel.bases, panel.dimension) for panel in panels] == [
        ("shared", 250), ("shared", 1000), ("independent", 250), ("independent", 1000),
    ]  # fmt: skip
    text = words(rendered(run, [correlation_section]))
    for panel in panels:
        frame = TABLES["correlation"]
        frame = frame[(frame["bases"] == panel.bases) & (frame["dimension"] == panel.dimension)]
        rho = [
            spearmanr(rows["shared_accuracy"], rows["standalone_accuracy"]).statistic
            for _, rows in frame.groupby("repeat")
        ]
        assert panel.rho.tolist() == pytest.approx(rho)
        assert panel.maps == 16 and len(panel.rows) == 48
        assert f"ρ = {np.mean(rho):.2f}, 16 maps" in text


@pytest.mark.slow
def test_maps_without_both_accuracies_are_counted_and_left_out(new_run: NewRun) -> None:
    frame = TABLES["correlation"].copy()
    frame.loc[[0, 5], "shared_accuracy"] = np.nan
    frame.loc[5, "standalone_accuracy"] = np.inf
    assert sum(len(panel.rows) for panel in correlation_panels(frame)) == len(frame) - 2
    text = rendered(new_run(correlation=frame), [correlation_section])
    assert "2 points without both accuracies are not shown" in text
    with pytest.raises(NothingToDraw, match=r"correlation\.maps"):
        shared_against_standalone(new_run(correlation=frame.assign(shared_accuracy=np.nan)))


def test_a_rank_correlation_needs_three_different_maps() -> None:
    assert math.isnan(spearman(pd.Series([1.0, 2.0]), pd.Series([1.0, 2.0])))
    assert math.isnan(spearman(pd.Series([1.0, 1.0, 1.0]), pd.Series([1.0, 2.0, 3.0])))
    assert spearman(pd.Series([1.0, 2.0, 3.0]), pd.Series([3.0, 2.0, 1.0])) == -1


# Rounds


def test_the_sizes_of_the_rounds_add_up() -> None:
    for _, rounds in TABLES["rounds"].groupby("repeat"):
        summed = rounds_of(rounds, "min")
        assert [row["round"] for row in summed] == list(range(1, 8))
        for row, following in itertools.pairwise(summed):
            assert row["kept"] + row["dropped"] + row["eliminated"] == row["candidates"]
            assert following["candidates"] == row["kept"]
        first = rounds[rounds["round"] == 1].dropna(subset="score").sort_values("score")
        assert summed[0]["leader"] == first["candidate"].iloc[0]
        assert summed[0]["best"] == first["score"].iloc[0]
        assert summed[0]["eliminated"] == rounds[rounds["round"] == 1]["score"].isna().sum()
        assert summed[1]["lost"] == 1 and summed[0]["lost"] == 0
    highest = rounds_of(TABLES["rounds"].assign(score=-TABLES["rounds"]["score"]), "max")
    assert [row["leader"] for row in highest] == [row["leader"] for row in rounds_of(TABLES["rounds"], "min")]


def test_a_round_without_any_score(new_run: NewRun) -> None:
    rounds = TABLES["rounds"][TABLES["rounds"]["repeat"] == 0]
    broken = rounds.assign(
        score=rounds["score"].mask(rounds["round"] >= 3), kept=rounds["kept"] & (rounds["round"] < 3)
    )
    broken = broken[broken["round"] <= 3]
    summed = rounds_of(broken, "min")
    assert summed[2]["leader"] is None and summed[2]["kept"] == 0
    text = words(rendered(new_run(repeats=1, rounds=broken, progress=pd.DataFrame()), [rounds_section]))
    assert "not a number" in text and not MISSING_NUMBER.search(text.replace("its score is NaN", ""))


# Page


@pytest.mark.slow
def test_no_number_is_missing_from_the_text(new_run: NewRun) -> None:
    correlation = TABLES["correlation"]
    holes = new_run(
        progress=with_gaps(TABLES["progress"]).assign(score=np.nan, dimension=np.nan, candidates=np.nan),
        correlation=correlation.assign(shared_accuracy=correlation["shared_accuracy"].mask(correlation["repeat"] == 1)),
        rounds=TABLES["rounds"].assign(budget=np.nan, failure=None),
    )
    assert not MISSING_NUMBER.search(words(rendered(holes, SECTIONS[:-1])))


def test_the_progress_covers_all_repeats(run: Run[Any], tmp_path: Path) -> None:
    table = progress_of(run)
    pd.testing.assert_frame_equal(table[TABLES["progress"].columns], TABLES["progress"])
    one = method_progress("random-maps", repeats=1).drop(columns="repeat")
    searched = write_run(
        tmp_path, "random-maps", config={"space": "fourier"}, tables={("search", "progress.parquet"): one}
    )
    pd.testing.assert_frame_equal(progress_of(searched).drop(columns="repeat"), one)


def test_the_accuracies_of_the_oracle_precede_those_of_the_search(tmp_path: Path) -> None:
    oracle = TABLES["progress"][TABLES["progress"]["repeat"] == 0].drop(columns="repeat")
    tables = {
        ("search", "progress.parquet"): oracle.assign(
            search_test_accuracy=oracle["search_test_accuracy"].where(oracle["final"])
        ),
        ("oracle", "progress.parquet"): oracle,
    }
    run = write_run(tmp_path, "halving", config={"space": "fourier"}, tables=tables)
    assert progress_of(run)["search_test_accuracy"].tolist() == oracle["search_test_accuracy"].tolist()


def test_a_single_search_has_no_mean(new_run: NewRun) -> None:
    assert "±" not in words(rendered(new_run(repeats=1), []))
    progress = TABLES["progress"].assign(search_test_accuracy=np.nan)
    assert "its test accuracy is unknown" in words(rendered(new_run(repeats=1, progress=progress), []))


def test_a_search_without_a_result_is_reported(tmp_path: Path) -> None:
    lost = pd.DataFrame({"round": 1, "candidate": ["a", "b"], "score": np.nan, "kept": False, "failure": "lost"})
    tables = {("search", "rounds.parquet"): lost}
    text = words(rendered(write_run(tmp_path, "halving", config={"space": "fourier"}, tables=tables)))
    assert "The run found no feature map. See the failures below." in text
    assert "Failures 2 in rounds of halving" in text and "rounds of halving lost 2 2" in text


@pytest.mark.parametrize(
    ("missing", "sections"),
    [
        ("progress", [solver_calls_section, seconds_section]),
        ("correlation", [correlation_section]),
        ("rounds", [rounds_section]),
    ],
)
def test_a_section_without_data_is_left_out(new_run: NewRun, missing: str, sections: list[Any]) -> None:
    for nothing in (pd.DataFrame(), TABLES[missing].head(0)):
        assert section_ids(rendered(new_run(**{missing: nothing}), sections)) == []


@pytest.mark.parametrize("name", ["progress", "correlation", "rounds"])
def test_a_column_may_be_missing(new_run: NewRun, name: str) -> None:
    whole = TABLES[name][TABLES[name]["repeat"] == 0].drop(columns="repeat")
    shown = {"correlation": [correlation_section], "rounds": [rounds_section]}.get(name, SECTIONS[:2])
    for column in whole.columns.drop(["bases", "architecture"] if name == "correlation" else []):
        rendered(new_run(repeats=1, **{name: whole.drop(columns=column)}), shown)
    rendered(new_run(repeats=1, **{name: whole.head(1)}), shown)


@pytest.mark.slow
def test_everything_is_escaped(new_run: NewRun) -> None:
    run = new_run(
        repeats=1,
        found=HOSTILE,
        progress=TABLES["progress"].assign(architecture=HOSTILE),
        correlation=TABLES["correlation"].assign(architecture=HOSTILE, bases=HOSTILE),
        rounds=TABLES["rounds"].assign(candidate=HOSTILE, failure=HOSTILE).drop_duplicates(["repeat", "round"]),
    )
    run = replace(run, config=run.config.model_copy(update={"method": HOSTILE}))
    # This section is about architectures of the space
    shown = [section for section in SECTIONS if section is not cell_section]
    text = render(run, headline(run), shown)
    assert "<script>alert" not in text and "&lt;script&gt;" in text
    text = comparison_page(
        [(HOSTILE, method_progress("random-maps")), (f"halving {HOSTILE}", method_progress("halving"))]
    )
    assert "<script>alert" not in text and "&lt;script&gt;" in text


# Values of the found map


def test_the_constant_of_a_feature_map_is_a_decision() -> None:
    *choices, gamma = decided(get_space("fourier"), "kernel=laplace|preprocess=minmax|gamma=0.0123")
    assert [(d.name, d.choice) for d in choices] == [("kernel", "laplace"), ("preprocess", "minmax")]
    assert (gamma.name, gamma.choice, gamma.bounds) == ("gamma", "0.0123", (1e-5, 10.0))
    assert "any value from 1e-05 to 10" in decision_table([gamma])


def test_a_constant_without_an_effect_is_unused() -> None:
    space = get_space("ngrams")
    rng = np.random.default_rng(0)
    found = {"none": set(), "sif": set()}
    for _ in range(50):
        architecture = space.canonical(space.sample(rng))
        weights = architecture[[decision.name for decision in space.decisions].index("weights")]
        if weights in found:
            found[weights].add(decided(space, space.encode(architecture))[-1].choice == "unused")
    assert found == {"none": {True}, "sif": {False}}


# Several runs


def comparison_page(runs: list[tuple[str, pd.DataFrame]]) -> str:
    return write_page("Comparison", "", equal_cost_sections(runs))


def test_the_numbers_of_the_comparison_table(runs: list[tuple[str, pd.DataFrame]]) -> None:
    table = comparison_table(runs)
    assert table.index.tolist() == list(METHODS)
    assert calls_compared(runs) == [8, 9]  # a quarter of 32, and all calls of halving
    seconds = seconds_compared(runs)
    ends = {label: progress["seconds"].max() for label, progress in runs}
    assert seconds == pytest.approx([min(ends.values()), ends["random-maps"]], rel=0.01)
    assert min(ends.values()) <= seconds[0] and ends["random-maps"] <= seconds[1]
    for label, progress in runs:
        assert table.loc[label, ("at the end", "mean")] == pytest.approx(
            np.mean(loop_reference(progress, "calls", math.inf))
        )
        assert table.loc[label, ("run", "repeats")] == 3
        assert table.loc[label, ("run", "seconds")] == pytest.approx(progress.groupby("repeat")["seconds"].max().mean())
        counted = table.loc[label, ("at 8 solver calls", "mean")]
        if label in ("successive-halving", "hyperband"):
            assert math.isnan(counted)
            assert math.isnan(table.loc[label, ("to random search's accuracy", "solver calls")])
        else:
            assert counted == pytest.approx(np.mean(loop_reference(progress, "calls", 8)))
        timed = [name for name in table.columns.get_level_values(0).unique() if re.fullmatch(r"at .* s", name)]
        for name, second in zip(timed, seconds, strict=True):
            ended = loop_reference(progress, "seconds", second)
            assert table.loc[label, (name, "mean")] == pytest.approx(np.mean(ended))
            assert table.loc[label, (name, "standard deviation")] == pytest.approx(np.std(ended, ddof=1))


def test_the_reach_of_halving() -> None:
    random = method_progress("random-maps")
    accuracy, _, _ = accuracy_at(random)
    better = method_progress("halving").assign(
        search_test_accuracy=lambda t: np.where(t["calls"] >= 4, (1 + accuracy) / 2, 0.0)
    )
    table = comparison_table([("halving", better), ("random-maps", random)])
    assert table.loc["halving", ("to random search's accuracy", "solver calls")] == 4
    worse = comparison_table([("halving", better.assign(search_test_accuracy=0.0)), ("random-maps", random)])
    assert math.isnan(worse.loc["halving", ("to random search's accuracy", "solver calls")])


def test_two_runs_of_one_method_and_one_without_data(runs: list[tuple[str, pd.DataFrame]]) -> None:
    given = [("halving, d = 500", runs[0][1]), ("halving, d = 2000", runs[0][1]), ("own", pd.DataFrame())]
    table = comparison_table(given)
    assert table.loc["own", ("run", "repeats")] == 0
    assert ("to random search's accuracy", "solver calls") not in table
    assert section_ids(comparison_page([("own", pd.DataFrame())])) == ["equal-cost"]


@pytest.mark.parametrize("labels", [[], ["halving", "halving"]])
def test_runs_that_cannot_be_compared_raise_an_error(labels: list[str]) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        comparison_page([(label, method_progress("halving", repeats=1)) for label in labels])
