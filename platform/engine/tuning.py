"""A stage that is one Tune run: start or restore it, and read it back."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd
from ray import tune

from archray.cluster.ray_compat import (
    ACTOR_CACHE,
    QUEUE_UPDATE,
    REUSED_ACTOR,
    TRIAL_CHECKPOINT,
    TRIAL_ERROR,
    TRIAL_FRAMES,
    TRIAL_ID,
    TRIAL_STATES,
    TUNER_FILE,
    check_called,
    process_wide,
)
from archray.cluster.settings import ResourceSettings, concurrency, unused_share
from archray.errors import DamagedFile, IncompatibleRay, RunInterrupted, tested_versions
from archray.files import Folder
from archray.platform.engine import trial_plan, trial_tables
from archray.platform.engine.failed_trials import check_crashes, crashed_trials, quiet_deaths, retried_memory_kills
from archray.platform.engine.interrupt import stop_gracefully
from archray.platform.engine.restore import read_state, restore_state
from archray.platform.engine.result_log import (
    distinct_ids,
    line_writer,
    reduced_saves,
    trial_statuses,
    with_frames,
    write_plan,
)
from archray.platform.engine.run_costs import has_costs, with_costs
from archray.platform.engine.settings import TuneOptions
from archray.platform.engine.stage import Context, ReadsT, Stage, whole_run
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import Rerun, trial_id_of
from archray.platform.engine.tune_memory import idle_actors, return_memory
from archray.platform.run.layout import CURVES, TRIALS, command
from archray.platform.run.manifest import digest
from archray.platform.run.run_summary import written_files
from archray.platform.run.tune_snapshot import read_snapshot
from archray.plurals import count
from archray.searchers.base import ArchraySearcher

CONCURRENCY = "concurrency.json"
TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # `ResultLog` writes the results
    "TUNE_RESTORE_RETRY_NUM": "2",  # the number of kept checkpoints, see `CheckpointTrouble`
    "RAY_AIR_NEW_OUTPUT": "0",  # the old engine is silent at verbose=0
}


@dataclass(frozen=True)
class TuneRun:
    """A finished Tune run in its folder."""

    folder: Folder
    plan: TrialPlan
    results: tune.ResultGrid
    reruns: Mapping[str, Rerun] = field(default_factory=dict)  # reruns of trials that ran out of memory, by trial id

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row per trial, in the order of suggestion."""
        return trial_tables.rerun_trials(self._first, self.reruns)

    @cached_property
    def curves(self) -> pd.DataFrame:
        return trial_tables.rerun_curves(self.folder, self._first, self.reruns)

    @property
    def ended(self) -> list[tune.Result]:
        """The last result of each trial, including reruns."""
        return trial_tables.last_results(self._first, self.reruns)

    @cached_property
    def _first(self) -> list[tune.Result]:
        """Results in the order of suggestion; Tune restores the newest trials first, and a grid in any order."""
        results = [self.results[number] for number in range(len(self.results))]  # a `ResultGrid` iterates by index
        if self.plan.searcher is None:
            return sorted(results, key=trial_id_of)  # the ids are numbers
        places = {record.trial_id: place for place, record in enumerate(self.searcher().records())}
        return sorted(results, key=lambda result: places.get(trial_id_of(result), len(places)))

    @property
    def failures(self) -> str:
        """The distinct reasons of failed trials, in one line."""
        return trial_tables.failure_reasons(self.trials)

    def checkpoint(self, result: tune.Result) -> tune.Checkpoint | None:
        """Returns the last checkpoint of a trial; None for a failed trial.

        The plan sets `reads_checkpoints`; otherwise ended trials have no checkpoints.
        """
        failed = result.error is not None or (result.metrics or {}).get("failure") is not None
        return None if failed else result.checkpoint

    def searcher(self) -> Any:
        """The searcher in its last state, with the results of reruns."""
        assert self.plan.searcher is not None  # callers planned a searcher
        searcher = self.plan.searcher()
        with tempfile.TemporaryDirectory() as scratch:
            for name, state in read_snapshot(self.folder).items():
                Folder(scratch).write_bytes(name, state)
            searcher.restore_from_dir(scratch)
        if isinstance(searcher, ArchraySearcher):
            trial_tables.enter_reruns(searcher.ledger, self.reruns, self.plan.metric)
        return_memory()
        return searcher

    def write_tables(self, folder: Folder, say: Callable[[str], None], *, keep_earlier: bool = False) -> None:
        """Writes the tables of trials and curves into the folder of a stage.

        Args:
            say: prints a line for the user.
            keep_earlier: whether to keep the rows of other trials in undamaged files, for an extended search.
        """
        for name, table in ((TRIALS, self.trials), (CURVES, self.curves)):
            if keep_earlier and folder.exists(name):
                try:
                    earlier = folder.read_parquet(name, "trial_id")
                except DamagedFile as error:
                    say(f"dropping the rows of earlier trials, since {folder}/{name} is damaged ({error.reason})")
                else:
                    others = earlier[~earlier["trial_id"].isin(table.get("trial_id", []))]
                    table = pd.concat([others, table], ignore_index=True)
            folder.write_parquet(name, table)


@dataclass(frozen=True, kw_only=True)
class TuneStage(Stage[ReadsT]):
    """Runs the trials of a plan in `tune-DIGEST`, named by the stage's inputs, and writes their tables.

    `plan` receives the folder of the Tune run. If there is nothing to train, it prints the reason, writes the files
    that `finish` would write, and returns None.
    """

    plan: Callable[[Context[ReadsT], Folder], TrialPlan | None]
    finish: Callable[[Context[ReadsT], Folder, TuneRun], None] = lambda context, folder, run: None
    search: bool = False  # whether the caller's options apply to this Tune run
    extends: bool = False  # whether an extended search keeps the rows of earlier trials in the tables

    def _tuned(self, context: Context[ReadsT]) -> Folder:
        return context.folder(self.name) / f"tune-{digest(self.inputs(context))}"

    def check_state(self, context: Context[ReadsT]) -> None:
        with suppress(ImportError, IncompatibleRay):  # the Tune run reports them
            read_state(self._tuned(context))

    def execute(self, context: Context[ReadsT], folder: Folder) -> None:
        tuned = self._tuned(context)
        plan = self.plan(context, tuned)
        if plan is not None and plan.searcher is not None and plan.before >= plan.total and not tuned.exists():
            context.say("trials restart, since the folder of their Tune run is missing")
            for name in written_files(folder):  # the searcher would continue from its end
                folder.delete(name)
            plan = self.plan(context, tuned)
        if plan is None:
            return
        run = run_trials(tuned, plan, context, search=self.search)
        ended, options = plan.before + len(run.trials), context.tune_options
        is_limited = options.time_budget_s is not None or options.tune_config is not None
        if plan.searcher is not None and ended < plan.total and not is_limited:
            context.say(f"{count(ended, 'trial')} (requested: {plan.total:,}): the search has no other suggestion")
        run.write_tables(folder, context.say, keep_earlier=self.extends)
        if has_costs(context):
            folder.write_parquet(TRIALS, with_costs(context, folder.read_parquet(TRIALS), fill=True))
        self.finish(context, folder, run)
        context.grids["search" if self.search else self.name] = with_frames(run.results, tuned)


@process_wide
@contextmanager
def tune_environment() -> Iterator[None]:
    """Sets the variables of TUNE_ENVIRONMENT in the block, unless the user has set them."""
    variables = {name: value for name, value in TUNE_ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


@tune_environment()
def run_trials(folder: Folder, plan: TrialPlan, context: Context[Any], *, search: bool = False) -> TuneRun:
    """Runs or resumes the trials of a plan in `folder`.

    Trials that ran out of their share of a GPU's memory run again, see `trial_tables`. Stages other than the `search`
    use only the callbacks of the caller's options.

    Raises: RunInterrupted if the Tune run stopped before its trials ended; TrialCrashed if all trials failed, and
    processes died.
    """
    options = context.tune_options
    resources = trial_plan.with_shared_gpus(folder, plan, context, context.config.resources)
    options_of_stage = options if search else TuneOptions(callbacks=options.callbacks)
    results = _tuned(folder, plan, context, resources, options_of_stage)
    check_crashes(folder, trial_statuses(folder), command("resume", whole_run(context.run.folder)))
    run, share = TuneRun(folder, plan, results), resources.gpus()
    rerun_options = TuneOptions(options.run_config, None, options.callbacks)
    while 0 < share < 1 and (short := trial_tables.short_of_memory(run.ended)):
        share = trial_tables.larger_share(share)
        context.say(f"{count(len(short), 'trial')} ran out of memory; rerunning with {count(share, 'GPU')} each")
        again = folder.parent / f"{folder.name}-again-{share:g}"
        more = resources.model_copy(update={"gpus_per_trial": share, "trials_per_gpu": None})
        results = _tuned(again, trial_tables.rerun_plan(plan, short), context, more, rerun_options)
        run = replace(run, reruns={**run.reruns, **trial_tables.reruns_of(results, again, share)})
    return_memory()
    return run


def _tuned(
    folder: Folder, plan: TrialPlan, context: Context[Any], resources: ResourceSettings, options: TuneOptions
) -> tune.ResultGrid:
    """Executes one Tune run of `run_trials`.

    Args:
        options: options of the caller for this Tuner.
    """
    cpus, gpus = resources.cpus_per_trial, resources.gpus()
    at_a_time = _at_a_time(folder, plan, resources)
    trials = "as many trials at a time as fit" if at_a_time is None else f"{count(at_a_time, 'trial')} at a time"
    share = f"{count(cpus, 'CPU')} and {count(gpus, 'GPU')} each"
    if plan.workers > 1:
        share = f"{count(plan.workers, 'worker')} per trial, {share}"
    context.say(f"{trials}, {share}")
    if 0 < gpus < 1 and (idle := unused_share(gpus)) is not None:
        context.say(idle)
    if not plan.resumes and folder.exists():
        folder.set_aside()
        context.say("trials restart, since Tune does not save the decisions of their scheduler")
    if plan.searcher is not None and crashed_trials(
        folder, trial_statuses(folder)
    ):  # else `restore_state` reopens them
        folder.set_aside()
        context.say("trials restart, since their processes crashed")
    trainable = tune.with_resources(plan.trainable, trial_plan.trial_resources(plan, resources))
    # Ray's dashboard shows the class name of an actor; Tune's wrapper has another name.
    trainable.__name__ = trainable.__qualname__ = plan.trainable.__name__
    param_space = {"settings": plan.settings, **plan.keys}
    waits = "every running trial has saved its next checkpoint"
    with (
        stop_gracefully(context.console, waits) as interrupt,
        quiet_deaths(),
        retried_memory_kills(),
        reduced_saves(),
        distinct_ids(),
        line_writer(),
        idle_actors(at_a_time),
    ):
        write_plan(folder, metric=plan.metric, mode=plan.mode, total=plan.total, before=plan.before)
        restored = restore_state(folder, plan)
        if restored:  # with an incomplete state, `Tuner.restore` would silently restart
            tuner = tune.Tuner.restore(folder.uri, trainable=trainable, param_space=param_space)
        else:
            labels = context.labels(folder.parent.name)
            tune_config = trial_plan.tune_config_of(plan, options, labels, at_a_time)
            run_config = trial_plan.run_config_of(
                folder,
                plan,
                options,
                labels,
                tune_config.search_alg,
                keep_checkpoints=resources.keep_checkpoints,
            )
            tuner = tune.Tuner(trainable, param_space=param_space, tune_config=tune_config, run_config=run_config)
            if not folder.exists(TUNER_FILE):  # a resume needs this file
                raise IncompatibleRay(tested_versions(f"Expected Ray Tune to write {TUNER_FILE} in {folder}, got none"))
        results = tuner.fit()
        requested = interrupt.requested
        if not requested:
            check_changes(results, restored, plan.searcher is not None)
    _check_ended(folder, plan, results, requested)
    return results


def check_changes(results: tune.ResultGrid, restored: bool, searcher: bool) -> None:
    """Checks that the Tune run used archray's changes of Tune; a restored run may have had no trial left to start.

    Args:
        searcher: whether the run has a searcher. Without one, Tune numbers the trials.

    Raises: IncompatibleRay if results depend on a change that had no effect.
    """
    check_called(TRIAL_STATES, TRIAL_FRAMES, ACTOR_CACHE)
    new = [] if restored else [results[number] for number in range(len(results))]
    if new and searcher:
        check_called(TRIAL_ID)
    if any(result.error is None for result in new):
        check_called(REUSED_ACTOR, QUEUE_UPDATE)
    if any(result.error is not None for result in new):
        check_called(TRIAL_ERROR)
    if any(result.checkpoint for result in new):
        check_called(TRIAL_CHECKPOINT)


def _at_a_time(folder: Folder, plan: TrialPlan, resources: ResourceSettings) -> int | None:
    """Returns the number of concurrent trials; None: as many as the resources allow."""
    if not plan.limited:
        return None
    if not plan.fixed:
        return concurrency(resources, plan.at_most, plan.workers)
    stage = folder.parent
    if not stage.exists(CONCURRENCY):
        stage.write_json(CONCURRENCY, concurrency(resources, plan.at_most, plan.workers))
    return int(stage.read_json(CONCURRENCY, int))


def _check_ended(folder: Folder, plan: TrialPlan, results: tune.ResultGrid, interrupted: bool) -> None:
    """Checks that all trials ended; `fit()` also returns after an interrupt. Raises: the errors of `run_trials`."""
    statuses = trial_statuses(folder)
    if len(results) > len(statuses) and not interrupted:
        number = f"{len(statuses)} of {count(len(results), 'trial')}"
        raise IncompatibleRay(tested_versions(f"Expected the state of every trial in {folder}, got {number}"))
    # Tune saves a paused trial that its scheduler stops as PAUSED (observed in Ray 2.60).
    ends = ("TERMINATED", "ERROR") if plan.scheduler is None else ("TERMINATED", "ERROR", "PAUSED")
    running = [status for status in statuses if status not in ends]
    expected = plan.total if plan.searcher is None else 1
    if interrupted or running or len(results) < expected:
        ended = plan.before + len(statuses) - len(running)
        raise RunInterrupted(
            f"stopped after {ended} of at most {count(plan.total, 'trial')} ended; their results are saved"
        )
