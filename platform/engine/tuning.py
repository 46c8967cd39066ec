"""A stage that is one Tune run: begun, or restored where it was left, and read back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd
from ray import tune
from ray.tune import Checkpoint, CheckpointConfig, FailureConfig, Result, ResultGrid, RunConfig, TuneConfig, Tuner
from ray.tune.schedulers import TrialScheduler

from archray.cluster.resources import ResourceSettings, concurrency
from archray.errors import RunInterrupted
from archray.files import Folder
from archray.platform.engine.failed_trials import FailureLog, check_crashes, crashed_trials, quiet_deaths
from archray.platform.engine.interrupt import StopAtCheckpoint, stop_gracefully
from archray.platform.engine.progress import TrialProgress
from archray.platform.engine.result_log import KeepSnapshot, ResultLog, read_snapshot, restore_state, trial_statuses
from archray.platform.engine.stage import Context, ReadsT, Stage, TuneOptions
from archray.platform.engine.trial_tables import curve_table, failure_reasons, trial_table
from archray.platform.run.manifest import digest
from archray.platform.run.run import CURVES, TRIALS
from archray.searchers.base import ArchraySearcher

MAX_FAILURES = 2  # a lost worker or node is tried again this often; NaN and bad architectures are results
KEPT_CHECKPOINTS = 2  # with one, a kill can leave a snapshot that names a checkpoint already deleted
CONCURRENCY = "concurrency.json"
TUNE_ENVIRONMENT = {
    "TUNE_GLOBAL_CHECKPOINT_S": "0",  # a snapshot after every step: a killed driver repeats no finished trial
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the old engine is silent at verbose=0
}


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """The trials of one Tune run. Resources are the run's."""

    trainable: type[tune.Trainable]
    settings: dict[str, Any]  # what goes under the config key `settings` of every trial
    metric: str
    mode: str
    total: int  # how many trainings there are: at most with a searcher, exactly without
    searcher: Callable[[], ArchraySearcher] | None = None  # makes a fresh one; None where `keys` say all
    keys: dict[str, Any] = field(default_factory=dict)  # of every trial's configuration, `tune.grid_search` among them
    scheduler: Callable[[], TrialScheduler] | None = None  # makes a fresh one
    at_most: int | None = None  # trials at the same time, where the resources hold more
    fixed: bool = False  # their number is kept with the stage when it begins: suggestions depend on it
    # Whether there is a number at all: a trial that a scheduler has paused counts as one in flight, so a limit could
    # keep the others from starting.
    limited: bool = True
    # Whether trials go on after an interruption: Tune saves no scheduler's state, and with one they are begun anew.
    resumes: bool = True


@dataclass(frozen=True)
class TuneRun:
    """A Tune run that has ended, in its folder."""

    folder: Folder
    plan: TrialPlan
    results: ResultGrid

    @cached_property
    def trials(self) -> pd.DataFrame:
        return trial_table(self.ended)

    @cached_property
    def curves(self) -> pd.DataFrame:
        return curve_table(self.folder, self.ended)

    @property
    def ended(self) -> list[Result]:
        return [self.results[number] for number in range(len(self.results))]  # a `ResultGrid` iterates by index only

    @property
    def failures(self) -> str:
        """The distinct reasons for which trials failed, in one line."""
        return failure_reasons(self.trials)

    def checkpoint(self, result: Result) -> Checkpoint | None:
        """The last checkpoint of a trial; None of one that failed."""
        failed = result.error is not None or (result.metrics or {}).get("failure") is not None
        return None if failed else result.checkpoint

    def searcher(self) -> Any:
        """The searcher with the state it ended with."""
        assert self.plan.searcher is not None  # whoever asks has planned one
        searcher = self.plan.searcher()
        with tempfile.TemporaryDirectory() as scratch:
            for name, state in read_snapshot(self.folder).items():
                Folder(scratch).write_bytes(name, state)
            searcher.restore_from_dir(scratch)
        return searcher

    def write_tables(self, folder: Folder, *, keep_earlier: bool = False) -> None:
        """Writes the tables of trials and curves into the folder of a stage.

        keep_earlier: the rows of other trials that the files hold stay, for a search that was extended.
        """
        for name, table in ((TRIALS, self.trials), (CURVES, self.curves)):
            if keep_earlier and folder.exists(name):
                earlier = folder.read_parquet(name)
                others = earlier[~earlier["trial_id"].isin(table.get("trial_id", []))]
                table = pd.concat([others, table], ignore_index=True)
            folder.write_parquet(name, table)


@dataclass(frozen=True, kw_only=True)
class TuneStage(Stage[ReadsT]):
    """Runs the trials of a plan in `tune-DIGEST`, named by the stage's inputs, and writes their tables.

    `plan` is given the folder of the Tune run. It is None where there is nothing to train, once it has said why and has
    written what `finish` would have: the stage's own files, of what the trials have shown.
    """

    plan: Callable[[Context[ReadsT], Folder], TrialPlan | None]
    finish: Callable[[Context[ReadsT], Folder, TuneRun], None] = lambda context, folder, run: None
    search: bool = False  # whether this is the Tune run that the caller's options are for
    extends: bool = False  # whether the rows of the trials before stay in the tables when the search is extended

    def execute(self, context: Context[ReadsT], folder: Folder) -> None:
        tuned = folder / f"tune-{digest(self.inputs(context))}"
        plan = self.plan(context, tuned)
        if plan is None:
            return
        run = run_trials(tuned, plan, context, search=self.search)
        context.grids["search" if self.search else self.name] = run.results
        run.write_tables(folder, keep_earlier=self.extends)
        self.finish(context, folder, run)


def run_trials(folder: Folder, plan: TrialPlan, context: Context[Any], *, search: bool = False) -> TuneRun:
    """Runs the trials of a plan in `folder`, or what is left of them if it was begun before.

    Of what the caller told Tune, stages other than the `search` take only the callbacks.
    Raises: RunInterrupted if it ended before its trials did; TrialCrashed if all failed, and processes died of it.
    """
    for name, value in TUNE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    resources: ResourceSettings = context.config.resources
    cpus, gpus = resources.cpus_per_trial, resources.gpus()
    options = context.tune_options if search else TuneOptions(callbacks=context.tune_options.callbacks)
    at_a_time = _at_a_time(folder, plan, resources)
    several = "as many trials" if at_a_time is None else "1 trial" if at_a_time == 1 else f"{at_a_time} trials"
    context.say(f"{several} at a time{' as fit' * (at_a_time is None)}, {cpus:g} CPUs and {gpus:g} GPUs each")
    if not plan.resumes and folder.exists():
        folder.set_aside()
        context.say("the trials begin anew: Tune does not save what their scheduler had decided")
    if crashed_trials(folder, trial_statuses(folder)):
        folder.set_aside()
        context.say("the trials begin anew: their processes had crashed")
    trainable = tune.with_resources(plan.trainable, {"cpu": cpus, "gpu": gpus})
    param_space = {"settings": plan.settings, **plan.keys}
    with stop_gracefully(context.console, "every running trial has saved its next checkpoint") as interrupt:
        if restore_state(folder):  # without a whole state `Tuner.restore` would begin anew, and say nothing
            tuner = Tuner.restore(folder.uri, trainable=trainable, param_space=param_space)
        else:
            tuner = Tuner(
                trainable,
                param_space=param_space,
                tune_config=_tune_config(plan, options, at_a_time),
                run_config=_run_config(folder, plan, options),
            )
        with quiet_deaths():
            results = tuner.fit()
        requested = interrupt.requested
    _check_ended(folder, plan, results, requested)
    check_crashes(folder, trial_statuses(folder), f"archray resume {context.run.folder}")
    return TuneRun(folder, plan, results)


def _at_a_time(folder: Folder, plan: TrialPlan, resources: ResourceSettings) -> int | None:
    """Trials at the same time; None: as many as find their resources free."""
    if not plan.limited:
        return None
    if not plan.fixed:
        return concurrency(resources, limit=plan.at_most)
    stage = folder.parent
    if not stage.exists(CONCURRENCY):
        stage.write_json(CONCURRENCY, concurrency(resources, limit=plan.at_most))
    return int(stage.read_json(CONCURRENCY))


def _tune_config(plan: TrialPlan, options: TuneOptions, at_a_time: int | None) -> TuneConfig:
    given = options.tune_config or TuneConfig(reuse_actors=True)
    return replace(
        given,
        metric=plan.metric,
        mode=plan.mode,
        search_alg=plan.searcher() if plan.searcher else None,
        scheduler=plan.scheduler() if plan.scheduler else given.scheduler,
        num_samples=-1 if plan.searcher else 1,
        max_concurrent_trials=given.max_concurrent_trials or at_a_time,
        time_budget_s=options.time_budget_s or given.time_budget_s,
    )


def _run_config(folder: Folder, plan: TrialPlan, options: TuneOptions) -> RunConfig:
    given = options.run_config or RunConfig(verbose=0)
    # Tune's own default is none, which a caller who says nothing of failures does not mean.
    no_word = given.failure_config == FailureConfig()
    parent, _, name = folder.uri.rstrip("/").rpartition("/")
    return replace(
        given,
        name=name,
        storage_path=parent,
        failure_config=FailureConfig(max_failures=MAX_FAILURES) if no_word else given.failure_config,
        checkpoint_config=CheckpointConfig(
            checkpoint_frequency=1, num_to_keep=KEPT_CHECKPOINTS, checkpoint_at_end=True
        ),
        callbacks=[
            *(given.callbacks or []),
            *options.callbacks,
            ResultLog(),
            KeepSnapshot(),
            StopAtCheckpoint(),
            FailureLog(),
            TrialProgress(name=parent.rpartition("/")[2], total=plan.total, metric=plan.metric, mode=plan.mode),
        ],
    )


def _check_ended(folder: Folder, plan: TrialPlan, results: ResultGrid, interrupted: bool) -> None:
    """That `fit()` returned proves nothing: it also returns after an interrupt."""
    statuses = trial_statuses(folder)
    # What a scheduler stops while it is paused, Tune goes on to save as PAUSED (seen in 2.60).
    ended_as = ("TERMINATED", "ERROR") if plan.scheduler is None else ("TERMINATED", "ERROR", "PAUSED")
    running = [status for status in statuses if status not in ended_as]
    expected = plan.total if plan.searcher is None else 1
    if interrupted or running or len(results) < expected:
        ended = len(statuses) - len(running)
        raise RunInterrupted(f"stopped with {ended} of at most {plan.total} trials ended; nothing of them is lost")
