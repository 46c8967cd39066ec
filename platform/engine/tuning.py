"""A stage that is one Tune run: begun, or restored where it was left, and read back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from ray import tune
from ray.tune import Checkpoint, Result, ResultGrid, Tuner

from archray.cluster.resources import ResourceSettings, concurrency
from archray.errors import RunInterrupted
from archray.files import Folder
from archray.platform.engine.failed_trials import check_crashes, crashed_trials, quiet_deaths
from archray.platform.engine.interrupt import stop_gracefully
from archray.platform.engine.result_log import restore_state, trial_statuses, write_plan
from archray.platform.engine.run_record import whole_run
from archray.platform.engine.stage import Context, ReadsT, Stage
from archray.platform.engine.trial_plan import TrialPlan, run_config_of, tune_config_of
from archray.platform.engine.trial_tables import curve_table, failure_reasons, trial_table
from archray.platform.engine.tune_options import TuneOptions
from archray.platform.run.layout import CURVES, TRIALS
from archray.platform.run.manifest import digest
from archray.platform.run.tune_snapshot import read_snapshot
from archray.plurals import count

CONCURRENCY = "concurrency.json"
TUNE_ENVIRONMENT = {
    "TUNE_GLOBAL_CHECKPOINT_S": "0",  # a snapshot after every step: a killed driver repeats no finished trial
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the old engine is silent at verbose=0
}


@dataclass(frozen=True)
class TuneRun:
    """A Tune run that has ended, in its folder."""

    folder: Folder
    plan: TrialPlan
    results: ResultGrid

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row a trial, in the order of suggestion: Tune restores trials with the newest first."""
        table = trial_table(self.ended)
        if self.plan.searcher is None or table.empty:
            return table
        places = {record.trial_id: place for place, record in enumerate(self.searcher().records())}
        return table.sort_values("trial_id", key=lambda ids: ids.map(places), kind="stable", ignore_index=True)

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
    several = "as many trials" if at_a_time is None else count(at_a_time, "trial")
    each = f"{count(cpus, 'CPU')} and {count(gpus, 'GPU')} each"
    context.say(f"{several} at a time{' as fit' * (at_a_time is None)}, {each}")
    if not plan.resumes and folder.exists():
        folder.set_aside()
        context.say("the trials begin anew: Tune does not save what their scheduler had decided")
    if crashed_trials(folder, trial_statuses(folder)):
        folder.set_aside()
        context.say("the trials begin anew: their processes had crashed")
    trainable = tune.with_resources(plan.trainable, {"cpu": cpus, "gpu": gpus})
    param_space = {"settings": plan.settings, **plan.keys}
    with stop_gracefully(context.console, "every running trial has saved its next checkpoint") as interrupt:
        write_plan(folder, metric=plan.metric, mode=plan.mode, total=plan.total, before=plan.before)
        if restore_state(folder):  # without a whole state `Tuner.restore` would begin anew, and say nothing
            tuner = Tuner.restore(folder.uri, trainable=trainable, param_space=param_space)
        else:
            tuner = Tuner(
                trainable,
                param_space=param_space,
                tune_config=tune_config_of(folder, plan, options, at_a_time),
                run_config=run_config_of(folder, plan, options),
            )
        with quiet_deaths():
            results = tuner.fit()
        requested = interrupt.requested
    _check_ended(folder, plan, results, requested)
    check_crashes(folder, trial_statuses(folder), f"archray resume {whole_run(context.run.folder)}")
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


def _check_ended(folder: Folder, plan: TrialPlan, results: ResultGrid, interrupted: bool) -> None:
    """That `fit()` returned proves nothing: it also returns after an interrupt."""
    statuses = trial_statuses(folder)
    # What a scheduler stops while it is paused, Tune goes on to save as PAUSED (seen in 2.60).
    ended_as = ("TERMINATED", "ERROR") if plan.scheduler is None else ("TERMINATED", "ERROR", "PAUSED")
    running = [status for status in statuses if status not in ended_as]
    expected = plan.total if plan.searcher is None else 1
    if interrupted or running or len(results) < expected:
        ended = plan.before + len(statuses) - len(running)
        raise RunInterrupted(
            f"stopped with {ended} of at most {count(plan.total, 'trial')} ended; nothing of them is lost"
        )
