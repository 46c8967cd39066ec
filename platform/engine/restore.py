"""Restore of a Tune run's state: new paths if its folder was moved, replay of the journal and the searcher.

Tune's state contains the path of the run in the storage of trials and of their generator, in configurations (data, a
pool, warm-start weights) and in the pickled searcher.
"""

import copy
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import cloudpickle, tune
from ray.tune.experiment import Experiment
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, create_searcher
from ray.tune.search.search_generator import SearchGenerator

from archray.cluster.ray_compat import (
    EXPERIMENT_STATE,
    GENERATOR_STATE,
    GRID_STATE,
    SEARCHER_STATE,
    STATE_FILES,
    TUNER_FILE,
    tune_config_of,
)
from archray.errors import IncompatibleRay
from archray.files import Folder
from archray.line_writer import LineWriter
from archray.platform.engine.failed_trials import failed_trials
from archray.platform.engine.result_log import result_line, saved_results
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.run.layout import REPEAT, RESULTS, SNAPSHOT
from archray.platform.run.tune_snapshot import Event, is_experiment_state, lost_state, read_kept, updated
from archray.searchers.base import ArchraySearcher
from archray.searchers.drive_searcher import replay, replay_calls
from archray.searchers.ledger import TuneTrial

MODULES = ("ray.tune", "ray.train", "ray.air", "archray")  # modules of objects whose attributes may be paths
PICKLED = "CLOUDPICKLE_FALLBACK"  # the `_type` of a hexadecimal pickle in Tune's JSON


def _run_of(path: str) -> str:
    """Returns the folder of the run that contains a Tune run; for a repeat, the folder of all repeats."""
    run = path.rsplit("/", 2)[0]
    parent, _, name = run.rpartition("/")
    return parent if name.startswith(REPEAT) else run


def relocate(
    files: Mapping[str, bytes], events: Sequence[Event], folder: Folder, root_of: Callable[[str], str] = _run_of
) -> tuple[dict[str, bytes], list[Event]]:
    """Rewrites paths inside the run in state files and journal to the Tune run's present `folder`.

    Args:
        files: state files by name, pickles and JSON, with the state of the trials.
        root_of: function from the folder of a Tune run to the folder that was moved.
    """
    place = next((_place_of(state) for name, state in files.items() if is_experiment_state(name)), None)
    if place is None or place == folder.path:
        return dict(files), list(events)
    old, new = root_of(place), root_of(folder.path)
    # matches at the start of a path, after a URI's scheme, or after a prefix such as `arrays:`; not inside another path
    pattern = re.compile(rf"((?<=://)|(?<![\w./-])){re.escape(old)}(?=/|$)")

    def new_path(text: str) -> str:
        return pattern.sub(lambda match: new, text)

    now = {name: _relocate_file(state, new_path) for name, state in files.items()}
    return now, [[trial_id, *_relocate_trial(saved, new_path)] for trial_id, *saved in events]


def _place_of(state: bytes) -> str | None:
    for saved, _ in json.loads(state)["trial_data"]:
        storage = cloudpickle.loads(bytes.fromhex(json.loads(saved)["storage"]["value"]))
        return str(storage.experiment_fs_path)
    return None


def _relocate_file(state: bytes, new_path: Callable[[str], str]) -> bytes:
    try:
        whole = json.loads(state)
    except ValueError:
        return cloudpickle.dumps(_relocate(cloudpickle.loads(state), new_path, {}))
    if "trial_data" in whole:
        whole["trial_data"] = [_relocate_trial(saved, new_path) for saved in whole["trial_data"]]
        return json.dumps(whole).encode()
    return json.dumps(_relocate(whole, new_path, {})).encode()


def _relocate_trial(saved: Sequence[str], new_path: Callable[[str], str]) -> list[str]:
    return [json.dumps(_relocate(json.loads(part), new_path, {})) for part in saved]


def _relocate(value: Any, new_path: Callable[[str], str], seen: dict[int, tuple[Any, Any]]) -> Any:
    """Rewrites paths in the strings of `value`. Objects change in place, each once."""
    if isinstance(value, str):
        return new_path(value)
    if isinstance(value, dict) and value.get("_type") == PICKLED:
        content = _relocate(cloudpickle.loads(bytes.fromhex(value["value"])), new_path, seen)
        return {**value, "value": cloudpickle.dumps(content).hex()}
    if id(value) in seen:
        return seen[id(value)][1]
    if isinstance(value, tuple) and type(value) is tuple:
        entries = tuple(_relocate(entry, new_path, seen) for entry in value)
        seen[id(value)] = value, entries  # keeps the old object, so that no other object gets its id
        return entries
    seen[id(value)] = value, value
    if isinstance(value, dict):
        for key, entry in list(value.items()):
            value[key] = _relocate(entry, new_path, seen)
    elif isinstance(value, list):
        value[:] = [_relocate(entry, new_path, seen) for entry in value]
    elif not isinstance(value, type) and type(value).__module__.startswith(MODULES) and hasattr(value, "__dict__"):
        if hasattr(value, "experiment_dir_name"):  # Tune's storage has parent and name of the folder, which may be new
            place = new_path(f"{value.storage_fs_path}/{value.experiment_dir_name}")
            value.storage_fs_path, _, value.experiment_dir_name = place.rpartition("/")
        for name, entry in list(vars(value).items()):
            if name not in ("storage_fs_path", "experiment_dir_name"):
                vars(value)[name] = _relocate(entry, new_path, seen)
    return value


def brought_up(states: Mapping[str, bytes], events: Sequence[Event], plan: TrialPlan) -> dict[str, bytes]:
    """Replays `events` in Tune's files and in the searcher; returns the state files after the last event.

    Raises: SearcherStateError if the searcher's state has other settings; errors of the searcher.
    """
    now = dict(states)
    if not events:
        return now
    trials = [TuneTrial.read(*saved) for _, *saved in events]
    for name, state in states.items():
        if is_experiment_state(name):
            before = {json.loads(saved)["trial_id"] for saved, _ in json.loads(state)["trial_data"]}
            now[name] = updated(state, events)
    suggested = list(dict.fromkeys(trial.trial_id for trial in trials if trial.trial_id not in before))
    for name, state in states.items():
        if name.startswith(SEARCHER_STATE) and plan.searcher is not None:
            now[name] = _searcher_state(plan.searcher(), state, trials)
        elif name.startswith(GENERATOR_STATE):
            generator = cloudpickle.loads(state)
            now[name] = cloudpickle.dumps({**generator, "counter": generator["counter"] + len(suggested)})
        elif name.startswith(GRID_STATE):
            Experiment.register_if_needed(plan.trainable)
            now[name] = _grid_state(name, state, trials, suggested)
    return now


def _searcher_state(searcher: ArchraySearcher, state: bytes, trials: Sequence[TuneTrial]) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "state"
        file.write_bytes(state)
        searcher.restore(str(file))
        searcher.check_restored()
        replay(searcher, trials)
        searcher.save(str(file))
        return file.read_bytes()


def _grid_state(name: str, state: bytes, trials: Sequence[TuneTrial], suggested: Sequence[str]) -> bytes:
    """Returns the state of Tune's generator, for a run without a searcher.

    Args:
        suggested: ids of the trials after the snapshot.
    """
    grid: Any = BasicVariantGenerator()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / name).write_bytes(state)
        grid.restore_from_dir(scratch)
        remaining = set(suggested)
        for trial in trials:
            if trial.trial_id in remaining:
                remaining.remove(trial.trial_id)
                grid.next_trial()
            if trial.ended:
                grid.on_trial_complete(trial.trial_id)
        session = name.removeprefix(GRID_STATE).removesuffix(".json")
        grid.save_to_dir(scratch, session_str=session)
        return (Path(scratch) / name).read_bytes()


def _reopened(states: Mapping[str, bytes], folder: Folder, *, errors: bool) -> dict[str, bytes]:
    """Resets the failure count of every unfinished trial in the state files.

    Args:
        errors: whether to reopen trials that ended with a lost process or node, from their last checkpoint. With a
            searcher they stay ended, since later suggestions may depend on their end.
    """
    outside = {trial_id for trial_id, failed in failed_trials(folder).items() if failed.processes}
    now = dict(states)
    for name in filter(is_experiment_state, states):
        whole = json.loads(states[name])
        for saved in whole["trial_data"] if outside else []:
            stub = json.loads(saved[0])
            if stub["trial_id"] not in outside or stub["status"] == "TERMINATED":
                continue
            if stub["status"] == "ERROR":
                if not errors:
                    continue
                stub["status"] = "PENDING"
            progress = {**json.loads(saved[1]), **dict.fromkeys(("error_filename", "pickled_error_filename"))}
            progress |= {"num_failures": 0, "num_failures_after_restore": 0}
            saved[:] = json.dumps(stub), json.dumps(progress)
        now[name] = json.dumps(whole).encode()
    return now


def restore_state(folder: Folder, plan: TrialPlan) -> bool:
    """Replaces Tune's copies of its state by the state that archray kept.

    Without a state no trial has reported, and the run starts from scratch: Tune saves its state before the first
    result, and `KeepSnapshot` stops a run in which Tune does not.

    Args:
        folder: folder of a Tune experiment, which may have been moved.

    Returns: whether there is a state to restore.
    Raises: as `read_state`; the errors of `brought_up`.
    """
    saved = read_state(folder)
    if saved is None:
        return False
    states, events = relocate(*saved, folder)
    kept = _reopened(brought_up(states, events, plan), folder, errors=plan.searcher is None)
    _write(folder, kept, events)
    return True


def read_state(folder: Folder) -> tuple[dict[str, bytes], list[Event]] | None:
    """Reads the state files of a Tune run, with TUNER_FILE, and the later events; None if there is nothing to restore.

    Raises: DamagedFile if a file is damaged, or if there are results without a state; IncompatibleRay; ImportError.
    """
    states, events = read_kept(folder)
    saved = {SNAPSHOT: any(map(is_experiment_state, states)), TUNER_FILE: folder.exists(TUNER_FILE)}
    if all(saved.values()):
        return {**states, TUNER_FILE: _tuner(folder)}, events
    if (folder / RESULTS).files():  # archray does not repeat these trials without a word
        name = next(name for name in saved if not saved[name])
        raise lost_state(folder, name, "it lacks the state of the trials" if folder.exists(name) else "it is missing")
    return None


def _tuner(folder: Folder) -> bytes:
    """Reads TUNER_FILE. Raises: DamagedFile if it is not a complete pickle; IncompatibleRay."""
    content = folder.read_bytes(TUNER_FILE)
    try:
        tune_config_of(content)
    except (ImportError, IncompatibleRay):  # a missing module, or another version of Ray
        raise
    except Exception as error:  # of any kind: it is a pickle
        raise lost_state(folder, TUNER_FILE, error) from error
    return content


def _write(folder: Folder, states: Mapping[str, bytes], events: Sequence[Event]) -> None:
    """Writes Tune's state files, and deletes files of a later session of Tune, which would be the newest."""
    _keep_results(folder / RESULTS, events)
    for name in folder.files():
        if name.startswith(STATE_FILES) and name not in states:
            folder.delete(name)
    for name, state in states.items():
        folder.write_bytes(name, state)


def _keep_results(results: Folder, events: Sequence[Event]) -> None:
    """Appends results that `events` contain and a loss of power has removed from the files in `results`."""
    kept = results.with_listing()
    lines: dict[str, dict[int, bytes]] = {f"{trial_id}.jsonl": {} for trial_id, *_ in events}
    for trial_id, _, progress in events:
        last = json.loads(progress)["last_result"]
        if last.get("trial_id") == trial_id and "training_iteration" in last:
            lines[f"{trial_id}.jsonl"][last["training_iteration"]] = result_line(last)
    with LineWriter() as writer:
        for name, by_iteration in lines.items():
            reported = kept.read_json_lines(name, dict[str, Any]) if kept.exists(name) else []
            for iteration in sorted(by_iteration.keys() - {result.get("training_iteration") for result in reported}):
                writer.append(results, name, by_iteration[iteration])


def restore_experiment(folder: Folder, trainable: Any) -> None:
    """As `restore_state`, for a Tune experiment with any searcher and trainable, which has a saved state."""
    states, events = read_kept(folder)
    experiment = max(filter(is_experiment_state, states))
    session = experiment.removeprefix(EXPERIMENT_STATE).removesuffix(".json")
    states = {name: state for name, state in states.items() if session in name}  # without sessions before a restore
    states, events = relocate({**states, TUNER_FILE: _tuner(folder)}, events, folder, root_of=str)
    trials = [TuneTrial.read(*saved) for _, *saved in events]
    saved_trials = [json.loads(trial) for trial, _ in json.loads(states[experiment])["trial_data"]]
    statuses = {trial["trial_id"]: trial["status"] for trial in saved_trials}
    now = dict(states)
    now[experiment] = updated(states[experiment], events)
    for name in states:
        if name.startswith(GENERATOR_STATE):
            search = tune_config_of(states[TUNER_FILE])
            now |= _search_states(search, states, name, trials, statuses)
        elif name.startswith(GRID_STATE):
            Experiment.register_if_needed(trainable)
            suggested = list(dict.fromkeys(trial.trial_id for trial in trials if trial.trial_id not in statuses))
            now[name] = _grid_state(name, states[name], trials, suggested)
    _write(folder, now, events)


def _search_states(
    config: tune.TuneConfig,
    states: Mapping[str, bytes],
    name: str,
    trials: Sequence[TuneTrial],
    statuses: Mapping[str, str],
) -> dict[str, bytes]:
    """Returns the state files of a searcher and its wrappers after the last event.

    Args:
        config: the caller's `TuneConfig`, with the searcher in its first state.
        name: name of the state file of Tune's `SearchGenerator`.
        trials: one entry per event after the snapshot, in order.
        statuses: status of every trial in the snapshot, by id.
    """
    search: Any = config.search_alg
    if isinstance(search, str):
        search = create_searcher(search)
    if config.max_concurrent_trials and not isinstance(search, ConcurrencyLimiter):  # as `Tuner.fit` wraps it
        search = ConcurrencyLimiter(search, config.max_concurrent_trials)
    generator = SearchGenerator(search)
    session = name.removeprefix(GENERATOR_STATE).removesuffix(".json")
    with tempfile.TemporaryDirectory() as scratch:
        for file, state in states.items():
            (Path(scratch) / file).write_bytes(state)
        generator.restore_from_dir(scratch)
        replay_calls(generator.searcher, trials, statuses)
        suggested = {trial.trial_id for trial in trials} - statuses.keys()
        counted = generator.get_state()
        generator.set_state({**counted, "counter": counted["counter"] + len(suggested)})
        generator.save_to_dir(scratch, session)
        files = [file for file in Path(scratch).iterdir() if file.name.endswith(f"-{session}{file.suffix}")]
        return {file.name: file.read_bytes() for file in files if not is_experiment_state(file.name)}


class ResumedASHA(AsyncHyperBandScheduler):
    """Ray Tune's ASHA (Li et al. 2020), which replays the results of a resumed run, since Tune saves no scheduler.

    For a running trial it replays the results up to its checkpoint; the trial reports later results again. A trial
    that should have ended stops at its next result, which no rung receives.
    """

    _results: Folder | None = None  # the results before the next result, listed once

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._over: set[str] = set()  # ids of the trials that should have ended

    @classmethod
    def from_scheduler(cls, scheduler: AsyncHyperBandScheduler) -> "ResumedASHA":
        """Returns a copy of a scheduler that has received no result yet."""
        resumed = cls()
        vars(resumed).update(copy.deepcopy(vars(scheduler)))
        return resumed

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_add(tune_controller, trial)
        done = int((trial.run_metadata.last_result or {}).get("training_iteration", 0))
        if done == 0:
            return
        self._results = self._results or saved_results(trial)
        reported = self._results.read_json_lines(f"{trial.trial_id}.jsonl")
        results = [result for result in reported if result["training_iteration"] <= done]
        actions = [super(ResumedASHA, self).on_trial_result(tune_controller, trial, result) for result in results]
        if TrialScheduler.STOP in actions and not trial.is_finished():
            self._over.add(trial.trial_id)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        self._results = None
        if trial.trial_id in self._over:
            return str(TrialScheduler.STOP)
        return str(super().on_trial_result(tune_controller, trial, result))

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._over:
            super().on_trial_complete(tune_controller, trial, result)
