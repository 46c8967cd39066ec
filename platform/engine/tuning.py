"""A Tune run inside a stage: begun, or restored where it was left, and read back as tables."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, Result, ResultGrid, RunConfig, TuneConfig, Tuner
from ray.tune.schedulers import TrialScheduler

from archray.errors import InvalidInput, RunInterrupted
from archray.files import Folder
from archray.platform.engine.interrupt import StopAtCheckpoint, stop_gracefully
from archray.platform.engine.progress import TrialProgress
from archray.platform.engine.result_log import SNAPSHOT, KeepSnapshot, ResultLog, read_results, restore_state
from archray.platform.engine.stage import Context
from archray.searchers.base import ArchraySearcher

MAX_FAILURES = 2  # a lost worker or node is tried again this often; NaN and bad architectures are results
AnySearcher = TypeVar("AnySearcher", bound=ArchraySearcher)
KEPT_CHECKPOINTS = 2  # with one, a kill can leave a snapshot that names a checkpoint already deleted
OURS_RUN = ("name", "storage_path", "storage_filesystem")
OURS_TUNE = ("metric", "mode", "search_alg", "num_samples")


@dataclass(frozen=True)
class TuneOptions:
    """What a caller may tell the Tune run of a search, as Tune users expect.

    Raises: InvalidInput for a field that archray sets itself.
    """

    run_config: RunConfig | None = None
    tune_config: TuneConfig | None = None
    callbacks: tuple[tune.Callback, ...] = ()
    time_budget_s: float | None = None

    def __post_init__(self) -> None:
        for config, fresh, ours in (
            (self.run_config, RunConfig(), OURS_RUN),
            (self.tune_config, TuneConfig(), OURS_TUNE),
        ):
            taken = [name for name in ours if config is not None and getattr(config, name) != getattr(fresh, name)]
            if taken:
                raise InvalidInput(
                    f"{type(config).__name__}({', '.join(taken)}=...) is set by archray itself; leave it out, "
                    "and use the arguments of archray.search instead"
                )


@dataclass(frozen=True)
class TrialPlan:
    """The trials of one stage.

    Attributes:
        trainable: a Tune `Trainable` class.
        settings: what goes under the config key `settings` of every trial.
        metric, mode: what the searcher looks at.
        searcher: makes a fresh searcher; None where `keys` say all.
        keys: further keys of every trial's configuration, `tune.grid_search` among them.
        total: how many trainings there are: at most with a searcher, exactly without.
        checkpoint_every: Tune steps between two checkpoints of a trial.
        cpus, gpus: what one trial takes.
        concurrency: trials at the same time; None: as many as find their resources free.
        scheduler: makes a fresh scheduler.
        resumes: whether trials go on after an interruption. Tune saves no scheduler's state: with one of its own they
            are begun anew.
    """

    trainable: type[tune.Trainable]
    settings: dict[str, Any]
    metric: str
    mode: str
    total: int
    cpus: float
    gpus: float
    concurrency: int | None
    searcher: Callable[[], ArchraySearcher] | None = None
    scheduler: Callable[[], TrialScheduler] | None = None
    resumes: bool = True
    keys: dict[str, Any] = field(default_factory=dict)
    checkpoint_every: int = 1


def run_trials(folder: Folder, plan: TrialPlan, context: Context, *, search: bool = False) -> ResultGrid:
    """Runs the trials of a plan in `folder`, or what is left of them if it was begun before.

    Of what the caller told Tune, stages other than the `search` take only the callbacks.
    Raises: RunInterrupted if it ended before its trials did.
    """
    _set_tune_environment()
    options = context.tune_options if search else TuneOptions(callbacks=context.tune_options.callbacks)
    several = _several(plan.concurrency)
    context.console.print(f"    {several}, {plan.cpus:g} CPUs and {plan.gpus:g} GPUs each")
    if not plan.resumes and folder.exists():
        folder.set_aside()
        context.console.print("    the trials begin anew: Tune does not save what their scheduler had decided")
    trainable = tune.with_resources(plan.trainable, {"cpu": plan.cpus, "gpu": plan.gpus})
    param_space = {"settings": plan.settings, **plan.keys}
    with stop_gracefully(context.console, "every running trial has saved its next checkpoint") as interrupt:
        if restore_state(folder):  # without a whole state `Tuner.restore` would begin anew, and say nothing
            tuner = Tuner.restore(folder.uri, trainable=trainable, param_space=param_space)
        else:
            tuner = Tuner(
                trainable,
                param_space=param_space,
                tune_config=_tune_config(plan, options),
                run_config=_run_config(folder, plan, options),
            )
        results = tuner.fit()
        requested = interrupt.requested
    _check_ended(folder, plan, results, requested)
    return results


def _several(concurrency: int | None) -> str:
    if concurrency is None:
        return "as many trials at a time as fit"
    return "1 trial at a time" if concurrency == 1 else f"{concurrency} trials at a time"


def restored_searcher(folder: Folder, make: Callable[[], AnySearcher]) -> AnySearcher:
    """The searcher of a Tune run in `folder` with the state it ended with."""
    searcher = make()
    snapshot = folder / SNAPSHOT
    with tempfile.TemporaryDirectory() as scratch:
        for name in snapshot.files():
            (Path(scratch) / name).write_bytes(snapshot.read_bytes(name))
        searcher.restore_from_dir(scratch)
    return searcher


def listed(results: ResultGrid) -> list[Result]:
    """The results of all trials; a `ResultGrid` iterates by index only."""
    return [results[number] for number in range(len(results))]


def trial_table(results: ResultGrid) -> pd.DataFrame:
    """One row a trial: its id, its configuration without `settings`, its last result, the error if it has one."""
    rows = []
    for result in listed(results):
        metrics = result.metrics or {}
        if not metrics and not result.error:
            continue  # a time budget ended it before its first result
        row = {"trial_id": metrics.get("trial_id"), **_told(result.config or {})}
        row |= {k: v for k, v in metrics.items() if k not in row and k != "config" and not isinstance(v, dict | list)}
        row["error"] = str(result.error) if result.error else None
        rows.append(row)
    return pd.DataFrame(rows)


def curve_table(folder: Folder, results: ResultGrid) -> pd.DataFrame:
    """One row an epoch of every trial of the Tune run in `folder`, with the trial's id, architecture and seed.

    The architecture is the one that was asked for; of a trial that was asked for none, the one of that epoch.
    """
    table = read_results(folder)
    if table.empty:
        return table
    asked = {(r.metrics or {}).get("trial_id"): _told(r.config or {}) for r in listed(results)}
    table = table[table["trial_id"].isin(list(asked))]  # a kill may leave results of a trial Tune forgot
    lists = [name for name in table.columns if table[name].map(lambda value: isinstance(value, list)).any()]
    table = table.drop(columns=lists)
    for key in ("architecture", "seed"):
        told = table["trial_id"].map({trial: config.get(key) for trial, config in asked.items()})
        table[key] = told if key not in table else told.where(told.notna(), table[key])
    return table


def _told(config: dict[str, Any]) -> dict[str, Any]:
    """The keys of a trial's configuration that its searcher, or the plan, set."""
    return {key: value for key, value in config.items() if key != "settings"}


def _set_tune_environment() -> None:
    for name, value in {
        "TUNE_GLOBAL_CHECKPOINT_S": "0",  # a snapshot after every step: a killed driver repeats no finished trial
        "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
        "RAY_AIR_NEW_OUTPUT": "0",  # the old engine is silent at verbose=0
    }.items():
        os.environ.setdefault(name, value)


def _tune_config(plan: TrialPlan, options: TuneOptions) -> TuneConfig:
    told = options.tune_config or TuneConfig(reuse_actors=True)
    return replace(
        told,
        metric=plan.metric,
        mode=plan.mode,
        search_alg=plan.searcher() if plan.searcher else None,
        scheduler=plan.scheduler() if plan.scheduler else told.scheduler,
        num_samples=-1 if plan.searcher else 1,
        max_concurrent_trials=told.max_concurrent_trials or plan.concurrency,
        time_budget_s=options.time_budget_s or told.time_budget_s,
    )


def _run_config(folder: Folder, plan: TrialPlan, options: TuneOptions) -> RunConfig:
    told = options.run_config or RunConfig(verbose=0)
    parent, _, name = folder.uri.rstrip("/").rpartition("/")
    return replace(
        told,
        name=name,
        storage_path=parent,
        failure_config=told.failure_config or FailureConfig(max_failures=MAX_FAILURES),
        checkpoint_config=CheckpointConfig(
            checkpoint_frequency=plan.checkpoint_every, num_to_keep=KEPT_CHECKPOINTS, checkpoint_at_end=True
        ),
        callbacks=[
            *(told.callbacks or []),
            *options.callbacks,
            ResultLog(),
            KeepSnapshot(),
            StopAtCheckpoint(),
            TrialProgress(name=parent.rpartition("/")[2], total=plan.total, metric=plan.metric, mode=plan.mode),
        ],
    )


def _check_ended(folder: Folder, plan: TrialPlan, results: ResultGrid, interrupted: bool) -> None:
    """That `fit()` returned proves nothing: it also returns after an interrupt."""
    statuses = _trial_statuses(folder)
    # What a scheduler stops while it is paused, Tune goes on to save as PAUSED (seen in 2.60).
    ended_as = ("TERMINATED", "ERROR") if plan.scheduler is None else ("TERMINATED", "ERROR", "PAUSED")
    running = [status for status in statuses if status not in ended_as]
    expected = plan.total if plan.searcher is None else 1
    if interrupted or running or len(results) < expected:
        ended = len(statuses) - len(running)
        raise RunInterrupted(f"stopped with {ended} of at most {plan.total} trials ended; nothing of them is lost")


def _trial_statuses(folder: Folder) -> list[str]:
    """The status of every trial in Tune's last state."""
    snapshot = folder / SNAPSHOT
    names = [name for name in snapshot.files() if name.startswith("experiment_state-")]
    if not names:
        return []
    return [json.loads(state)["status"] for state, _ in snapshot.read_json(names[-1])["trial_data"]]
