"""What a Tune run keeps of itself, and what a resume puts back."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from archray.files import Folder
from archray.platform.engine.result_log import SNAPSHOT, read_snapshot, restore_state, trial_statuses

KEPT = {
    "experiment_state-1.json": b'{"trial_data": []}',
    "search_gen_state-1.json": b"{}",
    "searcher-state-1.pkl": b"1",
}


@pytest.fixture
def experiment(tmp_path: Path) -> Folder:
    """The folder of a Tune run whose driver was killed in its second session, while Tune copied its first state."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, state in KEPT.items():
            archive.writestr(name, state)
    folder = Folder(tmp_path)
    folder.write_bytes(SNAPSHOT, content.getvalue())
    for name in ("tuner.pkl", "experiment_state-1.json", "experiment_state-2.json", "searcher-state-2.pkl"):
        folder.write_bytes(name, b"")
    return folder


def test_a_restored_state_is_that_of_one_moment(experiment: Folder) -> None:
    assert restore_state(experiment)
    assert {name: experiment.read_bytes(name) for name in experiment.files()} == {
        **KEPT,
        "tuner.pkl": b"",
        SNAPSHOT: experiment.read_bytes(SNAPSHOT),
    }


def test_without_a_snapshot_there_is_nothing_to_restore(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write_bytes("tuner.pkl", b"")
    assert not restore_state(folder)
    assert read_snapshot(folder) == {}
    assert trial_statuses(folder) == []
