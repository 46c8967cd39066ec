"""Tune runs under simulated changes of Tune: it no longer calls a method, or lacks it."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from archray_test_schedule import Climb
from ray import tune
from ray.tune.experiment import trial
from ray.tune.search import Searcher
from ray.tune.search.search_generator import SearchGenerator

from archray.cluster import ray_compat
from archray.cluster.ray_compat import PrivateName
from archray.errors import IncompatibleRay
from archray.files import Folder
from archray.platform.engine import result_log
from archray.platform.durable.failed_trials import FailureLog, quiet_deaths
from archray.platform.engine.result_log import KeepSnapshot, distinct_ids, line_writer, reduced_saves, trial_statuses
from archray.platform.engine.tune_memory import idle_actors
from archray.platform.engine.tuning import check_changes
from archray.searchers import RandomSearch

CONTROLLER = ray_compat.TRIAL_STATES.owner()
ANALYSIS = ray_compat.TRIAL_FRAMES.owner()
# The functions of Tune that call a private name.
CALLERS: dict[PrivateName, list[tuple[Any, str]]] = {
    ray_compat.TRIAL_STATES: [(CONTROLLER, "save_to_dir")],
    ray_compat.TRIAL_FRAMES: [(ANALYSIS, "__init__")],
    ray_compat.TRIAL_ERROR: [(CONTROLLER, "_process_trial_failure")],
    ray_compat.TRIAL_CHECKPOINT: [(CONTROLLER, "_process_trial_save")],
    ray_compat.ACTOR_CACHE: [(CONTROLLER, "__init__")],
    ray_compat.TRIAL_ID: [(SearchGenerator, "create_trial_if_possible")],
    ray_compat.QUEUE_UPDATE: [(CONTROLLER, "_maybe_update_trial_queue")],
    ray_compat.REUSED_ACTOR: [(CONTROLLER, "_schedule_trial_actor"), (CONTROLLER, "_maybe_add_actors")],
}

GRID = tune.grid_search([1.0, 2.0])


@pytest.fixture(autouse=True)
def no_earlier_warning() -> Iterator[None]:
    """A process warns once of each change."""
    ray_compat._warn.cache_clear()
    yield
    ray_compat._warn.cache_clear()


def call_copies(name: PrivateName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Tune call a copy of a private function under a new name; the function remains."""
    monkeypatch.setattr(name.owner(), f"{name.attribute}_2", name.find(), raising=False)
    for owner, caller in CALLERS[name]:
        function = getattr(owner, caller)
        source = textwrap.dedent(inspect.getsource(function))
        assert name.attribute in source
        changed: dict[str, Any] = {}
        calls_copy = re.sub(rf"(?<![a-z]){name.attribute}\b", f"{name.attribute}_2", source)
        code = compile(calls_copy, f"changed {caller}", "exec")
        exec(code, sys.modules[function.__module__].__dict__, changed)
        monkeypatch.setattr(owner, caller, changed[caller])


def run(folder: Path, value: Any = GRID, **tuned: Any) -> tune.ResultGrid:
    """Two trials of two steps with checkpoints, as `run_trials` runs them. The last trial fails in its second step."""
    keys = {"value": value, "steps": 2, "log": str(folder / "log"), "fails": {"2.0": 2}}
    config = tune.RunConfig(
        name=folder.name,
        storage_path=str(folder),
        callbacks=[FailureLog(), KeepSnapshot()],
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=2),
        verbose=0,
    )
    tune_config = tune.TuneConfig(metric="value", mode="max", reuse_actors=True, max_concurrent_trials=1, **tuned)
    with quiet_deaths(), reduced_saves(), distinct_ids(), line_writer(), idle_actors(1):
        results = tune.Tuner(Climb, param_space=keys, tune_config=tune_config, run_config=config).fit()
        check_changes(results, restored=False, searcher="search_alg" in tuned)
    return results


def search(folder: Path) -> tune.ResultGrid:
    """Two trials of a searcher, as `run`."""
    return run(folder, value=1.0, search_alg=RandomSearch(["a", "b"], budget=2), num_samples=-1)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("change", ["no longer called", "removed"])
@pytest.mark.parametrize("name", [name for name in CALLERS if name.needed], ids=lambda name: name.attribute)
def test_a_run_that_depends_on_a_changed_method_stops(
    name: PrivateName, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_copies(name, monkeypatch)
    if change == "removed":
        monkeypatch.delattr(name.owner(), name.attribute)
    with pytest.raises(IncompatibleRay, match=rf"{name.attribute}.*2\.55 to 2\.60"):
        run(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("change", ["no longer called", "removed"])
@pytest.mark.parametrize(
    "name",
    [name for name in CALLERS if not name.needed and name != ray_compat.TRIAL_ID],
    ids=lambda name: name.attribute,
)
def test_a_run_without_an_optional_change_completes_with_a_warning(
    name: PrivateName, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    call_copies(name, monkeypatch)
    if change == "removed":
        monkeypatch.delattr(name.owner(), name.attribute)
    run(tmp_path)
    assert sorted(trial_statuses(Folder(tmp_path / tmp_path.name))) == ["ERROR", "TERMINATED"]
    [warning] = [record.message for record in caplog.records if record.name == ray_compat.__name__]
    assert name.attribute in warning and "2.55 to 2.60" in warning


@pytest.mark.usefixtures("ray_session")
def test_an_unchanged_run_has_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path)
    assert not [record for record in caplog.records if record.name == ray_compat.__name__]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_renamed_state_of_the_searcher_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Searcher, "CKPT_FILE_TMPL", "state-of-searcher-{}.pkl")
    with pytest.raises(IncompatibleRay, match=r"save searcher-state-\*.*state-of-searcher.*2\.60"):
        search(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("change", ["no longer called", "removed"])
def test_a_search_without_longer_ids_completes_with_a_warning(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    call_copies(ray_compat.TRIAL_ID, monkeypatch)
    if change == "removed":
        monkeypatch.delattr(ray_compat.TRIAL_ID.owner(), ray_compat.TRIAL_ID.attribute)
    assert {len(result.metrics["trial_id"]) for result in search(tmp_path)} == {8}
    [warning] = [record.message for record in caplog.records if record.name == ray_compat.__name__]
    assert "generate_id" in warning


@pytest.mark.usefixtures("ray_session")
def test_trials_with_equal_first_eight_digits_of_their_ids_are_distinct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.count()
    pairs = SimpleNamespace(uuid4=lambda: uuid.UUID(f"{(n := next(numbers)) // 2:08x}{n:08x}{0:016x}"))
    for module in (trial, result_log):
        monkeypatch.setattr(module, "uuid", pairs)
    ids = [result.metrics["trial_id"] for result in search(tmp_path)]
    assert len(ids) == len(set(ids)) == 2
    assert trial_statuses(Folder(tmp_path / tmp_path.name)) == ["TERMINATED"] * 2
