"""A complete search in this process, and the uses of its folder afterwards."""

import hashlib
import runpy
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from archray_test_command import outputs_without_archray
from archray_test_metrics import value, wait_for
from archray_test_runs import ONE_AT_A_TIME, RUNS, EndedTrials
from ray import tune
from torch.utils.data import TensorDataset

import archray
from archray.cluster.metrics import RunLabels
from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.methods import open_run
from archray.trainables.data import DataSettings, load_data

DATA = DataSettings(name="digits", limit=RUNS["hnas"]["data__limit"])
TINY = {"preset": "smoke", "data": "digits", "seed": 1}


@pytest.fixture
def result(finished_run):
    return finished_run("hnas")


@pytest.fixture
def copied(result, tmp_path):
    """A copy of the run that a test may change."""
    return shutil.copytree(result.path, tmp_path / "copy")


def test_a_nodes_metrics_port_has_the_run_and_its_method(result):
    """It has the counters: gauges disappear from the port some time after they were set
    (tests/cluster/test_metrics.py).
    """
    scored = "ray_archray_architectures_scored_total"
    for stage, number in (("pool", RUNS["hnas"]["pool_size"]), ("search", RUNS["hnas"]["budget"])):
        search = wait_for(
            RunLabels("whole-hnas", "hnas", stage), lambda statuses, number=number: value(statuses, scored) == number
        )
        assert value(search, scored) == number
    assert value(search, "ray_archray_searcher_seconds_total") > 0


def test_the_run_folder_has_all_files(result):
    folder = Folder(result.path)
    assert {"manifest.json", "architecture.json", "trials.parquet", "report.html"} <= set(folder.files())
    for stage in ("pool", "search", "final", "baseline", "report"):
        assert (folder / stage).exists("done.json")
    manifest = folder.read_json("manifest.json")
    assert manifest["config"]["seed"] == 3 and manifest["config"]["method"] == "hnas"
    assert {"python", "archray", "ray", "torch"} <= set(manifest["versions"])
    assert manifest["data_checksum"] == load_data(DATA).checksum()
    labels = bytes(load_data(DATA).test.labels.numpy())
    assert manifest["test_labels_checksum"] == hashlib.sha256(labels).hexdigest()
    assert manifest["hardware"]["cpus"] >= 1
    assert folder.read_json("architecture.json")["architecture"] == result.architecture
    pool = pd.read_parquet(f"{result.path}/pool/pool.parquet")
    assert len(pool) == 10 and open_run(result.path).architecture in set(pool["architecture"])
    assert {"ntk_trace", "kappa", "failure"} <= set(pool.columns)


def test_the_result_includes_the_results_of_tune(result):
    assert isinstance(result.result_grid, tune.ResultGrid) and len(result.result_grid) == 4
    best = result.result_grid.get_best_result("validation_accuracy", "max")
    found = open_run(result.path).found
    assert (best.config["architecture"], best.metrics["validation_accuracy"]) == (found["architecture"], found["value"])
    assert list(result.trials.groupby("stage").size()[["search", "final", "baseline"]]) == [4, 1, 2]
    assert EndedTrials.counts[result.path] == {"search": 4, "final": 1, "baseline": 2}, (
        "the user's callback received every trial"
    )


def test_checkpoints_that_no_stage_reads_are_deleted(result):
    for stage, kept in (("search", 0), ("final", 1), ("baseline", 1)):
        grid = result.grids[stage]
        for trial in (grid[number] for number in range(len(grid))):
            assert len(list(Path(trial.path).glob("checkpoint_*"))) == len(trial.best_checkpoints) == kept
            assert trial.checkpoint is None if kept == 0 else Path(trial.checkpoint.path).is_dir()


def test_the_network_with_the_best_validation_accuracy_is_the_result(result):
    trials = result.trials[result.trials["stage"].isin(["final", "baseline"])]  # one of each
    best = trials.sort_values("validation_accuracy", ascending=False, kind="stable").iloc[0]
    assert result.architecture == best["architecture"]
    assert (result.origin == "search") == (best["stage"] == "final")
    assert (result.test_accuracy, result.final_accuracy) == (best["test_accuracy"], best["validation_accuracy"])


def test_the_model_has_the_reported_accuracy(result):
    model, data = result.model(), load_data(DATA)
    with torch.no_grad():
        correct = (model(data.test.images).argmax(1) == data.test.labels).double().mean().item()
    assert correct == pytest.approx(result.test_accuracy, abs=1e-9)


def test_a_finished_run_is_not_run_again(result, copied):
    again = archray.resume(copied, callbacks=[EndedTrials()])
    assert again.architecture == result.architecture and str(copied) not in EndedTrials.counts


def test_show_and_report(result, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    archray.show(result.path)
    printed = capsys.readouterr().out
    assert result.architecture in printed and "report.html" in printed
    assert archray.report(result.path) == f"{result.path}/report.html"


@pytest.mark.slow
def test_export_loads_with_and_without_archray(result, tmp_path):
    archray.export(result.path, tmp_path / "export")
    images = load_data(DATA).test.images[:5]
    expected = result.model()(images)
    program = torch.export.load(tmp_path / "export" / "model.pt2").module()
    torch.testing.assert_close(program(images), expected)
    torch.testing.assert_close(outputs_without_archray(tmp_path / "export", images), expected)
    built = runpy.run_path(str(tmp_path / "export" / "load_model.py"))["build_model"]()
    torch.testing.assert_close(built(images), expected)
    with pytest.raises(RunFolderError, match="Choose another --to"):
        archray.export(result.path, tmp_path / "export")


def test_a_run_is_never_overwritten(result):
    with pytest.raises(RunFolderError, match="archray resume"):
        archray.search("hnas", **TINY, out=result.path)


def test_a_resume_with_other_versions_names_them(result, copied, capsys):
    folder = Folder(copied)
    manifest = folder.read_json("manifest.json")
    folder.write_json("manifest.json", {**manifest, "versions": {**manifest["versions"], "ray": "1.0"}})
    assert archray.resume(copied).architecture == result.architecture
    assert "ray 1.0 (now" in capsys.readouterr().out


def test_resume_changes_only_permitted_options(result):
    with pytest.raises(InvalidInput, match=r"a resume of .* can change .* got seed"):
        archray.resume(result.path, seed=2)
    with pytest.raises(InvalidInput, match="at least the 4 training runs"):
        archray.resume(result.path, budget=2)


@pytest.mark.slow  # arrays: test_supernet_search.py; repeats: test_feature_map_search.py
def test_a_torch_dataset_and_repeats(ray_session, tmp_path):
    dataset = TensorDataset(torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3)
    options = {"pool_size": 4, "budget": 2, "random": 0, "final_epochs": 1, **ONE_AT_A_TIME}
    result = archray.search("hnas", **TINY | {"data": dataset}, **options, out=tmp_path / "run", repeats=2)
    assert len(result.repeats) == 2
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert open_run(moved).data.path == moved / "arrays.npz", "the arrays of a run move with it"


def test_data_in_python_are_checked_before_ray_starts(tmp_path):
    images, labels = torch.rand(4, 3, 8, 8), torch.arange(4) % 2
    for data, message in (
        (TensorDataset(images, labels.float()), "the label in item 0 of the training data as an integer"),
        ((TensorDataset(images, labels), images), r"got 2 objects \(TensorDataset, Tensor\)"),
        ((images, labels, labels), "got 3 objects"),
        (lambda settings: 3, "to return an archray.trainables.data.Dataset"),
    ):
        with pytest.raises(InvalidInput, match=message):
            archray.search("hnas", **TINY | {"data": data}, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_options_that_archray_sets_itself_raise_an_error():
    with pytest.raises(InvalidInput, match="TuneConfig without num_samples, which archray sets"):
        archray.search("hnas", **TINY, tune_config=tune.TuneConfig(num_samples=5))
    with pytest.raises(InvalidInput, match="RunConfig without name, which archray sets"):
        archray.search("hnas", **TINY, run_config=tune.RunConfig(name="mine"))
    kept = tune.RunConfig(checkpoint_config=tune.CheckpointConfig(num_to_keep=3))
    with pytest.raises(InvalidInput, match="RunConfig without checkpoint_config, which archray sets"):
        archray.search("hnas", **TINY, run_config=kept)


def test_a_pool_of_the_user_is_checked_before_ray_starts(tmp_path):
    wrong = "|conv5x5~0|+|none~0|none~1|+|none~0|none~1|none~2|"
    pd.DataFrame({"architecture": [wrong], "kappa": [1.0], "ntk_trace": [1.0]}).to_parquet(tmp_path / "op.parquet")
    with pytest.raises(InvalidInput, match=r"no choice 'conv5x5' for 1<-0\. Choose one of none"):
        archray.search("hnas", **TINY, pool=str(tmp_path / "op.parquet"))
