"""The planned trials of one Tune run, their names, and the arguments that Tune receives."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
from ray.tune.schedulers import TrialScheduler

from archray.cluster.metrics import RunLabels, RunMetrics
from archray.cluster.settings import ResourceSettings
from archray.files import Folder
from archray.platform.engine.damaged_storage import CheckpointTrouble
from archray.platform.engine.failed_trials import FailureLog
from archray.platform.engine.interrupt import StopAtCheckpoint
from archray.platform.engine.progress import TrialProgress
from archray.platform.engine.result_log import KeepSnapshot, ResultLog, experiment_folder
from archray.platform.engine.tune_options import TuneOptions
from archray.searchers.base import ArchraySearcher

# Trial names, such as `hnas-search-003-seed-12`, which trackers and Ray's dashboard show.


@dataclass(frozen=True)
class TrialName:
    """Makes the name of a trial. Tune asks once, and keeps the answer with the trial.

    Tune asks before it evaluates functions in a configuration (`tune.sample_from`). The name leaves out their keys,
    for which the configuration holds placeholders; the trial's number is unique without them.

    Args:
        stage: that the trial belongs to.
        first: the number of the first trial.
        run: that the stage belongs to; a slash in it becomes a dash.
        searched: whether a searcher suggests the trials: Tune counts those from 1, and a grid's from 0.
    """

    stage: str
    first: int
    searched: bool
    run: str = ""

    def __call__(self, trial: Any) -> str:
        counted = re.match(r"\d+", trial.experiment_tag)
        assert counted is not None  # what Tune calls a trial begins with its number
        words = [
            *filter(None, [self.run.replace("/", "-")]),
            self.stage,
            f"{self.first + int(counted[0]) - self.searched:03d}",
        ]
        keys = ("round", "replica") if "round" in trial.config else ("seed",)
        values = {key: trial.config[key] for key in keys if isinstance(trial.config.get(key), int)}
        words += [str(word) for pair in values.items() for word in pair]
        return "-".join(words)


@dataclass(frozen=True)
class TrialFolder(TrialName):
    """Makes the name of a trial's folder: another one where a trial that a kill has lost has left its own."""

    def __call__(self, trial: Any) -> str:
        name, run = super().__call__(trial), experiment_folder(trial)
        attempts = (name if attempt == 1 else f"{name}-again-{attempt}" for attempt in range(1, 10**6))
        return next(unused for unused in attempts if not (run / unused).exists())


MAX_FAILURES = 2  # a lost worker or node is tried again this often; NaN and bad architectures are results
KEPT_CHECKPOINTS = 2  # with one, a kill can leave a snapshot that names a checkpoint already deleted


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """The trials of one Tune run. Resources are the run's."""

    trainable: type[tune.Trainable]
    settings: dict[str, Any]  # what goes under the config key `settings` of every trial
    metric: str
    mode: str
    total: int  # how many trainings there are: at most with a searcher, exactly without
    before: int = 0  # of these, done before this Tune run: the searcher knows their results
    searcher: Callable[[], ArchraySearcher] | None = None  # makes a fresh one; None where `keys` say all
    keys: dict[str, Any] = field(default_factory=dict)  # of every trial's configuration, `tune.grid_search` among them
    scheduler: Callable[[], TrialScheduler] | None = None  # makes a fresh one
    workers: int = 1  # of each training; each takes what the resources say of a trial
    at_most: int | None = None  # trials at the same time, where the resources hold more
    fixed: bool = False  # their number is kept with the stage when it begins: suggestions depend on it
    # Whether there is a number at all: a trial that a scheduler has paused counts as one in flight, so a limit could
    # keep the others from starting.
    limited: bool = True
    # Whether trials go on after an interruption: Tune saves no scheduler's state, and with one they are begun anew.
    resumes: bool = True


def trial_resources(plan: TrialPlan, resources: ResourceSettings) -> dict[str, float] | tune.PlacementGroupFactory:
    """What a trial takes. One of several workers has a bundle for each, after an empty one for itself."""
    cpus, gpus = resources.cpus_per_trial, resources.gpus()
    if plan.workers == 1:
        return {"cpu": cpus, "gpu": gpus, **resources.custom}
    return tune.PlacementGroupFactory([{}, *[{"CPU": cpus, "GPU": gpus, **resources.custom}] * plan.workers])


def tune_config_of(plan: TrialPlan, options: TuneOptions, labels: RunLabels, at_a_time: int | None) -> TuneConfig:
    """The caller's `TuneConfig`, with what the plan says in it. at_a_time: trials, where the caller names no number."""
    given = options.tune_config or TuneConfig(reuse_actors=True)
    words: dict[str, Any] = {
        "stage": labels.stage,
        "first": plan.before + 1,
        "searched": plan.searcher is not None,
    }
    return replace(
        given,
        metric=plan.metric,
        mode=plan.mode,
        search_alg=plan.searcher() if plan.searcher else None,
        scheduler=plan.scheduler() if plan.scheduler else given.scheduler,
        num_samples=-1 if plan.searcher else 1,
        max_concurrent_trials=given.max_concurrent_trials or at_a_time,
        trial_name_creator=given.trial_name_creator or TrialName(**words, run=labels.run),
        trial_dirname_creator=given.trial_dirname_creator or TrialFolder(**words),
        time_budget_s=options.time_budget_s or given.time_budget_s,
    )


def run_config_of(folder: Folder, plan: TrialPlan, options: TuneOptions, labels: RunLabels, searcher: Any) -> RunConfig:
    """The caller's `RunConfig`, for a Tune run in `folder`, with the callbacks that keep what a resume needs.

    searcher: of the Tune run, for its seconds; None if it has none.
    """
    given = options.run_config or RunConfig(verbose=0)
    # Tune's own default is none, which a caller who says nothing of failures does not mean.
    no_word = given.failure_config == FailureConfig()
    return replace(
        given,
        name=folder.name,
        storage_path=folder.parent.uri,
        failure_config=FailureConfig(max_failures=MAX_FAILURES) if no_word else given.failure_config,
        checkpoint_config=CheckpointConfig(
            checkpoint_frequency=1, num_to_keep=KEPT_CHECKPOINTS, checkpoint_at_end=True
        ),
        callbacks=[
            *(given.callbacks or []),
            *options.callbacks,
            KeepSnapshot(),
            ResultLog(),
            StopAtCheckpoint(),
            FailureLog(),
            CheckpointTrouble(),
            RunMetrics(labels, plan.metric, plan.mode, searcher),
            TrialProgress(labels.stage, plan.total, plan.before, plan.metric, plan.mode),
        ],
    )
