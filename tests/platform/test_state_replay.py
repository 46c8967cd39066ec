"""Tune's state is stored as a snapshot and a journal, and restored from both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle, tune
from ray.tune.experiment import Experiment, Trial
from ray.tune.search import BasicVariantGenerator
from ray.tune.search.search_generator import SearchGenerator

from archray.cluster.ray_compat import TUNE_CONFIG
from archray.files import Folder
from archray.line_writer import LineWriter
from archray.platform.engine.restore import restore_state
from archray.platform.engine.result_log import read_results, trial_statuses
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.run.layout import JOURNAL, RESULTS
from archray.platform.run.tune_snapshot import Event, event_line, experiment_state, read_kept, write_snapshot
from archray.searchers import RandomSearch

SESSION = "2026-01-01_00-00-00"


def plan(**settings: Any) -> TrialPlan:
    return TrialPlan(trainable=tune.Trainable, settings={}, metric="score", mode="max", total=4, **settings)


def event(trial: Trial, status: str) -> Event:
    trial.create_placement_group_factory()
    trial.status = status
    trial.invalidate_json_state()
    trial.run_metadata.last_result = {"score": 1.0, "training_iteration": 1} if status == "TERMINATED" else {}
    return [trial.trial_id, *trial.get_json_state()]


def append_events(folder: Folder, journal: str, events: list[Event]) -> None:
    with LineWriter() as writer:
        writer.append(folder, journal, event_line(events), is_journal=True)


def write_state(algorithm: Any, trials: list[Trial], folder: Path) -> dict[str, bytes]:
    """Writes the state files of Tune."""
    algorithm.save_to_dir(str(folder), session_str=SESSION)
    state = {"trial_data": [event(trial, trial.status)[1:] for trial in trials], "runner_data": {}, "stats": {}}
    (folder / f"experiment_state-{SESSION}.json").write_text(json.dumps(state))
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """The folder of a Tune run."""
    folder = Folder(tmp_path / "run")
    folder.write_bytes("tuner.pkl", cloudpickle.dumps({TUNE_CONFIG: tune.TuneConfig()}))
    (tmp_path / "staged").mkdir()
    return folder


def experiment(folder: Folder, **config: Any) -> Experiment:
    return Experiment(
        "run", tune.Trainable, config=config, num_samples=config.pop("samples", 1), storage_path=folder.parent.path
    )


def test_a_searcher_is_updated_from_the_journal(folder: Folder, tmp_path: Path) -> None:
    def searcher() -> RandomSearch:
        return RandomSearch(["a", "b", "c", "d"], budget=4, metric="score", mode="max", max_concurrent=2)

    search = SearchGenerator(searcher())
    search.add_configurations([experiment(folder, samples=4)])
    trials = [search.next_trial(), search.next_trial()]
    journal = write_snapshot(folder, write_state(search, trials, tmp_path / "staged"))
    search.on_trial_complete(trials[0].trial_id, {"score": 1.0})
    append_events(folder, journal, [event(trials[0], "TERMINATED")])
    third = search.next_trial()
    append_events(folder, journal, [event(third, "PENDING")])
    assert trial_statuses(folder) == ["TERMINATED", "PENDING", "PENDING"]

    assert restore_state(folder, plan(searcher=searcher))
    restored = searcher()
    restored.restore_from_dir(folder.path)
    assert restored.get_state() == search.searcher.get_state()
    assert cloudpickle.loads(folder.read_bytes(f"search_gen_state-{SESSION}.json"))["counter"] == 3
    assert folder.read_bytes(f"experiment_state-{SESSION}.json") == experiment_state(folder)


def test_a_grid_is_updated_from_the_journal(folder: Folder, tmp_path: Path) -> None:
    grid: Any = BasicVariantGenerator(max_concurrent=1)
    grid.add_configurations([experiment(folder, seed=tune.grid_search([5, 6, 7]))])
    first = grid.next_trial()
    journal = write_snapshot(folder, write_state(grid, [first], tmp_path / "staged"))
    grid.on_trial_complete(first.trial_id)
    second = grid.next_trial()
    append_events(folder, journal, [event(first, "TERMINATED"), event(second, "PENDING")])

    assert restore_state(folder, plan())
    restored: Any = BasicVariantGenerator()
    restored.restore_from_dir(folder.path)
    assert restored.next_trial() is None, "the second has not ended"
    restored.on_trial_complete(second.trial_id)
    assert restored.next_trial().config == {"seed": 7}


def test_a_torn_line_is_ignored(folder: Folder) -> None:
    journal = write_snapshot(folder, {"experiment_state-1.json": b"{}"})
    append_events(folder, journal, [["a", "1", "2"]])
    with open(Path(folder.path) / journal, "ab") as file:
        file.write(b'[["b", "1"')
    assert read_kept(folder)[1] == [["a", "1", "2"]]
    append_events(folder, journal, [["c", "1", "2"]])
    assert read_kept(folder)[1] == [["a", "1", "2"], ["c", "1", "2"]]


def test_each_snapshot_has_a_separate_journal(folder: Folder) -> None:
    append_events(folder, write_snapshot(folder, {}), [["a", "1", "2"]])
    later = write_snapshot(folder, {})
    assert read_kept(folder)[1] == []
    append_events(folder, f"{JOURNAL}0.jsonl", [["b", "1", "2"]])  # a kill has kept it from being deleted
    append_events(folder, later, [["c", "1", "2"]])
    assert read_kept(folder)[1] == [["c", "1", "2"]]


def test_a_torn_result_is_left_out(folder: Folder) -> None:
    with LineWriter() as writer:
        for epoch in (1, 2):
            writer.append(folder / RESULTS, "a.jsonl", json.dumps({"trial_id": "a", "epoch": epoch}).encode())
    file = Path((folder / RESULTS).path) / "a.jsonl"
    file.write_bytes(file.read_bytes()[:-4])
    assert read_results(folder)["epoch"].tolist() == [1]


def test_a_result_that_only_the_journal_has_is_added(folder: Folder, tmp_path: Path) -> None:
    """A loss of power may keep a line of the journal and drop the result before it."""
    grid: Any = BasicVariantGenerator(max_concurrent=1)
    grid.add_configurations([experiment(folder, seed=tune.grid_search([5, 6]))])
    trial = grid.next_trial()
    journal = write_snapshot(folder, write_state(grid, [trial], tmp_path / "staged"))
    for iteration in (1, 2, 3):
        trial.run_metadata.last_result = {"trial_id": trial.trial_id, "training_iteration": iteration, "config": {}}
        trial.run_metadata.invalidate_cache()
        append_events(folder, journal, [[trial.trial_id, *trial.get_json_state()]])
    with LineWriter() as writer:
        first = {"trial_id": trial.trial_id, "training_iteration": 1, "kept": True}
        writer.append(folder / RESULTS, f"{trial.trial_id}.jsonl", json.dumps(first).encode())
    for _ in range(2):
        assert restore_state(folder, plan())
        table = read_results(folder)
        assert table["training_iteration"].tolist() == [1, 2, 3] and table["kept"].tolist()[0] and "config" not in table
