"""A complete search with a sliced supernet, killed and resumed, its weights under another constraint, and bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_command import finish, kill_when, logged, start
from archray_test_faults import results_of_run
from archray_test_runs import as_arguments

import archray
from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.supernets.sliced_config import DESCRIPTION, WEIGHTS, TrainedSupernet
from archray.trainables.spaces import get_space

TINY: dict[str, Any] = {"preset": "smoke", "seed": 3, "data__limit": 100, "max_concurrent": 1, "random": 0}


def config_of(**options: Any) -> Any:
    return make_config("sliced-supernet", "smoke", None, options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"space": "nasbench201"}, "not slices of its largest network. Choose the space vit"),
        ({"population": 8}, "search.population to be below the budget"),
        ({"candidates": 9, "selection__keep": 9}, "candidates to be at most search.budget, 8, got 9"),
        ({"supernet": "no/such/run"}, "expected the folder of a run as supernet, got .*no/such/run"),
        ({"selection__epoch": 2}, "selection.epoch"),
    ],
)
def test_bad_input_raises_before_ray_starts(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_config(config_of(**options))


WHEN = "2026-01-01T00:00:00+00:00"


def supernet_run(folder: Path, **options: Any) -> Path:
    """A folder with a trained supernet, with only the files that a configuration reads."""
    stage = Folder(folder / "supernet").create()
    stage.write_bytes(WEIGHTS, b"weights")
    config = config_of(**options).model_dump(mode="json")
    made = {"created": WHEN, "versions": {}, "command": None, "references": {}, "arrays": False, "amended": []}
    Folder(folder).write_json("manifest.json", {**made, "config": config, "data_checksum": "d"})
    TrainedSupernet(stage.uri, stage.sha256(WEIGHTS), {}, config, "d").write(stage)
    stage.write_json("done.json", {"inputs": "", "outputs": {}, "finished": WHEN, "seconds": 1.0})
    return folder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 6}, r"expected network.channels to be 4, .* got 6"),
        ({"data": "gaussian"}, r"expected data.name to be 'digits'"),
        ({"data__limit": 50}, r"expected data.limit to be None"),
    ],
)
def test_a_supernet_of_another_network_or_data_set_raises_an_error(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    run = supernet_run(tmp_path / "run")
    check_config(config_of(supernet=str(run)))
    with pytest.raises(InvalidInput, match=message):
        check_config(config_of(supernet=str(run), **options))


def test_missing_or_changed_weights_raise_an_error(tmp_path: Path) -> None:
    run = supernet_run(tmp_path / "run")
    place = run / "supernet" / WEIGHTS
    place.write_bytes(b"others")
    with pytest.raises(InvalidInput, match="have changed since this run started"):
        TrainedSupernet.of_run(str(run)).weights()
    place.unlink()
    with pytest.raises(InvalidInput, match="which does not exist; restore the run"):
        TrainedSupernet.of_run(str(run)).weights()
    shutil.rmtree(run / "supernet")
    with pytest.raises(InvalidInput, match="expected a run with a trained sliced supernet"):
        TrainedSupernet.of_run(str(run))


def in_progress(stage: Path) -> bool:
    """Whether the trial of the stage has reported an epoch, and the stage has not finished."""
    return bool(logged(stage, "result")) and not (stage / "done.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_search_resumes_and_its_weights_serve_another_constraint(tmp_path: Path) -> None:
    """A run killed while it trains the supernet equals an undisturbed run. Another run searches with its weights."""
    command = ("search", "sliced-supernet", *as_arguments({**TINY, "epochs": 4}), "--set", "cluster.dashboard=false")
    finish(*command, "--out", "undisturbed", cwd=tmp_path)
    run = tmp_path / "killed"
    process = start(*command, "--out", "killed", cwd=tmp_path)
    stage = run / "supernet"
    kill_when(process, lambda: in_progress(stage), tmp_path)
    finish("resume", "killed", cwd=tmp_path)
    assert results_of_run(run) == results_of_run(tmp_path / "undisturbed")
    scores = pd.read_parquet(run / "search" / "scores.parquet")
    other = pd.read_parquet(tmp_path / "undisturbed" / "search" / "scores.parquet")
    pd.testing.assert_frame_equal(scores, other)
    assert scores["shared_accuracy"].is_monotonic_decreasing and scores["architecture"].is_unique

    constrained = (*command, "--supernet", "killed", "--constraint", "flops <= 600k", "--out", "small")
    finish(*constrained, cwd=tmp_path)
    small = tmp_path / "small"
    assert not (small / "supernet" / WEIGHTS).exists() and not list(small.glob("supernet/tune-*"))
    message = json.loads((small / "supernet" / DESCRIPTION).read_text())
    assert message["sha256"] == json.loads((stage / DESCRIPTION).read_text())["sha256"]
    assert message["place"].endswith("killed/supernet")
    table, space = pd.read_parquet(small / "search" / "scores.parquet"), get_space("vit")
    assert (table["flops"] <= 600_000).all() and np.isfinite(table["shared_accuracy"]).all()
    result = archray.load(small)
    space.check(space.decode(result.architecture))
    assert result.architecture in set(table["architecture"])
    assert "Scores with shared weights" in (small / "report.html").read_text()
