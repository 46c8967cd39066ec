"""Complete searches for a feature map: every method, its folder, the comparison, and a killed driver."""

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from archray_test_command import ended_trials, finish, kill_when, logged, start
from archray_test_runs import ONE_AT_A_TIME

import archray
from archray.errors import RunFolderError
from archray.files import Folder
from archray.platform.methods import get_method, open_run
from archray.platform.methods.feature_maps.stages import best_so_far, halving_progress

METHODS = ("halving", "fast-halving", "random-maps", "successive-halving", "hyperband")
TINY = {"preset": "smoke", "data": "digits", "data__limit": 200, "seed": 1, **ONE_AT_A_TIME}


@pytest.fixture(scope="module")
def result_of(ray_session, tmp_path_factory):
    """Returns the run of a method, made once."""
    folder = tmp_path_factory.mktemp("runs")
    options = {
        "halving": {"correlation": 3, "correlation__dimensions": [32, 64], "final_seeds": 2},
        "fast-halving": {"replicas": 2},
        "random-maps": {"repeats": 2},
    }
    return cache(lambda name: archray.search(name, **TINY, **options.get(name, {}), out=folder / name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.ci] * (name == "halving")) for name in METHODS])
def test_a_run_has_all_files(result_of, name):
    result = result_of(name).repeats[0] if result_of(name).repeats else result_of(name)
    folder = Folder(result.path)
    assert {"manifest.json", "architecture.json", "trials.parquet", "progress.parquet", "report.html"} <= set(
        folder.files()
    )
    for stage in get_method(name).recipe.stages:
        assert (folder / stage.name).exists("done.json")
    found = folder.read_json("architecture.json")
    assert found["architecture"] == result.architecture and 0 <= found["test_accuracy"] <= 1
    progress = folder.read_parquet("progress.parquet")
    assert progress["calls"].is_monotonic_increasing and progress["seconds"].is_monotonic_increasing
    assert progress["architecture"].iloc[-1] == result.architecture
    assert progress["search_test_accuracy"].between(0, 1).all(), "an oracle solve has filled the missing values"
    assert f"{100 * found['test_accuracy']:.2f} " in folder.read_bytes("report.html").decode()


@pytest.mark.slow
@pytest.mark.ci
def test_halving_keeps_half_of_the_maps(result_of):
    progress = Folder(result_of("halving").path).read_parquet("progress.parquet")
    assert progress["candidates"].tolist() == [8, 4, 2, 1]
    assert progress["final"].tolist() == [False, False, False, True]
    assert progress["calls"].tolist() == [1, 2, 3, 4]
    assert set(progress["dimension"]) == {64}
    rounds = (Folder(result_of("halving").path) / "search").read_parquet("rounds.parquet")
    assert rounds[rounds["round"] == 1]["kept"].sum() == 4


@pytest.mark.slow
def test_fast_halving_increases_its_dimension(result_of):
    fast = Folder(result_of("fast-halving").path).read_parquet("progress.parquet")
    assert fast["dimension"].tolist() == [32, 46, 64, 64]
    assert fast["calls"].tolist() == [2, 4, 6, 7], "two replicas per round, and the final solve"


@pytest.mark.slow
@pytest.mark.ci
def test_figure_1_has_a_row_per_map_and_dimension(result_of):
    table = (Folder(result_of("halving").path) / "correlation").read_parquet("correlation.parquet")
    assert len(table) == 3 * 2 and set(table["dimension"]) == {32, 64}
    assert table[["shared_accuracy", "standalone_accuracy"]].apply(lambda column: column.between(0, 1)).all(axis=None)


@pytest.mark.slow
def test_hyperband_fills_its_brackets(result_of):
    trials = Folder(result_of("hyperband").path).read_parquet("trials.parquet")
    search = trials[trials["stage"] == "search"]
    assert sorted(search["first_rung"]) == [0, 0, 1, 1]
    assert search["resource"].max() == 2 and (search["resource"] == 1).sum() == 1, "one of two continued to 2"


@pytest.mark.slow
@pytest.mark.ci
def test_the_trained_classifier_loads_and_exports(result_of, tmp_path):
    from archray.trainables.data import DataSettings, load_data

    result = result_of("halving")
    data = load_data(DataSettings(name="digits", limit=200))
    predicted = result.model()(data.test.images).argmax(1)
    accuracy = float((predicted == data.test.labels).float().mean())
    tested = pd.read_parquet(f"{result.path}/final/trials.parquet")["test_accuracy"]
    assert np.isclose(tested, accuracy).any()
    files = archray.export(result.path, tmp_path / "out")
    assert any(name.endswith("load_model.py") for name in files)


@pytest.mark.slow
def test_comparison(result_of, tmp_path):
    table = archray.compare([result_of(name).path for name in METHODS], out=tmp_path / "compare.html")
    assert len(table) == len(METHODS) and table["test_accuracy"].between(0, 1).all()
    assert (table["trainings"] > 0).all() and (table["seconds"] > 0).all()
    page = (tmp_path / "compare.html").read_text()
    assert "fast-halving" in page and 'id="equal-cost"' in page
    with pytest.raises(RunFolderError, match="Choose another"):
        archray.compare([result_of("random-maps").path], out=tmp_path / "compare.html")


@pytest.mark.slow
def test_repeats_are_separate_runs_with_pooled_progress(result_of, capsys):
    result = result_of("random-maps")
    assert len(result.repeats) == 2
    runs = [open_run(f"{result.path}/{name}") for name in ("repeat-00", "repeat-01")]
    assert [run.config.seed for run in runs] == [1, 2]
    assert result.validation_accuracy == max(repeat.validation_accuracy for repeat in result.repeats)
    assert len(Folder(result.path).read_json("architecture.json")["repeats"]) == 2
    archray.show(result.path)
    assert "mean and standard deviation of 2 repeats" in capsys.readouterr().out
    progress = Folder(result.path).read_parquet("progress.parquet")
    assert progress.groupby("repeat")["calls"].max().tolist() == [3, 3]


def test_progress_of_halving():
    trials = pd.DataFrame(
        {
            "round": [1, 1, 2],
            "candidates": [["a", "b"], ["a", "b"], ["b"]],
            "dimension": [8, 8, 8],
            "seconds": [1.0, 2.0, 4.0],
            "test_accuracy": [np.nan, np.nan, 0.75],
        }
    )
    rounds = pd.DataFrame({"round": [1, 1, 2], "candidate": ["a", "b", "b"], "score": [0.5, 0.25, 0.125]})
    progress = halving_progress(trials, rounds, "min")
    assert progress["calls"].tolist() == [2, 3] and progress["seconds"].tolist() == [3.0, 7.0]
    assert progress["architecture"].tolist() == ["b", "b"]
    assert progress["search_test_accuracy"].isna().tolist() == [True, False]
    assert halving_progress(trials, rounds, "max")["architecture"].tolist() == ["a", "b"]


def test_best_so_far_counts_each_step_once():
    solves = pd.DataFrame(
        {
            "trial_id": ["x", "x", "y"],
            "training_iteration": [1, 2, 1],
            "timestamp": [1, 3, 2],
            "architecture": ["a", "a", "b"],
            "dimension": [4, 8, 4],
            "score": [0.5, 0.375, 0.25],
            "seconds": [1.0, 3.0, 1.5],
            "validation_accuracy": [0.5, 0.6, 0.7],
            "test_accuracy": [0.4, 0.5, 0.6],
        }
    )
    progress = best_so_far(solves, "min")
    assert progress["architecture"].tolist() == ["a", "b", "b"]
    assert progress["seconds"].tolist() == [1.0, 2.5, 4.5]
    assert np.allclose(progress["search_test_accuracy"], [0.4, 0.6, 0.6])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_killed_in_round_3_of_8_resumes(tmp_path):
    """The resumed command continues in round 3 and finds the results of an undisturbed run."""
    arguments = ("search", "halving", "--candidates", "256", "--set", "cluster.dashboard=false")
    finish(*arguments, "--out", "undisturbed", cwd=tmp_path)
    run = tmp_path / "killed"

    def seconds() -> dict[str, float]:
        return {entry["trial"]: entry["result"]["seconds"] for entry in logged(run / "search", "result")}

    process = start(*arguments, "--out", "killed", cwd=tmp_path)
    kill_when(process, lambda: len(ended_trials(run / "search")) == 2, tmp_path)
    ended, before = ended_trials(run / "search"), seconds()
    finish("resume", "killed", cwd=tmp_path)
    after = seconds()
    assert len(ended) == 2 and len(after) == 9
    assert {trial: after[trial] for trial in ended} == {trial: before[trial] for trial in ended}, "solved once"
    found = [json.loads((folder / "architecture.json").read_text()) for folder in (run, tmp_path / "undisturbed")]
    assert found[0] == found[1]
    rounds = [pd.read_parquet(folder / "search" / "rounds.parquet") for folder in (run, tmp_path / "undisturbed")]
    pd.testing.assert_frame_equal(*rounds)
