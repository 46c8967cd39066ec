"""The planned trials of a Tune run, their names, the arguments for Tune, and trials that share a GPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import generate_variants

from archray.cluster.connect import ClusterError
from archray.cluster.metrics import RunLabels, RunMetrics
from archray.cluster.node_checks import check_new_nodes
from archray.cluster.settings import AUTO, ResourceSettings, memory_per_gpu
from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.durable.callbacks import KEEP_ALL, Recorder
from archray.platform.durable.failed_trials import CheckpointTrouble, FailureLog
from archray.platform.durable.interrupt import StopAtCheckpoint
from archray.platform.durable.replay import UNLIMITED, LoggedSearcher, Variants, resumable
from archray.platform.durable.session import Session, log_id
from archray.platform.engine.progress import TrialProgress
from archray.platform.engine.settings import TuneOptions
from archray.platform.engine.stage import Context
from archray.plurals import count
from archray.searchers.base import ArchraySearcher


@dataclass(frozen=True)
class TrialName:
    """Creates the name of a trial, such as `hnas-search-003-seed-12`, for trackers, Ray's dashboard and its folder.

    Args:
        stage: stage of the trial.
        run: run of the stage; a slash in it becomes a dash.
    """

    stage: str
    run: str = ""

    def __call__(self, trial: Any) -> str:
        words = [self.run.replace("/", "-"), self.stage, f"{int(log_id(trial)):03d}"]
        keys = ("round", "replica") if "round" in trial.config else ("seed",)
        values = {key: trial.config[key] for key in keys if isinstance(trial.config.get(key), int)}
        words += [str(word) for pair in values.items() for word in pair]
        return "-".join(filter(None, words))


class SubmissionOrder(FIFOScheduler):
    """Ray Tune's default scheduler, without a scan of all ended trials in each step of Tune."""

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        live = tune_controller.get_live_trials()
        for status in (Trial.PENDING, Trial.PAUSED):
            waiting = {trial for trial in live if trial.status == status}
            if waiting:
                for trial in reversed(tune_controller.get_trials()):  # waiting trials are usually among the last
                    waiting.discard(trial)
                    if not waiting:
                        return trial
        return None


class NewNodes(tune.Callback):
    """Checks nodes that joined during the search, before Tune receives a result of their first trial."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        check_new_nodes()

    on_trial_recover = on_trial_error = on_trial_start


MAX_FAILURES = 2  # retries after a lost worker or node; NaN and invalid architectures are results


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """The trials of one Tune run. The configuration of the run has their resources."""

    trainable: type[tune.Trainable]
    settings: dict[str, Any]  # the value of the config key `settings` of every trial
    metric: str
    mode: str
    total: int  # number of training runs: the maximum with a searcher, the exact number without
    before: int = 0  # training runs done before this Tune run; the searcher has their results
    last: int = 0  # largest id of a trial of the stage before this Tune run, if not `before`
    searcher: Callable[[], ArchraySearcher] | None = None  # creates a searcher; None if `keys` are complete
    keys: dict[str, Any] = field(default_factory=dict)  # keys of all configurations, with `tune.grid_search`
    scheduler: Callable[[], TrialScheduler] | None = None  # creates a scheduler
    workers: int = 1  # workers per training run; each worker takes the resources of a trial
    at_most: int | None = None  # maximum number of concurrent trials
    fixed: bool = False  # whether the concurrency stays constant in the stage, since suggestions depend on it
    # Whether the concurrency is limited. A paused trial of a scheduler counts as running, so that a limit could prevent
    # other trials from starting.
    limited: bool = True
    # Whether trials resume after an interruption. With a scheduler whose decisions cannot be replayed, all restart.
    resumes: bool = True
    reads_checkpoints: bool = False  # whether the stage reads the last checkpoint of a trial after the Tune run


def trial_resources(plan: TrialPlan, resources: ResourceSettings) -> dict[str, float] | tune.PlacementGroupFactory:
    """Returns the resources of a trial: with several workers, an empty bundle for the trial and one per worker."""
    cpus, gpus = resources.cpus_per_trial, resources.gpus()
    if plan.workers == 1:
        return {"cpu": cpus, "gpu": gpus, **resources.custom}
    return tune.PlacementGroupFactory([{}, *[{"CPU": cpus, "GPU": gpus, **resources.custom}] * plan.workers])


def logged_searcher(plan: TrialPlan, scheduler: TrialScheduler | None) -> LoggedSearcher:
    """Returns the searcher of a Tune run: the one of the plan, or one for the trials of its `keys`."""
    if plan.searcher is None:
        return LoggedSearcher(Variants(plan.keys), scheduler=scheduler)
    return LoggedSearcher(plan.searcher(), fixed=plan.keys, scheduler=scheduler)


def tuner_of(
    session: Session,
    plan: TrialPlan,
    options: TuneOptions,
    labels: RunLabels,
    resources: ResourceSettings,
    at_a_time: int | None,
) -> tuple[tune.Tuner, LoggedSearcher]:
    """Returns a Tuner for the rest of a Tune run, and its searcher.

    Args:
        options: options of the caller, which the plan completes.
        at_a_time: number of concurrent trials, unless the caller's `TuneConfig` has one.
    """
    config = options.tune_config or tune.TuneConfig(reuse_actors=True)
    scheduler = plan.scheduler() if plan.scheduler else config.scheduler or SubmissionOrder()
    searcher = logged_searcher(plan, scheduler)
    tune_config = replace(
        config,
        metric=plan.metric,
        mode=plan.mode,
        search_alg=searcher,
        scheduler=scheduler,
        num_samples=-1,
        max_concurrent_trials=config.max_concurrent_trials or at_a_time or UNLIMITED,
        trial_name_creator=config.trial_name_creator or TrialName(labels.stage, labels.run),
        trial_dirname_creator=config.trial_dirname_creator or TrialName(labels.stage),
        time_budget_s=options.time_budget_s or config.time_budget_s,
    )
    earlier = [trial.metrics for trial in session.logged.trials.values() if trial.ended] if session.logged else []
    run_config = options.run_config or tune.RunConfig(verbose=0)
    # The default has no retries, and the caller did not choose it.
    default = run_config.failure_config == tune.FailureConfig()
    run_config = replace(
        run_config,
        name=session.tune_folder,
        storage_path=session.folder.uri,
        failure_config=tune.FailureConfig(max_failures=MAX_FAILURES) if default else run_config.failure_config,
        # `Recorder` deletes old checkpoints: Tune would save its whole state before it deletes one.
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, checkpoint_at_end=True),
        callbacks=[
            *(run_config.callbacks or []),
            *options.callbacks,
            NewNodes(),
            FailureLog(),
            Recorder(kept=KEEP_ALL if resources.keep_checkpoints else int(plan.reads_checkpoints)),
            StopAtCheckpoint(),
            CheckpointTrouble(),
            RunMetrics(labels, plan.metric, plan.mode, searcher.inner if plan.searcher else None, earlier),
            TrialProgress(labels.stage, plan.total, plan.before, plan.metric, plan.mode),
        ],
    )
    # A user's own trainable may save dictionaries; its code needs trust anyway.
    resumed = resumable(plan.trainable, unpickles=not getattr(plan.trainable, "saves_files", False))
    trainable = tune.with_resources(resumed, trial_resources(plan, resources))
    # Ray's dashboard shows the class name of an actor; Tune's wrapper has another name.
    trainable.__name__ = trainable.__qualname__ = plan.trainable.__name__
    param_space = {"settings": plan.settings, **(plan.keys if plan.searcher else {})}
    return tune.Tuner(trainable, param_space=param_space, tune_config=tune_config, run_config=run_config), searcher


# Trials that share a GPU if `trials_per_gpu` is auto: the stage measures their memory at its start, and stores it.

TRIALS_PER_GPU = "trials_per_gpu.json"
GB = 10**9
MARGIN = 0.1  # share of a GPU for memory not seen in a few batches: fragments, activations of other architectures
AT_MOST = 16  # maximum trials per GPU: more trials would wait for the GPU
START_SECONDS = 600  # limit for a worker with a whole GPU; other programs may use all GPUs
MEASURE_SECONDS = 3600  # limit for the measurement, which loads the data set; usually a minute
CANDIDATES = 4  # number of first trials of the plan to measure; the largest value counts


def trials_that_fit(taken: int, gpu: int, resident: int, memory: float) -> int:
    """Returns the number of trials that fit on a GPU and in the main memory of its node, 1 to `AT_MOST`.

    Args:
        taken: bytes that torch allocates for one trial.
        gpu: bytes of the GPU.
        resident: bytes of main memory of one trial.
        memory: bytes of main memory of the node per GPU.
    """
    from archray.trainables.devices import CONTEXT_BYTES  # torch

    on_gpu = (1 - MARGIN) * gpu / (taken + CONTEXT_BYTES)
    return max(1, int(min(AT_MOST, on_gpu, memory / resident)))


def with_shared_gpus(
    folder: Folder, plan: TrialPlan, context: Context[Any], resources: ResourceSettings
) -> ResourceSettings:
    """Replaces `trials_per_gpu="auto"` by a number.

    The stage stores the number for a resumed run, since concurrency and therefore suggestions depend on it.

    Raises: InvalidInput if Ray has GPUs that torch does not see; ClusterError without a worker or its answer.
    """
    if resources.trials_per_gpu != AUTO:
        return resources
    if resources.gpus() == 0:
        context.say("the cluster has no GPU; trials run on CPUs")
        return resources
    if plan.workers > 1:
        context.say("workers of one training run do not share a GPU; each worker uses one GPU")
        return resources.model_copy(update={"trials_per_gpu": 1})
    stage = folder.parent
    if not stage.exists(TRIALS_PER_GPU):
        stage.write_json(TRIALS_PER_GPU, _measured(plan, resources))
    measurement = stage.read_json(TRIALS_PER_GPU)
    context.say(sharing_words(measurement))
    return resources.model_copy(update={"trials_per_gpu": int(measurement["trials_per_gpu"])})


def sharing_words(measurement: Mapping[str, Any]) -> str:
    """Formats a measurement: `a trial uses 3.1 of 24 GB GPU memory, and ...; 6 per GPU`."""
    number = measurement["trials_per_gpu"]
    if measurement["taken"] is None:
        return f"the memory of a trial is unknown, since it failed: {measurement['failure']}; {number} per GPU"
    taken, gpu, resident, memory = (measurement[key] / GB for key in ("taken", "gpu", "resident", "memory"))
    return (
        f"a trial uses {taken:.1f} of {gpu:.0f} GB GPU memory, and {resident:.1f} of {memory:.0f} GB main memory per "
        f"GPU; {number} per GPU"
    )


def _measured(plan: TrialPlan, resources: ResourceSettings) -> dict[str, Any]:
    """Measures the content of TRIALS_PER_GPU. Raises: as `with_shared_gpus`."""
    from archray.trainables.tune.trial import MemoryProbe  # torch

    needs: dict[str, Any] = {"num_cpus": resources.cpus_per_trial, "num_gpus": 1, "resources": resources.custom}
    probe: Any = ray.remote(MemoryProbe).options(**needs).remote()
    try:
        _answer(probe.__ray_ready__.remote(), START_SECONDS, f"{count(resources.cpus_per_trial, 'CPU')} and 1 GPU")
        call = probe.measure.remote(plan.trainable, plan.settings, first_configs(plan))
        measured: dict[str, Any] = _answer(call, MEASURE_SECONDS, "the memory of a trial")
    finally:
        ray.kill(probe)
    gpu, taken, resident, memory = measured["gpu"], measured["taken"], measured["resident"], memory_per_gpu()
    if gpu is None:
        raise InvalidInput(
            "expected a CUDA device for trials_per_gpu=auto, got none: torch sees no GPU in a worker to which Ray "
            "assigned one. Set a number (--trials-per-gpu 2), or check why torch.cuda.is_available() is false there"
        )
    number = 1 if taken is None else trials_that_fit(taken, gpu, resident, memory)
    failure = next(iter(measured["failures"]), None) if taken is None else None
    bytes_of = {"taken": taken, "gpu": gpu, "resident": resident, "memory": memory}
    return {"trials_per_gpu": number, **bytes_of, "failure": failure}


def _answer(call: Any, seconds: float, wanted: str) -> Any:
    """Returns the answer of the worker that measures a trial. Raises: ClusterError without an answer in time."""
    try:
        return ray.get(call, timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise ClusterError(
            f"expected {wanted} from a worker within {seconds:g} s for trials_per_gpu=auto, got no answer. Check in "
            "Ray's dashboard whether other programs use the GPUs, or set a number (--trials-per-gpu 2)"
        ) from error


def first_configs(plan: TrialPlan, at_most: int = CANDIDATES) -> Sequence[dict[str, Any]]:
    """Returns the configurations, without `settings`, of a plan's first trials before any result."""
    if plan.searcher is None:
        return [dict(config) for _, config in islice(generate_variants(plan.keys), at_most)]
    searcher: Any = plan.searcher()  # a new searcher; archray drops its state
    searcher.set_search_properties(plan.metric, plan.mode, {})
    searcher.set_max_concurrency(at_most)
    configs: list[dict[str, Any]] = []
    for number in range(at_most):
        config = searcher.suggest(f"probe-{number}")
        if config is None or config == Searcher.FINISHED:
            break
        configs.append({**plan.keys, **config})
    return configs
