"""`DurableTuner`: a Ray Tune experiment that resumes after a kill of its driver, with any searcher and trainable."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.search import Repeater

from archray.cluster.connect import start_or_join
from archray.cluster.ray_compat import TRIAL_FRAMES, TRIAL_STATES, TUNER_FILE, check_called
from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.engine.failed_trials import retried_memory_kills
from archray.platform.engine.restore import ResumedASHA, restore_experiment
from archray.platform.engine.result_log import (
    KeepSnapshot,
    ResultLog,
    distinct_ids,
    line_writer,
    reduced_saves,
    with_frames,
)
from archray.platform.run.heartbeat import lock
from archray.platform.run.layout import SNAPSHOT


class DurableTuner:
    """A `ray.tune.Tuner` whose experiment survives a kill of the driver, a reboot or a move of its folder.

    Tune saves its state at intervals, so a restored `Tuner` repeats trials that had finished. `DurableTuner` also
    writes every event of a trial and every result when it happens. After `restore`:

    - A finished trial never runs again, and its results are complete in `metrics_dataframe`.
    - An unfinished trial resumes from its last checkpoint; without a checkpoint it restarts.
    - The searcher is in the state after the last event, and continues as it would have without the kill. A searcher
      that is not a deterministic function of its saved state learns nothing from the trials that it suggested since
      Tune's last save; a warning names them.
    - ASHA continues with all results. Another scheduler restarts without its earlier decisions, as with Tune.

    A kill can lose the events that the driver has not handled yet: usually the last milliseconds, and on an object
    store the last second. A trial that ends at this moment runs again; a trial that was suggested is suggested again.

    Args:
        trainable, param_space: as in `ray.tune.Tuner`.
        tune_config: as in `ray.tune.Tuner`, except for `Repeater`, which does not save its state.
        run_config: as in `ray.tune.Tuner`. The folder of the experiment is `name` in `storage_path`, which may be
            relative; the name is required. `checkpoint_config.num_to_keep` must be None or at least 2.

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
                tune_config=tune.TuneConfig(metric="accuracy", mode="max", search_alg=OptunaSearch(), num_samples=50),
                run_config=tune.RunConfig(name="digits", storage_path="/data/experiments"),
            )
        results = tuner.fit()
        ```
    """

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
        if config.checkpoint_config.num_to_keep == 1:
            raise InvalidInput(
                "expected num_to_keep of at least 2 (or None) in checkpoint_config, got 1. With 1, a kill can leave a "
                "state that names a deleted checkpoint. Set it to 2"
            )
        storage = Folder(config.storage_path, filesystem=config.storage_filesystem)
        self._folder, self._fit_called = storage / config.name, False
        if self.can_restore(str(self._folder.uri), storage_filesystem=config.storage_filesystem):
            raise RunFolderError(
                f"expected a new folder, got {self._folder} with an experiment. Resume it with "
                "DurableTuner.restore, or choose another name"
            )
        tune_config = tune_config or tune.TuneConfig()
        search: Any = tune_config.search_alg
        while search is not None:  # through wrappers such as ConcurrencyLimiter
            if isinstance(search, Repeater):
                raise InvalidInput(
                    "expected a searcher that saves its state, got Repeater, whose experiment cannot be restored. "
                    "Evaluate the repeats inside of one trial, or use ray.tune.Tuner"
                )
            search = getattr(search, "searcher", None)
        if type(tune_config.scheduler) is AsyncHyperBandScheduler:
            tune_config = replace(tune_config, scheduler=ResumedASHA.from_scheduler(tune_config.scheduler))
        callbacks = [*(config.callbacks or []), KeepSnapshot(), ResultLog()]
        self._tuner = tune.Tuner(
            trainable,
            param_space=param_space,
            tune_config=tune_config,
            run_config=replace(config, storage_path=storage.uri, callbacks=callbacks),
        )

    @classmethod
    def can_restore(cls, path: str | Path, *, storage_filesystem: Any = None) -> bool:
        """Returns whether `path` contains an experiment of `DurableTuner` with a saved state."""
        folder = Folder(path, filesystem=storage_filesystem)
        return folder.exists(TUNER_FILE) and folder.exists(SNAPSHOT)

    @classmethod
    def restore(
        cls,
        path: str | Path,
        trainable: Any,
        *,
        param_space: dict[str, Any] | None = None,
        resume_errored: bool = False,
        restart_errored: bool = False,
        storage_filesystem: Any = None,
    ) -> "DurableTuner":
        """Restores the experiment in `path`, which may have been moved; `fit` then continues it.

        Tune's files are pickles, which can execute code: restore only experiments that you trust.

        Args:
            path: folder of the experiment, a path or a pyarrow URI.
            trainable, resume_errored, restart_errored, storage_filesystem: as in `Tuner.restore`.
            param_space: as in `Tuner.restore`; necessary only if the space contains object references of Ray.

        Raises: RunFolderError if `path` contains no experiment with a saved state, or another process works on it;
        IncompatibleRay.
        """
        folder = Folder(path, filesystem=storage_filesystem)
        if not cls.can_restore(path, storage_filesystem=storage_filesystem):
            raise RunFolderError(
                f"expected an experiment of DurableTuner with a saved state in {folder}, got none. Start it with "
                "DurableTuner(...).fit()"
            )
        with lock(folder, "DurableTuner.restore"), reduced_saves():
            restore_experiment(folder, trainable)
            tuner = tune.Tuner.restore(
                folder.uri,
                trainable=trainable,
                param_space=param_space,
                resume_errored=resume_errored,
                restart_errored=restart_errored,
                storage_filesystem=storage_filesystem,
            )
        durable = cls.__new__(cls)
        vars(durable).update(_folder=folder, _tuner=tuner, _fit_called=False)
        return durable

    def fit(self) -> tune.ResultGrid:
        """Runs the remaining trials. After Ctrl-C, it returns the results up to now, as `ray.tune.Tuner.fit`.

        If Ray is not initialized, it joins the Ray cluster of this machine, or starts a Ray, as `ray.tune.Tuner.fit`.
        It prints the address of a cluster that this process has joined.

        Returns: the results of all trials.

        Raises: RunFolderError for a second call; IncompatibleRay; ClusterError if other users can read Ray's token.
        """
        if self._fit_called:
            raise RunFolderError(
                "expected one call of fit for each DurableTuner, got a second call. Continue the experiment with "
                f"DurableTuner.restore({str(self._folder.uri)!r}, trainable).fit()"
            )
        self._fit_called = True
        with (
            lock(self._folder, "DurableTuner.fit"),
            reduced_saves(),
            distinct_ids(),
            line_writer(),
            retried_memory_kills(),
            _restore_hint(),
        ):
            start_or_join()
            results = self._tuner.fit()
            check_called(TRIAL_STATES, TRIAL_FRAMES)
        return with_frames(results, self._folder)

    def get_results(self) -> tune.ResultGrid:
        """Returns the results of the trials up to now, as `ray.tune.Tuner.get_results`."""
        return with_frames(self._tuner.get_results(), self._folder)


@contextmanager
def _restore_hint() -> Iterator[None]:
    """Lets the hint that Tune logs after Ctrl-C name `DurableTuner.restore`, while the block runs."""

    def rename(record: logging.LogRecord) -> bool:
        record.msg = str(record.msg).replace(" Tuner.restore(", " archray.DurableTuner.restore(")
        return True

    tune_logger = logging.getLogger("ray.tune.tune")
    tune_logger.addFilter(rename)
    try:
        yield
    finally:
        tune_logger.removeFilter(rename)
