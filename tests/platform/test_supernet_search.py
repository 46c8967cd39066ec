"""The three stages of GAEA from one command: their folder, and a driver killed in the second stage."""

import json
import operator
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from archray_test_command import epochs_trained, finish, kill_when, logged, start
from archray_test_runs import ONE_AT_A_TIME

import archray
from archray.files import Folder
from archray.platform.methods import open_run

OPTIONS = {"space": "nasbench201", "preset": "smoke", "seed": 2, "search_seeds": 3, "final_epochs": 3, "random": 0}
COMMAND = (
    "search", "gaea-darts", "--space", "nasbench201", "--preset", "smoke", "--seed", "2", "--search-seeds", "3",
    "--final-epochs", "5", "--final-seeds", "2", "--random", "1", "--set", "selection.epoch=2",
    "--set", "data.limit=300", "--set", "cluster.dashboard=false",
)  # fmt: skip

AT_A_TIME = 2  # largest number of trials when the driver is killed: one of three is paused


@pytest.fixture(scope="module")
def result(ray_session, tmp_path_factory):
    """A run on data in the user's arrays."""
    rng = np.random.default_rng(0)
    data = rng.random((60, 8, 8, 3), dtype=np.float32), np.arange(60) % 3
    out = tmp_path_factory.mktemp("runs") / "run"
    return archray.search("gaea-darts", **OPTIONS, **ONE_AT_A_TIME, data=data, out=out)


@pytest.mark.slow
@pytest.mark.ci
def test_the_search_stage_has_the_result_of_each_seed(result):
    search = Folder(result.path) / "search"
    found = search.read_parquet("found.parquet")
    assert len(found) == found["seed"].nunique() == 3
    assert found["shared_accuracy"].between(0, 1).all() and found["failure"].isna().all()
    entropies = search.read_parquet("entropies.parquet")
    assert len(entropies) == 3 * 2 * 6, "of each seed, epoch and edge"
    assert entropies["edge"].tolist()[:6] == list(range(6)) and set(entropies["operations"]) == {4}
    means = entropies.groupby(["trial_id", "epoch"])["entropy"].mean()
    curves = search.read_parquet("curves.parquet").set_index(["trial_id", "epoch"])
    assert curves["entropy"].to_dict() == pytest.approx(means.to_dict())
    assert set(curves["seed"]) == set(found["seed"])


@pytest.mark.slow
@pytest.mark.ci
def test_the_worst_were_dropped(result):
    selected = (Folder(result.path) / "selection").read_parquet("selected.parquet")
    kept = selected[selected["kept"]]
    assert len(kept) == 1 and kept["epochs"].tolist() == [3]
    dropped = selected[~selected["kept"]]
    assert set(dropped["epochs"]) <= {1}
    assert (dropped["accuracy_at_cut"] <= kept["accuracy_at_cut"].item()).all()
    assert result.architecture == kept["architecture"].item()
    assert Folder(result.path).read_json("architecture.json")["selection_accuracy"] == kept["selection_accuracy"].item()


@pytest.mark.slow
@pytest.mark.ci
def test_the_best_was_trained_and_the_report_shows_its_search(result):
    folder = Folder(result.path)
    final = (folder / "final").read_parquet("trials.parquet")
    assert final["architecture"].tolist() == [result.architecture]
    assert final["multiply_adds"].item() > 0 and final["parameters"].item() > 0
    page = folder.read_bytes("report.html").decode()
    for anchor in ("entropies", "discretization", "found-cells", "selection"):
        assert f'id="{anchor}"' in page, anchor
    trials = folder.read_parquet("trials.parquet")
    assert set(trials["stage"]) == {"search", "selection", "final"}


@pytest.mark.slow
def test_the_arrays_of_a_run_move_with_it(result, tmp_path):
    moved = shutil.copytree(result.path, tmp_path / "moved")
    assert open_run(moved).data.path == moved / "arrays.npz"
    assert archray.load(moved).summary.data == "arrays" and " on arrays" in (moved / "report.html").read_text()


def values(run: Path) -> dict:
    """Returns the results of a run without ids and times."""
    tables = {}
    for name, columns, key in (
        ("search/found.parquet", ["seed", "architecture", "shared_accuracy"], "seed"),
        ("search/entropies.parquet", ["seed", "epoch", "group", "edge", "entropy"], None),
        (
            "selection/selected.parquet",
            ["architecture", "epochs", "accuracy_at_cut", "selection_accuracy", "kept"],
            "architecture",
        ),
        ("final/trials.parquet", ["architecture", "seed", "validation_loss", "test_accuracy"], "seed"),
    ):
        table = pd.read_parquet(run / name)[columns]
        by = [key] if key else ["seed", "epoch", "group", "edge"]
        tables[name] = table.sort_values(by).to_json(orient="records", double_precision=15)
    return {"found": json.loads((run / "architecture.json").read_text()), **tables}


def waits_at_the_cut(stage: Path) -> bool:
    """Whether a trial is paused where the worst are dropped, and another has not reached this point."""
    at_the_cut = {entry["trial"] for entry in logged(stage, "checkpoint") if entry["iteration"] == 2}
    return 0 < len(at_the_cut) < len(logged(stage, "suggested")) and not (stage / "done.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_in_the_second_stage_resumes(tmp_path):
    finish(*COMMAND, "--out", "undisturbed", cwd=tmp_path)
    run = tmp_path / "killed"
    process = start(*COMMAND, "--out", "killed", cwd=tmp_path)
    kill_when(process, lambda: waits_at_the_cut(run / "selection"), tmp_path)
    searched = epochs_trained(run / "search")
    finish("resume", "killed", cwd=tmp_path)
    assert epochs_trained(run / "search") == searched, "no supernet was trained again"
    least, trained = [2, 2, 5], sorted(epochs_trained(run / "selection").values())
    assert all(map(operator.ge, trained, least))
    assert sum(trained) <= sum(least) + AT_A_TIME, (
        "a kill costs each running trial one epoch, reported and not yet saved"
    )
    assert set(pd.read_parquet(run / "trials.parquet")["stage"]) == {"search", "selection", "final", "baseline"}
    assert values(run) == values(tmp_path / "undisturbed")
