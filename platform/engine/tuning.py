"""A stage that is one Tune run: start or resume it, and read it back."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd
from ray import tune
from ray.tune.search import Searcher

from archray.cluster.ray_compat import process_wide
from archray.cluster.settings import ResourceSettings, concurrency, unused_share
from archray.errors import DamagedFile, RunInterrupted
from archray.files import Folder
from archray.platform.durable.callbacks import unread_results
from archray.platform.durable.failed_trials import (
    Failure,
    check_crashes,
    crashed_trials,
    quiet_deaths,
    retried_memory_kills,
)
from archray.platform.durable.interrupt import stop_gracefully
from archray.platform.durable.results import LoggedResult, Results
from archray.platform.durable.session import begin
from archray.platform.engine import trial_plan, trial_tables
from archray.platform.engine.run_costs import has_costs, with_costs
from archray.platform.engine.settings import TuneOptions
from archray.platform.engine.stage import Context, ReadsT, Stage, whole_run
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import Rerun
from archray.platform.run.layout import CURVES, TRIALS, command
from archray.platform.run.manifest import digest
from archray.platform.run.run_summary import written_files
from archray.platform.run.trial_log import LoggedRun, read_log
from archray.plurals import count
from archray.searchers.base import ArchraySearcher

CONCURRENCY = "concurrency.json"
TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the log has the results
    "TUNE_RESTORE_RETRY_NUM": "2",  # the number of kept checkpoints, see `CheckpointTrouble`
    "RAY_AIR_NEW_OUTPUT": "0",  # the old engine is silent at verbose=0
}


@dataclass(frozen=True)
class TuneRun:
    """A finished Tune run in its folder."""

    folder: Folder
    plan: TrialPlan
    results: Results
    last_searcher: Searcher  # in its last state
    reruns: Mapping[str, Rerun] = field(default_factory=dict)  # reruns of trials that ran out of memory, by trial id

    @cached_property
    def trials(self) -> pd.DataFrame:
        """A row per trial, in the order of suggestion."""
        return trial_tables.rerun_trials(list(self.results), self.reruns)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """A row per trial and epoch."""
        return trial_tables.rerun_curves(list(self.results), self.reruns)

    @property
    def epochs(self) -> pd.DataFrame:
        """A row per trial and epoch with all entries of its result, lists included."""
        return trial_tables.epochs_of([result.trial for result in self.ended])

    @property
    def ended(self) -> list[LoggedResult]:
        """The last result of each trial, including reruns."""
        return trial_tables.last_results(list(self.results), self.reruns)

    @property
    def failures(self) -> str:
        """The distinct reasons of failed trials, in one line."""
        return trial_tables.failure_reasons(self.trials)

    def checkpoint(self, result: LoggedResult) -> tune.Checkpoint | None:
        """Returns the last checkpoint of a trial; None for a failed trial.

        The plan sets `reads_checkpoints`; otherwise ended trials have no checkpoints.
        """
        failed = result.error is not None or (result.metrics or {}).get("failure") is not None
        return None if failed else result.checkpoint

    def searcher(self) -> Any:
        """The searcher in its last state, with the results of reruns."""
        if isinstance(self.last_searcher, ArchraySearcher):
            trial_tables.enter_reruns(self.last_searcher.ledger, self.reruns, self.plan.metric)
        return self.last_searcher

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
        read_log(self._tuned(context))

    def execute(self, context: Context[ReadsT], folder: Folder) -> None:
        tuned = self._tuned(context)
        plan = self.plan(context, tuned)
        if plan is not None and plan.searcher is not None and plan.before >= plan.total and read_log(tuned) is None:
            context.say("trials restart, since the log of their Tune run is missing or empty")
            for name in written_files(folder):  # the searcher would continue from its end
                folder.delete(name)
            plan = self.plan(context, tuned)
        if plan is None:
            return
        if self.extends:
            plan = replace(plan, last=_last_trial(folder))
        run = run_trials(tuned, plan, context, search=self.search)
        ended, options = plan.before + len(run.trials), context.tune_options
        is_limited = options.time_budget_s is not None or options.tune_config is not None
        if plan.searcher is not None and ended < plan.total and not is_limited:
            context.say(f"{count(ended, 'trial')} (requested: {plan.total:,}): the search has no other suggestion")
        run.write_tables(folder, context.say, keep_earlier=self.extends)
        if has_costs(context):
            folder.write_parquet(TRIALS, with_costs(context, folder.read_parquet(TRIALS), fill=True))
        self.finish(context, folder, run)
        context.grids["search" if self.search else self.name] = run.results


def _last_trial(stage: Folder) -> int:
    """Returns the largest id of a trial in the table of a stage; 0 if there is none, or the table is damaged."""
    try:
        return (
            max(map(int, stage.read_parquet(TRIALS, "trial_id")["trial_id"]), default=0) if stage.exists(TRIALS) else 0
        )
    except DamagedFile:  # `write_tables` drops its rows and says so
        return 0


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
    run, share = _tuned(folder, plan, context, resources, options_of_stage), resources.gpus()
    check_crashes([result.trial for result in run.results], command("resume", whole_run(context.run.folder)))
    rerun_options = TuneOptions(options.run_config, None, options.callbacks)
    while 0 < share < 1 and (short := trial_tables.short_of_memory(run.ended)):
        share = trial_tables.larger_share(share)
        context.say(f"{count(len(short), 'trial')} ran out of memory; rerunning with {count(share, 'GPU')} each")
        again = folder.parent / f"{folder.name}-again-{share:g}"
        more = resources.model_copy(update={"gpus_per_trial": share, "trials_per_gpu": None})
        rerun = _tuned(again, trial_tables.rerun_plan(plan, short), context, more, rerun_options)
        run = replace(run, reruns={**run.reruns, **trial_tables.reruns_of(rerun.results, share)})
    return run


def _tuned(
    folder: Folder, plan: TrialPlan, context: Context[Any], resources: ResourceSettings, options: TuneOptions
) -> TuneRun:
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
    logged = read_log(folder)
    earlier = list(logged.trials.values()) if logged is not None else []
    if not plan.resumes and logged is not None:
        folder.set_aside()
        context.say("trials restart, since the decisions of their scheduler cannot be replayed")
    elif plan.searcher is not None and crashed_trials(earlier):
        folder.set_aside()
        context.say("trials restart, since their processes crashed")
    waits = "every running trial has saved its next checkpoint"
    with (
        stop_gracefully(context.console, waits) as interrupt,
        quiet_deaths(),
        retried_memory_kills(),
        unread_results(),
    ):
        counts: dict[str, Any] = {"metric": plan.metric, "mode": plan.mode, "total": plan.total, "before": plan.before}
        counts["last"] = max(plan.before, plan.last)
        with begin(folder, **counts) as session:
            for trial in [] if plan.searcher is not None else list(earlier):
                # With a searcher they stay ended, since later suggestions may depend on their end.
                if trial.error and Failure.of(trial).processes and trial.trial_id not in session.open:
                    session.reopen(trial.trial_id)
            labels = context.labels(folder.parent.name)
            tuner, searcher = trial_plan.tuner_of(session, plan, options, labels, resources, at_a_time)
            tuner.fit()
            last_searcher = searcher.replayed()
    results = Results(read_log(folder) or LoggedRun(), folder, plan.metric, plan.mode)
    _check_ended(plan, results, interrupt.requested)
    return TuneRun(folder, plan, results, last_searcher)


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


def _check_ended(plan: TrialPlan, results: Results, interrupted: bool) -> None:
    """Checks that all trials ended; `fit()` also returns after an interrupt. Raises: the errors of `run_trials`."""
    ended = results.num_terminated + results.num_errors
    expected = plan.total if plan.searcher is None else 1
    if interrupted or ended < len(results) or len(results) < expected:
        of = f"{plan.before + ended} of at most {count(plan.total, 'trial')}"
        raise RunInterrupted(f"stopped after {of} ended; their results are saved")
