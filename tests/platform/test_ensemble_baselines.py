"""deep-ensemble, snapshot, mc-droppath, nes-rs and nes-re: complete runs at the smallest size, and the input that they
reject.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archray_test_runs import ONE_AT_A_TIME

import archray
from archray.files import Folder
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.ensembles.pool import EnsembleParents
from archray.trainables.checkpoint import read_state, write_weights
from archray.trainables.data import load_images
from archray.trainables.data.settings import DataSettings
from archray.trainables.ensembles.ensemble import load_ensemble
from archray.trainables.ensembles.measures import average, measure_ensemble
from archray.trainables.ensembles.prediction import DroppedPaths
from archray.trainables.ensembles.scores import forward_selection
from archray.trainables.spaces import get_space
from archray.trainables.tune.standalone_trainable import MemberTrainable, load_trained, read_predictions

CELL = "|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|none~1|avg_pool_3x3~2|"
GENOTYPE = get_space("darts").encode(get_space("darts").sample(np.random.default_rng(0)))
TINY: dict[str, Any] = {
    "preset": "smoke",
    "data": "digits",
    "data__limit": 60,
    "network__channels": 2,
    "final_epochs": 2,
    "random": 0,
    "seed": 1,
    **ONE_AT_A_TIME,
}
SLOW = pytest.mark.slow  # consists of the stages of the others


def check_run(run: Path) -> tuple[dict[str, Any], Any, Folder]:
    """Checks the files of every such run: predictions, their measures, and a module that predicts the same."""
    final = Folder(run) / "final"
    ensemble_json = final.read_json("ensemble.json")
    predictions = np.stack([np.load(run / "final" / member["predictions"]) for member in ensemble_json["members"]])
    test = load_images(DataSettings(**Folder(run).read_json("manifest.json")["config"]["data"])).test
    measured = measure_ensemble(predictions, test.labels.numpy())
    assert ensemble_json["test_accuracy"] == measured["accuracy"]
    assert ensemble_json["members_test_accuracy"] == measured["average_accuracy"]
    ensemble = load_ensemble(run / "model")
    with torch.no_grad():
        np.testing.assert_allclose(ensemble(test.images).numpy(), average(predictions), atol=1e-5)
    assert (run / "report.html").stat().st_size > 10_000
    return ensemble_json, ensemble, final


def search(method: str, out: Path, **options: Any) -> Any:
    return archray.search(method, out=out, **{**TINY, "space": "nasbench201", **options})


# Complete runs


@SLOW
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("method", ["nes-re", "nes-rs"])
def test_neural_ensemble_search(method: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = search(method, out, budget=3)
    ensemble_json, _, _ = check_run(out)
    assert [member["architecture"] for member in ensemble_json["members"]] == list(result.members)
    pool = Folder(out / "pool").read_parquet("trials.parquet").sort_values("number")
    assert pool["number"].tolist() == [1, 2, 3]
    predictions = np.stack([read_predictions(uri) for uri in pool["predictions"]])
    labels = load_images(DataSettings(**Folder(out).read_json("manifest.json")["config"]["data"])).validation.labels
    chosen = forward_selection(predictions, labels, 2)
    assert [pool["architecture"].iloc[place] for place in chosen.members] == list(result.members)
    assert Folder(out / "search").read_json("architecture.json")["value"] == pytest.approx(chosen.losses[-1])
    table = Folder(out / "search").read_parquet("trials.parquet")
    assert table["number"].tolist() == [2, 3] and set(table["sampler"]) == {method}


@SLOW
@pytest.mark.usefixtures("ray_session")
def test_snapshots_of_a_fixed_architecture(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = search("snapshot", out, architecture=CELL)
    ensemble_json, _, final = check_run(out)
    assert result.members == (CELL, CELL) and result.validation_accuracy is None
    assert [member["epoch"] for member in ensemble_json["members"]] == [1, 2]
    assert len(final.read_parquet("trials.parquet")) == 1
    first, last = (load_trained(out / "final" / "members" / name).state_dict() for name in "01")
    assert any(not torch.equal(first[name], last[name]) for name in first)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_dropped_paths_of_a_fixed_architecture(tmp_path: Path) -> None:
    out = tmp_path / "run"
    search("mc-droppath", out, space="darts", architecture=GENOTYPE, drop_path=0.5)
    ensemble_json, ensemble, final = check_run(out)
    assert all(isinstance(member, DroppedPaths) for member in ensemble.members)
    assert len({member["drop_path_seed"] for member in ensemble_json["members"]}) == 2
    one, other = (np.load(out / "final" / member["predictions"]) for member in ensemble_json["members"])
    assert not np.array_equal(one, other)
    assert len(final.read_parquet("trials.parquet")) == 1


@SLOW
@pytest.mark.usefixtures("ray_session")
def test_deep_ensemble_of_the_best_architecture_of_a_pool(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = search("deep-ensemble", out, budget=2)
    ensemble_json, _, final = check_run(out)
    pool = Folder(out / "pool").read_parquet("trials.parquet")
    assert result.validation_accuracy == pool["validation_accuracy"].max()
    assert len(set(result.members)) == 1 and len({member["seed"] for member in ensemble_json["members"]}) == 2
    assert len(final.read_parquet("trials.parquet")) == 2


# Parts


def test_a_member_writes_predictions_and_a_loadable_checkpoint(tmp_path: Path) -> None:
    settings = {
        "data": {"name": "digits", "limit": 60},
        "network": {"channels": 2, "cells": 1},
        "training": {"epochs": 2, "batch_size": 20, "threads": 1},
        "predictions_dir": str(tmp_path / "predictions"),
    }
    trial = MemberTrainable({"settings": settings, "architecture": CELL, "seed": 0})
    first, last = trial.step(), trial.step()
    assert first["predictions"] is None and first.keys() == last.keys()
    found = read_predictions(last["predictions"])
    labels = load_images(DataSettings(name="digits", limit=60)).validation.labels.numpy()
    assert found.shape == (len(labels), 10)
    assert (found.argmax(1) == labels).mean() == pytest.approx(last["validation_accuracy"])
    trial.save_checkpoint(str(tmp_path))
    load_trained(tmp_path)
    assert "predictions_dir" not in read_state(tmp_path)["settings"]


def test_parents_are_the_ensemble_of_forward_selection(tmp_path: Path) -> None:
    data = DataSettings(name="digits", limit=60)
    labels = load_images(data).validation.labels
    rng = np.random.default_rng(0)
    pool = [rng.dirichlet(np.ones(10), len(labels)).astype(np.float32) for _ in range(5)]
    uris = [
        write_weights(str(tmp_path), f"{number}.pt", {"validation": torch.from_numpy(p)})
        for number, p in enumerate(pool)
    ]
    population = [{"number": n, "predictions": uri} for n, uri in enumerate([uris[0], None, *uris[1:]], start=1)]
    places = EnsembleParents(3, data)(population)
    chosen = forward_selection(np.stack(pool), labels, 3).members
    assert places == [place + (place > 0) for place in chosen]  # the second one of the population has no weights
    assert EnsembleParents(3, data)(population[1:2]) == []
    assert len(EnsembleParents(9, data)(population)) == 5


# Rejected input


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("mc-droppath", {"space": "nasbench201"}, "no paths to drop"),
        ("mc-droppath", {"space": "darts", "drop_path": 1.0}, "drop_path"),
        ("snapshot", {"final_epochs": 1}, "one for each snapshot"),
        ("snapshot", {"final__cycles": 2}, "final.cycles"),
        ("deep-ensemble", {"architecture": "|conv~0|"}, "expected a cell with 6 operations"),
        ("nes-rs", {"budget": 1}, "expected pool to be at least ensemble_size, 2"),
        ("nes-re", {"evolution__population": 4}, "evolution.population to be below pool"),
        ("nes-rs", {"architecture": CELL}, "architecture"),
    ],
)
def test_wrong_configurations_raise_an_error(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(archray.errors.ArchrayError, match=message):
        check_config(make_config(method, "smoke", None, {"data": "digits", "space": "nasbench201", **options}))


def test_defaults_are_those_of_nesbs_with_the_pool_of_shu_2022() -> None:
    """The pool has 50 networks with 50 epochs each (note E8). Members are trained as those of NESBS."""
    config = make_config("nes-rs", "paper", None, {"space": "darts"})
    nesbs = make_config("nesbs", "paper", None, {"space": "darts"})
    assert (config.pool, config.train.epochs) == (50, 50)
    for name in ("data", "network", "final", "ensemble_size"):
        assert getattr(config, name) == getattr(nesbs, name)
    check_config(config.model_copy(update={"data": DataSettings(name="digits")}))
