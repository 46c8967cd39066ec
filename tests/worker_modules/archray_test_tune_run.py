"""Runs trials in a Tune run with a log, as a stage of a run does."""

from __future__ import annotations

from pathlib import Path

from ray import tune

from archray.cluster.metrics import RunLabels
from archray.cluster.settings import ResourceSettings
from archray.files import Folder
from archray.platform.durable.callbacks import unread_results
from archray.platform.durable.failed_trials import quiet_deaths
from archray.platform.durable.results import Results
from archray.platform.durable.session import begin
from archray.platform.engine.settings import TuneOptions
from archray.platform.engine.trial_plan import TrialPlan, tuner_of
from archray.platform.engine.tuning import tune_environment
from archray.platform.run.trial_log import LoggedRun, read_log


def run_plan(
    folder: Path, plan: TrialPlan, *callbacks: tune.Callback, stage: str = "search", keep: bool = False
) -> Results:
    """Runs or resumes the trials of a plan in `folder`, one at a time.

    Args:
        keep: whether all checkpoints of ended trials remain.
    """
    counts = {"metric": plan.metric, "mode": plan.mode, "total": plan.total, "before": plan.before}
    resources = ResourceSettings(gpus_per_trial=0, keep_checkpoints=keep)
    with quiet_deaths(), unread_results(), tune_environment(), begin(Folder(folder), **counts) as session:
        options = TuneOptions(callbacks=list(callbacks))
        tuner, searcher = tuner_of(session, plan, options, RunLabels(stage=stage), resources, at_a_time=1)
        tuner.fit()
        searcher.replayed()
    return Results(read_log(Folder(folder)) or LoggedRun(), Folder(folder), plan.metric, plan.mode)
