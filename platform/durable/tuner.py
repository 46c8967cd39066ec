"""`DurableTuner`: a Ray Tune experiment that resumes after a kill of its driver, with any searcher and trainable."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ray import cloudpickle, tune
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, create_searcher
from ray.tune.search.variant_generator import generate_variants

from archray.cluster.connect import start_or_join
from archray.errors import DamagedFile, InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.durable.callbacks import Recorder, unread_results
from archray.platform.durable.failed_trials import FailureLog, retried_memory_kills
from archray.platform.durable.replay import UNLIMITED, LoggedSearcher, ResumedASHA, Variants, resumable
from archray.platform.durable.results import Results
from archray.platform.durable.session import begin
from archray.platform.run.heartbeat import lock
from archray.platform.run.trial_log import LOG, LoggedRun, read_log

ARGUMENTS = "arguments.pkl"  # the arguments of a `DurableTuner`, for `restore` without them


class DurableTuner:
    """A `ray.tune.Tuner` whose experiment survives a kill of the driver, a reboot or a move of its folder.

    Tune saves its state at intervals, so a restored `Tuner` repeats trials that had finished. `DurableTuner` writes
    every suggestion, start, result, checkpoint and end of a trial into a log when it happens, and continues from this
    log with a new `Tuner`. After `restore`:

    - A finished trial never runs again, and its results are complete in `metrics_dataframe`.
    - An unfinished trial resumes from its last checkpoint; without a checkpoint it restarts.
    - The searcher receives the same calls again, and continues as it would have without the kill. A searcher that then
      suggests other configurations, for example since it has no seed, learns nothing from these trials; a warning names
      them.
    - ASHA continues with all results. Another scheduler restarts without its earlier decisions, as with Tune.

    A kill can lose the events that the driver has not handled yet: usually the last milliseconds, and on an object
    store the last second. A trial that ends at this moment runs again; a trial that was suggested is suggested again.

    Args:
        trainable, param_space: as in `ray.tune.Tuner`.
        tune_config: as in `ray.tune.Tuner`, except for an explicit `BasicVariantGenerator`.
        run_config: as in `ray.tune.Tuner`. The folder of the experiment is `name` in `storage_path`, which may be
            relative; the name is required. Tune writes into a folder `session-N` in it per process.
            `checkpoint_config.num_to_keep` must be None or at least 2.

    Raises: InvalidInput for an unsuitable configuration; RunFolderError if the folder contains an experiment.

    Example:
        ```python
        ray.init(address="local")
        if archray.DurableTuner.can_restore("/data/experiments/digits"):
            tuner = archray.DurableTuner.restore("/data/experiments/digits", train)
        else:
            tuner = archray.DurableTuner(
                train,
                param_space={"lr": tune.loguniform(1e-4, 1e-1)},
                tune_config=tune.TuneConfig(
                    metric="accuracy", mode="max", search_alg=OptunaSearch(seed=0), num_samples=50
                ),
                run_config=tune.RunConfig(name="digits", storage_path="/data/experiments"),
            )
        results = tuner.fit()
        ```
    """

    _folder: Folder
    _trainable: Any
    _param_space: dict[str, Any]
    _searcher: Any  # None: a grid or a random search
    _tune_config: Any
    _run_config: Any
    _fit_called: bool
    _configs: dict[str, dict[str, Any]]  # suggested configurations with entries that the log does not have
    _reopens = False, False  # whether failed trials continue from their last checkpoints, and whether they restart

    def __init__(
        self,
        trainable: Any,
        *,
        param_space: dict[str, Any] | None = None,
        tune_config: tune.TuneConfig | None = None,
        run_config: tune.RunConfig | None = None,
    ) -> None:
        config: Any = run_config or tune.RunConfig()  # its defaults, which Ray fills in, are not in its types
        if not config.name:
            raise InvalidInput("expected a name in run_config, got none. Set it, so that restore finds the experiment")
        storage = Folder(config.storage_path, filesystem=config.storage_filesystem)
        folder = storage / config.name
        if folder.exists(LOG):
            raise RunFolderError(
                f"expected a new folder, got {folder} with an experiment. Resume it with DurableTuner.restore, or "
                "choose another name"
            )
        vars(self).update(_checked(folder, trainable, param_space or {}, tune_config or tune.TuneConfig(), config))

    @classmethod
    def can_restore(cls, path: str | Path, *, storage_filesystem: Any = None) -> bool:
        """Returns whether `path` contains an experiment of `DurableTuner`."""
        return Folder(path, filesystem=storage_filesystem).exists(LOG)

    @classmethod
    def restore(
        cls,
        path: str | Path,
        trainable: Any,
        *,
        param_space: dict[str, Any] | None = None,
        tune_config: tune.TuneConfig | None = None,
        run_config: tune.RunConfig | None = None,
        resume_errored: bool = False,
        restart_errored: bool = False,
        storage_filesystem: Any = None,
    ) -> "DurableTuner":
        """Restores the experiment in `path`, which may have been moved; `fit` then continues it.

        Args:
            path: folder of the experiment, a path or a pyarrow URI.
            trainable, resume_errored, restart_errored, storage_filesystem: as in `Tuner.restore`.
            param_space, tune_config, run_config: the arguments of the first `DurableTuner`. Those that are None come
                from a pickle in `path`. A checkpoint that is a dictionary is a pickle, too: restore only experiments
                that you trust.

        Raises: RunFolderError if `path` contains no experiment, or another process works on it; DamagedFile.
        """
        folder = Folder(path, filesystem=storage_filesystem)
        if not folder.exists(LOG):
            raise RunFolderError(
                f"expected an experiment of DurableTuner in {folder}, got none. Start it with DurableTuner(...).fit()"
            )
        arguments: dict[str, Any] = {"param_space": param_space, "tune_config": tune_config, "run_config": run_config}
        if None in arguments.values():
            try:
                first = cloudpickle.loads(folder.read_bytes(ARGUMENTS))
                arguments = {name: first[name] if value is None else value for name, value in arguments.items()}
            except (DamagedFile, OSError):
                raise
            except Exception as error:  # of any kind: it is a pickle
                advice = "pass param_space, tune_config and run_config to DurableTuner.restore"
                raise DamagedFile.at(f"{folder}/{ARGUMENTS}", error, advice) from error
        durable = cls.__new__(cls)
        vars(durable).update(_checked(folder, trainable, **arguments), _reopens=(resume_errored, restart_errored))
        return durable

    def fit(self) -> Results:
        """Runs the remaining trials. After Ctrl-C, it returns the results up to now, as `ray.tune.Tuner.fit`.

        If Ray is not initialized, it joins the Ray cluster of this machine, or starts a Ray, as `ray.tune.Tuner.fit`.
        It prints the address of a cluster that this process has joined.

        Returns: the results of all trials of all sessions.

        Raises: RunFolderError for a second call; DamagedFile; ClusterError if other users can read Ray's token.
        """
        if self._fit_called:
            raise RunFolderError(
                "expected one call of fit for each DurableTuner, got a second call. Continue the experiment with "
                f"DurableTuner.restore({str(self._folder.uri)!r}, trainable).fit()"
            )
        self._fit_called = True
        with (
            lock(self._folder, "DurableTuner.fit"),
            retried_memory_kills(),
            unread_results(),
            _restore_hint(self._folder),
        ):
            start_or_join()
            self._fit()
        return self.get_results()

    def _fit(self) -> None:
        if not self._folder.exists(ARGUMENTS):
            names = ("param_space", "tune_config", "run_config")
            self._folder.write_bytes(ARGUMENTS, cloudpickle.dumps({name: vars(self)[f"_{name}"] for name in names}))
        config, scheduler = self._tune_config, self._tune_config.scheduler
        if type(scheduler) is AsyncHyperBandScheduler:
            scheduler = ResumedASHA.from_scheduler(scheduler)
        total = config.num_samples
        if self._searcher is None and total > 0:
            total *= sum(1 for _ in generate_variants(self._param_space))  # the size of the grid
        plan: dict[str, Any] = {"metric": config.metric, "mode": config.mode, "total": max(0, total)}
        plan["seed"] = int(np.random.randint(2**31))  # noqa: NPY002  # as Tune, from the generator that a user may seed
        with begin(self._folder, run=self._folder.path, trusted=True, **plan) as session:
            resume_errored, restart_errored = self._reopens
            assert session.logged is not None  # before the replay
            for trial in [trial for trial in session.logged.trials.values() if trial.error]:
                if resume_errored or restart_errored:
                    session.reopen(trial.trial_id, fresh=restart_errored)
            first = session.logged.sessions[0].plan
            searcher = self._searcher or Variants(self._param_space, config.num_samples, first["seed"])
            logged = LoggedSearcher(searcher, most=total, strict=False, scheduler=scheduler)
            limit = UNLIMITED if self._searcher is None else None  # without a limit, Tune starts one trial at a time
            tuner = tune.Tuner(
                resumable(self._trainable, unpickles=True),
                param_space={} if self._searcher is None else self._param_space,
                tune_config=replace(
                    config,
                    search_alg=logged,
                    scheduler=scheduler,
                    num_samples=-1,  # `logged` has the limit
                    max_concurrent_trials=config.max_concurrent_trials or limit,
                ),
                run_config=replace(
                    self._run_config,
                    name=session.tune_folder,
                    storage_path=self._folder.uri,
                    callbacks=[*(self._run_config.callbacks or []), FailureLog(), Recorder()],
                ),
            )
            tuner.fit()
            logged.replayed()
            self._configs = logged.configs

    def get_results(self) -> Results:
        """Returns the results of the trials up to now, of all sessions."""
        logged = read_log(self._folder, self._folder.path, trusted=True) or LoggedRun()
        config = self._tune_config
        return Results(logged, self._folder, config.metric, config.mode, self._configs)


def _checked(
    folder: Folder, trainable: Any, param_space: dict[str, Any], tune_config: Any, run_config: Any
) -> dict[str, Any]:
    """Returns the attributes of a `DurableTuner` for these arguments. Raises: InvalidInput."""
    if run_config.checkpoint_config.num_to_keep == 1:
        raise InvalidInput(
            "expected num_to_keep of at least 2 (or None) in checkpoint_config, got 1. With 1, a kill can leave a log "
            "that names a deleted checkpoint. Set it to 2"
        )
    search = tune_config.search_alg
    if isinstance(search, str):
        search = create_searcher(search)
    if isinstance(search, BasicVariantGenerator):
        raise InvalidInput(
            "expected a Searcher or None as search_alg, got BasicVariantGenerator. Leave search_alg out: param_space "
            "and num_samples then give a grid or a random search"
        )
    limit = search.max_concurrent if isinstance(search, ConcurrencyLimiter) else None
    limit = tune_config.max_concurrent_trials or limit
    return {
        "_folder": folder,
        "_trainable": trainable,
        "_param_space": param_space,
        "_searcher": search,
        "_tune_config": replace(tune_config, search_alg=search, max_concurrent_trials=limit),
        "_run_config": run_config,
        "_fit_called": False,
        "_configs": {},
    }


@contextmanager
def _restore_hint(folder: Folder) -> Iterator[None]:
    """Lets the hint that Tune logs after Ctrl-C name `DurableTuner.restore`, while the block runs."""

    def rename(record: logging.LogRecord) -> bool:
        text = str(record.msg).replace(" Tuner.restore(", " archray.DurableTuner.restore(")
        record.msg = re.sub(rf"({re.escape(folder.path)})/session-\d+", r"\1", text)
        return True

    tune_logger = logging.getLogger("ray.tune.tune")
    tune_logger.addFilter(rename)
    try:
        yield
    finally:
        tune_logger.removeFilter(rename)
