"""`archray attack`: the inputs that it rejects, the rounds that it writes, how it resumes, and its section of the
report.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from archray_test_models import run_of_ensemble, run_of_network

import archray
from archray import plots
from archray.errors import ArchrayError, InvalidInput, MissingExtra, RunFolderError, UnknownName
from archray.platform.run.layout import FOUND
from archray.platform.run.run import Run
from archray.trainables.adversarial import attacks
from archray.trainables.data import load_images

WEAK = {"epsilon": 0.1, "images": 20}


def mark_finished(run: Run[Any]) -> Path:
    """Marks the run as finished."""
    run.folder.write_json(FOUND, {"value": 0.5})
    return Path(str(run.folder))


@pytest.fixture
def ensemble(tmp_path: Path) -> Path:
    return mark_finished(run_of_ensemble(tmp_path / "run", "nasbench201", [0, 1]))


def round_files(run: Path) -> dict[str, int]:
    """Returns the modification time of each file by name."""
    return {file.name: file.stat().st_mtime_ns for file in (run / "attack" / "parts").iterdir()}


# Bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"attacks": "fgms"}, UnknownName, "there is no attack 'fgms'; did you mean 'fgsm'"),
        ({"attacks": []}, InvalidInput, "expected one or more attacks, got none"),
        ({"epsilon": 0}, InvalidInput, "expected epsilon between 0 and 1, .* got 0"),
        ({"epsilon": -0.1}, InvalidInput, "expected epsilon between 0 and 1, .* got -0.1"),
        ({"images": 0}, InvalidInput, "images: expected 1 or more, got 0"),
        ({"images": 61}, InvalidInput, "expected at most 60 images, the size of the test split of digits, got 61"),
        ({"epsilon": 0.1, "settings": {"epsilon": -1}}, InvalidInput, "settings.epsilon"),
        ({"settings": {"pgd": {"steps": 3}}}, InvalidInput, "there is no option 'settings.pgd.steps'"),
    ],
)
@pytest.mark.extra("adversarial")
def test_invalid_input_raises_before_the_start(
    options: dict[str, Any], error: type[ArchrayError], message: str, ensemble: Path
) -> None:
    with pytest.raises(error, match=message):
        archray.attack(ensemble, **options)
    assert not (ensemble / "attack").exists()


@pytest.mark.extra("adversarial")
def test_unsuitable_runs_raise_an_error_with_the_reason(tmp_path: Path) -> None:
    one = mark_finished(run_of_ensemble(tmp_path / "one", "nasbench201", [0]))
    with pytest.raises(InvalidInput, match="expected an ensemble with two or more members"):
        archray.attack(one)
    network = mark_finished(run_of_network(tmp_path / "network", "nasbench201"))
    with pytest.raises(InvalidInput, match=r"expected a run with an ensemble, .* which has a single network"):
        archray.attack(network)
    unfinished = run_of_ensemble(tmp_path / "unfinished", "nasbench201", [0, 1])
    with pytest.raises(RunFolderError, match=r"got the unfinished run .*: archray resume "):
        archray.attack(str(unfinished.folder))
    with pytest.raises(RunFolderError, match="expected the folder of a run"):
        archray.attack(tmp_path)


@pytest.mark.extra("adversarial")
def test_weights_of_other_networks_raise_before_the_start(ensemble: Path, tmp_path: Path) -> None:
    other = mark_finished(run_of_ensemble(tmp_path / "other", "nasbench201", [2, 3]))
    shutil.copy(other / "model" / "state_dict.pt", ensemble / "model" / "state_dict.pt")
    with pytest.raises(InvalidInput, match=r"expected state_dict.pt with the weights of the members .* got others"):
        archray.attack(ensemble)
    assert not (ensemble / "attack").exists()


def test_a_missing_extra_is_named_in_the_error(ensemble: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[adversarial\]'"):
        archray.attack(ensemble)


# Rounds


@pytest.mark.extra("adversarial")
def test_each_member_is_attacked_and_defended_by_all(ensemble: Path, ray_session: None) -> None:
    attacks = archray.attack(ensemble, ["fgsm", "pgd"], **WEAK, settings={"pgd": {"iterations": 3}})
    assert attacks["attack"].tolist() == ["fgsm", "pgd"] and attacks["rounds"].tolist() == [2, 2]
    images = pd.read_parquet(ensemble / "attack" / "images.parquet")
    rounds = pd.read_parquet(ensemble / "attack" / "attack_rounds.parquet")
    assert len(images) == 2 * 2 * 20 and images["linf"].max() <= 0.1 + 1e-6
    assert len(rounds) == 4 and rounds["member"].tolist() == [0, 1, 0, 1]
    for row in rounds.to_dict("records"):
        own = images[(images["attack"] == row["attack"]) & (images["member"] == row["member"])]
        assert row["defense_accuracy"] == (own["attacked_ensemble"] == own["label"]).mean()
        assert row["attack_accuracy"] == (own["attacked_member"] == own["label"]).mean()
    of_fgsm = rounds[rounds["attack"] == "fgsm"]["defense_accuracy"]
    assert attacks["defense_accuracy"][0] == of_fgsm.mean() and attacks["defense_accuracy_std"][0] == of_fgsm.std()
    run = archray.platform.methods.open_run(str(ensemble))
    data = load_images(run.data)
    one = images[(images["attack"] == "fgsm") & (images["member"] == 0)]
    assert one["label"].tolist() == data.test.labels[one["image"].tolist()].tolist()

    # Finished rounds are not repeated, and other settings get rounds with a new name.
    before = round_files(ensemble)
    archray.attack(ensemble, "fgsm", **WEAK)
    assert round_files(ensemble) == before
    archray.attack(ensemble, "fgsm", epsilon=0.2, images=20)
    assert len(round_files(ensemble)) == len(before) + 2
    archray.attack(ensemble, ["fgsm", "pgd"], **WEAK, settings={"pgd": {"iterations": 3}})

    # A round that has started but not finished resumes without a request.
    (ensemble / "attack" / "ended.json").unlink()
    lost = next(file for file in (ensemble / "attack" / "parts").glob("pgd-member-1-*"))
    kept, table = round_files(ensemble), pd.read_parquet(lost)
    lost.unlink()
    assert archray.attack(ensemble)["attack"].tolist() == ["fgsm", "pgd"]
    assert {name: written for name, written in round_files(ensemble).items() if name != lost.name} == {
        name: written for name, written in kept.items() if name != lost.name
    }
    assert pd.read_parquet(lost).drop(columns="seconds").equals(table.drop(columns="seconds"))

    # The report shows the attack, and the figure depends only on the run.
    page = (ensemble / "report.html").read_text()
    assert "Accuracy under attack" in page and "ε = 25.5/255" in page
    legend = plots.ensemble_defense(ensemble).legends[0]
    assert "test accuracy (defense)" in [text.get_text() for text in legend.get_texts()]
    assert archray.show(ensemble).result["fgsm_defense_accuracy"] == of_fgsm.mean()
    assert archray.compare([ensemble])["fgsm_defense_accuracy"].tolist() == [of_fgsm.mean()]


@pytest.mark.extra("adversarial")
def test_other_reports_do_not_change(ensemble: Path, tmp_path: Path, ray_session: None) -> None:
    archray.attack(ensemble, "fgsm", **WEAK, out=tmp_path / "out")
    assert (tmp_path / "out" / "ended.json").exists()
    assert not (ensemble / "attack").exists() and not (ensemble / "report.html").exists()
