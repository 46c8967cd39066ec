"""Members of a set: which of them are fully trained, their models by number, what a resume adds, and bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import ray
import torch
from archray_test_command import ended_trials, epochs_trained, kill_when, start
from archray_test_models import SMALL, run_of_members, run_of_network
from archray_test_run_files import undescribed_names
from typer.testing import CliRunner

import archray
from archray.errors import DamagedFile, InvalidInput, RunFolderError
from archray.platform.cli import application
from archray.platform.run.run import Run
from archray.platform.run_result import RunResult
from archray.trainables.data import load_images
from archray.trainables.spaces import get_space

OPTIONS: dict[str, Any] = {
    "preset": "smoke", "space": "nasbench201", "data": "digits", "data__limit": 200, "seed": 1, "budget": 6,
    "population": 2, "final_epochs": 2, "random": 0, "max_concurrent": 1, "costs__names": "peak_memory",
    **{f"network__{key}": value for key, value in SMALL.items()},
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run[Any]:
    return run_of_members(tmp_path_factory.mktemp("members"))


def test_models_by_number(run: Run[Any], tmp_path: Path) -> None:
    result = RunResult(run.folder.uri, None, None)
    assert result.pareto["member"].tolist() == [1, 2, 3, 4] and "settings" not in result.pareto
    assert result.pareto["test_accuracy"].notna().tolist() == [True, False, False, True]
    images = load_images(run.data).test.images[:3]
    outputs = {member: result.model(member)(images) for member in (None, 1, 4)}
    assert torch.equal(outputs[None], outputs[1]) and not torch.equal(outputs[1], outputs[4])
    prediction = result.predict(images, normalized=True, member=4)
    expected = outputs[4].softmax(1).amax(1).detach().double()
    torch.testing.assert_close(torch.tensor(prediction["probability"]), expected, rtol=1e-5, atol=0)
    done = CliRunner().invoke(
        application(["export"]), ["export", run.folder.uri, "--member", "4", "--format", "state-dict"]
    )
    assert done.exit_code == 0 and "export-member-4/model.json" in done.output, done.output
    exported = Path(run.folder.uri) / "export-member-4"
    assert archray.predict(exported, images, normalized=True).equals(prediction)
    with pytest.raises(InvalidInput, match="expected no member with an export, got 4"):
        archray.predict(exported, images, member=4)


@pytest.mark.parametrize(
    ("member", "error", "message"),
    [
        (0, InvalidInput, "expected a member from 1 to 4 of .*, got 0.*archray show"),
        (5, InvalidInput, "expected a member from 1 to 4 of .* got 5"),
        (2, RunFolderError, "has no final training yet.*: archray resume .*/run --final-members all$"),
        (3, RunFolderError, "final training of member 3 of .* failed: train_loss is NaN at epoch 3"),
    ],
)
def test_members_without_a_model_raise_an_error(
    run: Run[Any], member: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        archray.export(run.folder.uri, member=member)
    assert "\n" not in str(caught.value)
    with pytest.raises(error, match=message):
        archray.predict(run.folder.uri, torch.zeros(1, 1, 8, 8), member=member)


def test_a_run_without_a_set_has_no_members(tmp_path: Path) -> None:
    plain = run_of_network(tmp_path / "plain", "nasbench201")
    with pytest.raises(InvalidInput, match="expected a run with a Pareto set for member 1"):
        archray.export(plain.folder.uri, member=1)
    unfinished = run_of_network(tmp_path / "unfinished", "nasbench201", method="nsga2")
    with pytest.raises(RunFolderError, match=r"has no Pareto set yet\. Finish it with: archray resume"):
        archray.export(unfinished.folder.uri, member=1)
    with pytest.raises(InvalidInput, match="final_members"):
        run_of_network(tmp_path / "none", "nasbench201", method="nsga2", final_members="some")


# Members by training


def comparable_members(run: RunResult) -> list[dict[str, Any]]:
    """Returns the data of the members, with NaN replaced so that they can be compared."""
    rows = run.pareto.astype(object).where(run.pareto.notna(), None)
    return rows.to_dict("records")


@pytest.fixture(scope="module")
def full_run(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """An undisturbed run in which every member was trained."""
    place = tmp_path_factory.mktemp("all")
    space = get_space("nasbench201")
    names = [space.encode(each) for each in space.enumerate()]
    # A lower latency means more flops, so that nearly every trial is a member.
    costs = pd.DataFrame({"architecture": names, "board_latency_ms": [20 - name.count("nor_conv") for name in names]})
    costs.to_csv(place / "costs.csv", index=False)
    options = {
        **OPTIONS,
        "objectives": "validation_accuracy, -flops, -board_latency_ms",
        "costs__table": str(place / "costs.csv"),
    }
    return archray.search("nsga2", **options, final_members="all", out=place / "run")


def run_before_final(full_run: RunResult, place: Path, final_members: int | str) -> Path:
    """The same run before the final training of its members."""
    shutil.copytree(full_run.path, place)
    shutil.rmtree(place / "members")
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["config"]["final_members"] = final_members
    manifest["config"]["cluster"]["address"] = ray.get_runtime_context().gcs_address
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


@pytest.mark.slow
def test_all_members_are_trained(full_run: RunResult) -> None:
    front = full_run.pareto
    assert len(front) > 2, "another seed, for a set that has a middle"
    assert front["test_accuracy"].between(0, 1).all() and front["failure"].isna().all()
    assert front["model"][0] == "model" and front["model"].nunique() == len(front)
    assert full_run.trials["stage"].value_counts()["members"] == len(front) - 1
    for row in front.to_dict("records"):
        member = int(row["member"])
        folder = Path(full_run.path).parent / f"{member}"
        archray.export(full_run.path, folder, formats="state-dict", member=member)
        card = json.loads((folder / "model.json").read_text())
        for key in ("architecture", "member", "test_accuracy", "parameters"):
            assert card[key] == row[key]
    assert [name for name in undescribed_names(Path(full_run.path)) if not name.endswith("board_latency_ms")] == []


@pytest.mark.slow
def test_replaced_weights_of_a_member_raise_an_error(full_run: RunResult, tmp_path: Path) -> None:
    shutil.copytree(full_run.path, tmp_path / "run")
    models = list(full_run.pareto["model"])
    shutil.copy(tmp_path / "run" / models[2] / "state_dict.pt", tmp_path / "run" / models[1] / "state_dict.pt")
    with pytest.raises(DamagedFile, match=rf"{models[1]}/state_dict\.pt.*checksum differs"):
        archray.load(tmp_path / "run").model(2)
    archray.load(tmp_path / "run").model(3)


@pytest.mark.slow
def test_a_finished_run_trains_more_members(full_run: RunResult, tmp_path: Path) -> None:
    """It trains the missing members, keeps the others, and equals a run that trained all of them at once."""
    place = run_before_final(full_run, tmp_path / "run", 1)
    one = archray.resume(place, trust=True)  # the test edited its manifest
    assert one.pareto["model"].notna().sum() == 1 and epochs_trained(place / "members") == {}
    two = archray.resume(place, final_members=2).pareto
    ends = [0, int(two["flops"].argmin())]
    assert two.index[two["model"].notna()].tolist() == ends, "the most accurate, and the best in the next objective"
    before = epochs_trained(place / "members")
    now = archray.resume(place, final_members="all")
    assert comparable_members(now) == comparable_members(full_run)
    after = epochs_trained(place / "members")
    assert len(before) == 1 and len(after) == len(now.pareto) - 1 and before.items() <= after.items()
    table = pd.read_parquet(place / "members" / "trials.parquet")
    assert sorted(table["architecture"]) == sorted(now.pareto["architecture"][1:])


@pytest.mark.slow
def test_a_run_killed_during_its_final_training_resumes(full_run: RunResult, tmp_path: Path) -> None:
    place = run_before_final(full_run, tmp_path / "run", "all")
    process = start("resume", "run", "--trust", cwd=tmp_path)  # the test edited its manifest
    stage = place / "members"
    kill_when(process, lambda: ended_trials(stage) and not (stage / "done.json").exists(), tmp_path)
    finished = {trial: epochs_trained(stage)[trial] for trial in ended_trials(stage)}
    now = archray.resume(place)
    after = epochs_trained(stage)
    assert finished and {trial: after[trial] for trial in finished} == finished, "no finished training ran again"
    assert comparable_members(now) == comparable_members(full_run)
