"""Tune's state files brought up to their journal: what generates the trials is told again what became of them.

A suggestion is a function of what was told before it, so that a searcher of an earlier moment, told the same in the
same order, has the state that was lost with the driver. The journal has that order.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import cloudpickle
from ray.tune.experiment import Experiment
from ray.tune.search import BasicVariantGenerator

from archray.errors import IncompatibleRay, tested_versions
from archray.files import Folder
from archray.platform.engine.failed_trials import failed_trials
from archray.platform.engine.moved_state import mended
from archray.platform.engine.result_log import STATE_FILES
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.run.layout import RESULTS, SNAPSHOT
from archray.platform.run.tune_snapshot import Event, is_experiment_state, laid_over, read_kept
from archray.plurals import count
from archray.searchers.base import ArchraySearcher
from archray.searchers.drive_searcher import replay
from archray.searchers.ledger import TuneTrial

TUNER = "tuner.pkl"  # how Tune restores a Tuner: what it was made of


def brought_up(states: Mapping[str, bytes], events: Sequence[Event], plan: TrialPlan) -> dict[str, bytes]:
    """The state files as they were after the last of `events`.

    Raises: SearcherStateError if the searcher's state is of a search with other settings; what the searcher raises.
    """
    now = dict(states)
    if not events:
        return now
    trials = [TuneTrial.read(*saved) for _, *saved in events]
    for name, state in states.items():
        if is_experiment_state(name):
            known = {json.loads(saved)["trial_id"] for saved, _ in json.loads(state)["trial_data"]}
            now[name] = laid_over(state, events)
    suggested = list(dict.fromkeys(trial.trial_id for trial in trials if trial.trial_id not in known))
    for name, state in states.items():
        if name.startswith("searcher-state-") and plan.searcher is not None:
            now[name] = _searcher_state(plan.searcher(), state, trials)
        elif name.startswith("search_gen_state-"):
            generator = cloudpickle.loads(state)
            now[name] = cloudpickle.dumps({**generator, "counter": generator["counter"] + len(suggested)})
        elif name.startswith("basic-variant-state-"):
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
    """Of the trials that a plan's keys say, without a searcher. suggested: the ids of those after the snapshot."""
    grid: Any = BasicVariantGenerator()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / name).write_bytes(state)
        grid.restore_from_dir(scratch)
        told: set[str] = set()
        for trial in trials:
            if trial.trial_id in suggested and trial.trial_id not in told:
                told.add(trial.trial_id)
                grid.next_trial()
            if trial.ended:
                grid.on_trial_complete(trial.trial_id)
        session = name.removeprefix("basic-variant-state-").removesuffix(".json")
        grid.save_to_dir(scratch, session_str=session)
        return (Path(scratch) / name).read_bytes()


def _reopened(states: Mapping[str, bytes], folder: Folder, *, errors: bool) -> dict[str, bytes]:
    """The state files with every trial that has not ended free to fail as often as a new one.

    errors: whether those that a process or a node that was lost has ended are open again, from their last checkpoint. A
    searcher may have suggested others upon their ends, which stay.
    """
    outside = {trial_id for trial_id, failed in failed_trials(folder).items() if failed.outside}
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
    """Puts the state that was kept in the place of Tune's own copies; whether there is a state to restore.

    Without one nothing has been trained, and the run begins: Tune saves its state before the first result, and
    `KeepSnapshot` stops a run in which it does not.

    folder: of a Tune experiment; it may have been moved.
    Raises: IncompatibleRay if there are results and no state; as `brought_up`.
    """
    states, events = read_kept(folder)
    if not folder.exists(TUNER) or not any(map(is_experiment_state, states)):
        if ended := (folder / RESULTS).files():
            missing = TUNER if any(map(is_experiment_state, states)) else f"experiment_state-*.json in {SNAPSHOT}"
            raise IncompatibleRay(
                tested_versions(
                    f"Expected {missing} beside the results of {count(len(ended), 'trial')} in {folder}, got none. "
                    f"These trials are not trained again unasked; to do so, delete {folder} and resume"
                )
            )
        return False
    states, events = mended({**states, TUNER: folder.read_bytes(TUNER)}, events, folder)
    kept = _reopened(brought_up(states, events, plan), folder, errors=plan.searcher is None)
    for name in folder.files():
        if name.startswith(STATE_FILES) and name not in kept:
            folder.delete(name)  # of a later session of Tune's, which it would take for the newest
    for name, state in kept.items():
        folder.write_bytes(name, state)
    return True
