"""NESBS, urs and single-best: complete runs, the contents of their folders, and the ensemble that is saved."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from archray_test_command import finish, kill_when, logged, outputs_without_archray, start
from archray_test_report import words
from archray_test_runs import ONE_AT_A_TIME

import archray
from archray.errors import InvalidInput
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.data import DataSettings, load_images
from archray.trainables.ensembles.measures import measure_ensemble
from archray.trainables.spaces import get_space

DATA = {"data": "digits", "data__limit": 60}
TINY: dict[str, Any] = {
    "preset": "smoke",
    "space": "nasbench201",
    **DATA,
    "epochs": 1,
    "posterior_epochs": 1,
    "final_epochs": 1,
    "seed": 1,
    **ONE_AT_A_TIME,
}
SVGD = {"name": "svgd-rd", "iterations": 20}
MEASURES = {"test_accuracy", "test_nll", "ece", "members_test_accuracy", "ppd", "average", "images", "members"}


@pytest.fixture(scope="module")
def svgd(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> archray.RunResult:
    return archray.search("nesbs", **TINY, sampler=SVGD, delta="grid", out=tmp_path_factory.mktemp("svgd") / "run")


def read(run: str | Path, name: str) -> Any:
    return json.loads((Path(run) / name).read_text())


# Complete runs


@pytest.mark.slow
@pytest.mark.ci
def test_the_folder_has_the_results_of_every_stage(svgd: archray.RunResult) -> None:
    run = Path(svgd.path)
    updates = pd.read_parquet(run / "supernet" / "updates.parquet")
    assert (run / "supernet" / "weights.pt").exists()
    assert updates.groupby(["group", "edge"])["updates"].sum().max() <= updates["steps"].iloc[0] > 0
    posterior = Posterior(read(run, "posterior/posterior.json"), "nasbench201")
    assert list(posterior.to_dict()) == [decision.name for decision in get_space("nasbench201").decisions]
    curves = pd.read_parquet(run / "posterior" / "curves.parquet")
    assert set(curves["decision"]) == set(posterior.decisions) and curves[["elbo", "kl", "entropy"]].notna().all(
        axis=None
    )
    trials = pd.read_parquet(run / "search" / "trials.parquet")
    members = pd.read_parquet(run / "search" / "members.parquet")
    assert trials["number"].tolist() == [0, 1, 2] and trials["delta"].tolist() == [-2.0, -0.5, 1.0]
    assert set(members["architecture"]) == {member for row in trials["members"] for member in row}
    assert len(list(run.glob("search/predictions-*/*.npy"))) == len(members), "one file for each distinct member"
    best = trials.loc[trials["shared_loss"].idxmin()]
    found = read(run, "search/architecture.json")
    assert found["members"] == list(best["members"]) and found["value"] == best["shared_loss"]
    assert found["metric"] == "shared_loss" and found["delta"] == best["delta"]
    assert set(read(run, "final/ensemble.json")) == MEASURES
    document = read(run, "architecture.json")
    assert document["members"] == found["members"] == list(svgd.members) and svgd.architecture is None
    assert svgd.test_accuracy == document["test_accuracy"] == read(run, "final/ensemble.json")["test_accuracy"]
    assert (run / "report.html").exists() and (run / "model" / "state_dict.pt").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_the_saved_ensemble_averages_its_members(svgd: archray.RunResult) -> None:
    run, test = Path(svgd.path), load_images(DataSettings(name="digits", limit=60, validation_fraction=0.3)).test
    saved = np.stack([np.load(run / "final" / f"predictions-{number}.npy") for number in range(2)])
    with torch.no_grad():
        found = svgd.model()(test.images).numpy()
    np.testing.assert_allclose(found, saved.mean(0), atol=1e-5)
    document, measured = read(run, "final/ensemble.json"), measure_ensemble(saved, test.labels.numpy())
    assert document["test_accuracy"] == measured["accuracy"]
    assert document["members_test_accuracy"] == measured["average_accuracy"]
    assert [member["test_accuracy"] for member in document["members"]] == measured["member_accuracies"]
    trials = pd.read_parquet(run / "final" / "trials.parquet").sort_values("member")
    assert trials["architecture"].tolist() == list(svgd.members) and trials["seed"].nunique() == 2
    np.testing.assert_allclose(trials["test_accuracy"], measured["member_accuracies"], atol=1e-6)


@pytest.mark.slow
@pytest.mark.ci
def test_the_exported_ensemble_loads_with_and_without_archray(svgd: archray.RunResult, tmp_path: Path) -> None:
    archray.export(svgd.path, tmp_path / "export")
    images = torch.rand(3, 1, 8, 8)
    built = runpy.run_path(str(tmp_path / "export" / "load_model.py"))["build_model"]()
    with torch.no_grad():
        expected = svgd.model()(images)
        torch.testing.assert_close(built(images), expected)
    torch.testing.assert_close(outputs_without_archray(tmp_path / "export", images), expected)


@pytest.mark.slow
def test_a_restarted_search_predicts_nothing_twice_and_finds_the_same(
    svgd: archray.RunResult, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leaves the folder as a kill would: all predictions but one, and no tables."""
    search = Path(svgd.path) / "search"
    before = {name: (search / name).read_bytes() for name in ("trials.parquet", "architecture.json")}
    predictions = sorted(search.glob("predictions-*/*.npy"))
    times = {file: file.stat().st_mtime_ns for file in predictions[1:]}
    for file in (predictions[0], search / "done.json", *(search / name for name in before)):
        file.unlink()
    again = archray.resume(svgd.path)
    evaluated = len(pd.read_parquet(search / "members.parquet"))
    assert f"evaluated 3 ensembles of {evaluated} architectures; the best has validation" in capsys.readouterr().out
    assert {name: (search / name).read_bytes() for name in before} == before
    assert {file: file.stat().st_mtime_ns for file in times} == times and predictions[0].exists()
    assert again.members == svgd.members and again.test_accuracy == svgd.test_accuracy


def copy_for_method(method: str, sampler: str, svgd: archray.RunResult, out: Path) -> Path:
    """Returns a copy of a run for another method, in which the common stages are finished."""
    shutil.copytree(svgd.path, out)
    manifest = read(out, "manifest.json")
    manifest["config"] |= {"method": method}
    manifest["config"]["search"] |= {"sampler": {"name": sampler}, "delta": None}
    (out / "manifest.json").write_text(json.dumps(manifest))
    return out


@pytest.mark.slow
def test_draws_from_the_posterior(svgd: archray.RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copy_for_method("nesbs", "mc", svgd, tmp_path / "run")
    found = archray.resume(run, trust=True)  # the test edited its manifest
    trials = pd.read_parquet(run / "search" / "trials.parquet")
    assert trials["delta"].isna().all() and set(trials["sampler"]) == {"mc"} and len(trials) == 3
    assert read(run, "search/architecture.json")["delta"] is None
    archray.show(run)
    printed = capsys.readouterr().out
    assert len(found.members) == 2 and all(member in printed for member in found.members)
    assert "PPD  " in printed and "members of the ensemble as single networks:" in printed


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_darts_with_the_posterior_of_the_best_response(tmp_path: Path) -> None:
    options = {**TINY, "space": "darts", "channels": 2, "search_channels": 2, "budget": 2, "best_response": True}
    found = archray.search("nesbs", **options, delta="bo", out=tmp_path / "run")
    document = read(tmp_path / "run", "posterior/posterior.json")
    assert document == read(tmp_path / "run", "supernet/posterior.json")
    asked = pd.read_parquet(tmp_path / "run" / "search" / "suggestions.parquet")
    assert len(asked) == 2 and asked["delta"].between(-2, 1).all()
    assert all(get_space("darts").decode(member) for member in found.members) and len(found.members) == 2


@pytest.mark.slow
def test_uniform_ensembles_need_no_posterior(svgd: archray.RunResult, tmp_path: Path) -> None:
    run = copy_for_method("urs", "uniform", svgd, tmp_path / "run")
    shutil.rmtree(run / "posterior")
    archray.resume(run, trust=True)  # the test edited its manifest
    assert not (run / "posterior").exists()
    trials = pd.read_parquet(run / "search" / "trials.parquet")
    assert set(trials["sampler"]) == {"uniform"} and trials["members"].map(len).tolist() == [2, 2, 2]
    assert not any("none" in member for row in trials["members"] for member in row), "the supernet has no such path"


@pytest.mark.slow
def test_the_best_single_architecture_after_equal_evaluations(
    svgd: archray.RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_for_method("single-best", "mc", svgd, tmp_path / "run")
    found = archray.resume(run, trust=True)  # the test edited its manifest
    trials = pd.read_parquet(run / "search" / "trials.parquet")
    assert trials["members"].map(len).tolist() == [1] * 6, "as many as in three ensembles of two"
    assert len(found.members) == 1 and read(run, "final/ensemble.json")["ppd"] is None
    assert "1 ensemble" not in words((run / "report.html").read_text())
    assert "evaluated 6 architectures; the best" in capsys.readouterr().out


# Invalid input


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("nesbs", {"ensemble_size": 0}, "ensemble_size"),
        ("nesbs", {"ensemble_size": 20_000}, "at most 15625"),
        ("nesbs", {"sampler": "gibbs"}, "sampler"),
        ("nesbs", {"sampler": "mc", "delta": "grid"}, "got mc, which has no delta"),
        ("nesbs", {"delta": "often"}, "delta"),
        ("nesbs", {"temperature": 0}, "temperature"),
        ("nesbs", {"search__delta_range": [1.0, -2.0]}, "low < high"),
        ("nesbs", {"space": "nasbench101"}, "nasbench101"),
        ("nesbs", {"space": "fourier"}, "feature maps, not networks. Choose darts, "),
        ("nesbs", {"final_seeds": 2}, "final_seeds"),
        ("nesbs", {"best_response": True, "posterior__posterior__scale": "data"}, "scale"),
        ("urs", {"best_response": True}, "uses the posterior with best_response, got uniform"),
        ("urs", {"sampler": "mc"}, "search.sampler to be uniform for urs, got mc"),
        ("single-best", {"sampler": "svgd-rd"}, "search.sampler to be mc for single-best, got svgd-rd"),
    ],
)
def test_invalid_input_raises_before_ray_starts(
    method: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=message):
        archray.search(method, **{**TINY, **options}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Killed runs


COMMAND = (
    "search", "nesbs", "--preset", "smoke", "--space", "nasbench201", "--data", "digits", "--seed", "3",
    "--sampler", "svgd-rd", "--final-epochs", "4", "--set", "cluster.dashboard=false", "--set", "data.limit=200",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_in_search_and_training_finds_the_same_ensemble(tmp_path: Path) -> None:
    finish(*COMMAND, "--out", "undisturbed", cwd=tmp_path)
    run = tmp_path / "killed"

    def kill(process: Any, condition: Callable[[], object]) -> None:
        kill_when(process, condition, tmp_path)

    kill(start(*COMMAND, "--out", "killed", cwd=tmp_path), lambda: logged(run / "supernet", "suggested"))
    kill(start("resume", "killed", cwd=tmp_path), lambda: list(run.glob("search/predictions-*/*.npy")))
    assert not (run / "search" / "done.json").exists()
    kill(start("resume", "killed", cwd=tmp_path), lambda: logged(run / "final", "suggested"))
    assert not (run / "final" / "done.json").exists()
    finish("resume", "killed", cwd=tmp_path)
    for name in ("architecture.json", "final/ensemble.json", "posterior/posterior.json"):
        assert read(run, name) == read(tmp_path / "undisturbed", name)
