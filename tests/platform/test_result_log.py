"""What a Tune run keeps of itself, and what a resume puts back."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray import tune

from archray.files import Folder
from archray.platform.engine.result_log import trial_statuses
from archray.platform.engine.state_replay import restore_state
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.run.layout import SNAPSHOT
from archray.platform.run.tune_snapshot import read_snapshot, write_snapshot

KEPT = {
    "experiment_state-1.json": b'{"trial_data": []}',
    "search_gen_state-1.json": b"{}",
    "searcher-state-1.pkl": b"1",
}

PLAN = TrialPlan(trainable=tune.Trainable, settings={}, metric="score", mode="max", total=1)


@pytest.fixture
def experiment(tmp_path: Path) -> Folder:
    """The folder of a Tune run whose driver was killed in its second session, while Tune copied its first state."""
    folder = Folder(tmp_path)
    write_snapshot(folder, KEPT)
    for name in ("tuner.pkl", "experiment_state-1.json", "experiment_state-2.json", "searcher-state-2.pkl"):
        folder.write_bytes(name, b"")
    return folder


def test_a_restored_state_is_that_of_one_moment(experiment: Folder) -> None:
    assert restore_state(experiment, PLAN)
    assert {name: experiment.read_bytes(name) for name in experiment.files()} == {
        **KEPT,
        "tuner.pkl": b"",
        SNAPSHOT: experiment.read_bytes(SNAPSHOT),
    }


def test_without_a_snapshot_there_is_nothing_to_restore(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write_bytes("tuner.pkl", b"")
    assert not restore_state(folder, PLAN)
    assert read_snapshot(folder) == {}
    assert trial_statuses(folder) == []
