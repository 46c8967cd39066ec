"""The conformance suite for searchers in a real `tune.Tuner`, with interruption and restore."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, RunConfig, TuneConfig, Tuner
from ray.tune.search import Searcher

from archray.references import load_reference
from archray.searchers.testing.conformance import Configs, ConformanceSuite, Evaluator, entries_of

STEPS = 2  # iterations of a trial
PATIENCE_S = 120.0  # maximum time that a trial waits for a second trial
SAVE_SECONDS = "TUNE_GLOBAL_CHECKPOINT_S"  # the interval at which Tune saves its state


class ConformanceTrainable(tune.Trainable):
    """A trainable that reports the score of its config in STEPS iterations. Tune can reuse, save and restore it.

    Args:
        config: the suggested config, and the options under the key `conformance`: `evaluator`, the reference of a
            function from a config to a score or a result; `meeting`, a folder (the trial waits until two trials have a
            file there) or None.
        conformance: the options, if they are passed by `tune.with_parameters`.
    """

    def setup(self, config: dict[str, Any], conformance: dict[str, Any] | None = None) -> None:
        conformance = conformance or config["conformance"]
        self.suggested = {key: value for key, value in config.items() if key != "conformance"}
        self.evaluate: Evaluator = load_reference(conformance["evaluator"])
        self.meeting = conformance["meeting"]
        self.steps_done = 0

    def step(self) -> dict[str, Any]:
        if self.meeting:
            folder, deadline = Path(self.meeting), time.monotonic() + PATIENCE_S
            (folder / self.trial_id).touch()
            while len(list(folder.iterdir())) < 2:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"Expected a second concurrent trial, got none within {PATIENCE_S:.0f} s")
                time.sleep(0.02)
        self.steps_done += 1
        return {**entries_of(self.evaluate(self.suggested)), "done": self.steps_done >= STEPS}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "steps.json").write_text(json.dumps(self.steps_done))

    def load_checkpoint(self, checkpoint_dir: str) -> None:  # type: ignore[override]  # Ray annotates a dict, passes a path
        self.steps_done = json.loads((Path(checkpoint_dir) / "steps.json").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True


class TunerConformance(ConformanceSuite):
    """Tests of a searcher in a `Tuner`. Subclass it next to `SearcherConformance`, with the same `make`.

    Each test runs a Tune experiment on the initialized Ray, or on a local Ray with two CPUs.

    Example:
        ```python
        class TestMySearcher(MyConformance, TunerConformance):  # MyConformance defines make
            pass
        ```
    """

    concurrency: int = 2

    def test_tuner_runs_the_same_search(self, tmp_path: Path) -> None:
        """Checks that concurrent trials do not block each other, and that `drive` gives the same suggestions."""
        (tmp_path / "meeting").mkdir()
        at_once = self.concurrency if self._independent_from_the_start() else 1
        results = fit(self.tuner(tmp_path, meeting=tmp_path / "meeting" if at_once > 1 else None))
        assert results.num_errors == 0
        assert same_configs(suggested_configs(results), self.undisturbed(self.concurrency))

    def test_tuner_without_param_space(self, tmp_path: Path) -> None:
        """Checks that metric and mode of the searcher suffice: Tune passes its own only if there is a `param_space`."""
        quiet_ray()
        trainable = tune.with_parameters(ConformanceTrainable, **self.param_space())
        results = Tuner(
            self.with_resources(trainable),
            tune_config=self.tune_config(self.fresh()),
            run_config=RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
        ).fit()
        assert results.num_errors == 0
        assert same_configs(suggested_configs(results), self.undisturbed(self.concurrency))

    def test_tuner_interrupted_and_restored(self, tmp_path: Path) -> None:
        interruption = Interruption(tmp_path / "interrupted", after=max(1, self.budget // 2))
        tuner = self.tuner(tmp_path, callbacks=[interruption])
        try:
            fit(tuner)
        except Exception:
            assert (tmp_path / "interrupted").exists()
        else:
            raise AssertionError("Expected the run to be interrupted, but it finished")
        run = str(tmp_path / "run")
        trainable = self.with_resources(ConformanceTrainable)
        results = fit(Tuner.restore(run, trainable=trainable, param_space=self.param_space()))
        assert results.num_errors == 0
        whole = self.fresh()
        assert same_configs(suggested_configs(results), self.run(whole, concurrency=self.concurrency))
        restored = self.fresh()
        restored.restore_from_dir(run)
        if hasattr(whole, "history") and hasattr(restored, "history"):
            ours, theirs = (frame.history().drop(columns="trial_id") for frame in (whole, restored))
            assert ours.equals(theirs)

    def test_tuner_refuses_unresolved_domains(self, tmp_path: Path) -> None:
        try:
            fit(self.tuner(tmp_path, extra={"lr": tune.uniform(0, 1)}))
        except ValueError:
            return
        raise AssertionError("Expected a ValueError for an unresolved domain, got none")

    def with_resources(self, trainable: Any) -> Any:
        return tune.with_resources(trainable, {"cpu": 1 / self.concurrency})

    def tune_config(self, searcher: Searcher, **options: Any) -> TuneConfig:
        return TuneConfig(
            search_alg=searcher, num_samples=-1, max_concurrent_trials=self.concurrency, reuse_actors=True, **options
        )

    def param_space(self, meeting: Path | None = None) -> dict[str, Any]:
        return {"conformance": {"evaluator": self.evaluator, "meeting": meeting and str(meeting)}}

    def tuner(
        self,
        folder: Path,
        meeting: Path | None = None,
        callbacks: list[tune.Callback] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Tuner:
        """Returns a Tuner with a new searcher that takes metric and mode from TuneConfig."""
        quiet_ray()
        return Tuner(
            self.with_resources(ConformanceTrainable),
            param_space={**self.param_space(meeting), **(extra or {})},
            tune_config=self.tune_config(self.fresh(metric=None, mode=None), metric="score", mode="max"),
            run_config=RunConfig(
                name="run",
                storage_path=str(folder),
                callbacks=callbacks,
                verbose=0,
                failure_config=FailureConfig(max_failures=0),
                checkpoint_config=CheckpointConfig(checkpoint_frequency=1),
            ),
        )

    def _independent_from_the_start(self) -> bool:
        """Returns whether the second suggestion needs no result; a method with rounds may have to wait."""
        searcher = self.fresh()
        searcher.set_max_concurrency(self.concurrency)
        return all(isinstance(searcher.suggest(trial), dict) for trial in ("a", "b"))


class Interruption(tune.Callback):
    """A callback that stops an experiment once, by an exception after `after` trials; it creates the file `mark`."""

    def __init__(self, mark: Path, after: int) -> None:
        self.mark, self.after = mark, after

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        ended = sum(trial.is_finished() for trial in trials)
        if ended >= self.after and not self.mark.exists():
            self.mark.touch()
            copy_to_storage(trials[0])
            raise RuntimeError("Interrupted on purpose")


def quiet_ray() -> None:
    """Starts a small local Ray if Ray is not initialized."""
    if not ray.is_initialized():
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)


def fit(tuner: Tuner) -> tune.ResultGrid:
    """Runs a Tuner that saves its state after every step, and restores the environment variable afterwards."""
    before = os.environ.get(SAVE_SECONDS)
    os.environ[SAVE_SECONDS] = "0"
    try:
        return tuner.fit()
    finally:
        del os.environ[SAVE_SECONDS]
        if before is not None:
            os.environ[SAVE_SECONDS] = before


def copy_to_storage(trial: Any) -> None:
    """Copies Tune's complete saved state to the storage, for a callback that ends `fit` by an exception.

    Tune copies in threads, and `fit` does not wait for them after an exception. So the last copy can contain an
    incomplete state. Tune writes nothing while a callback runs.
    """
    syncer = trial.storage.syncer
    with suppress(Exception):  # of the running copy; the next copy is complete
        syncer.wait()
    syncer.sync_up(trial.storage.experiment_driver_staging_path, trial.storage.experiment_fs_path)
    syncer.wait()


def suggested_configs(results: tune.ResultGrid) -> Configs:
    """Returns the suggested config of each trial."""
    configs = [results[number].config or {} for number in range(len(results))]
    return [{k: v for k, v in config.items() if k != "conformance"} for config in configs]


def same_configs(ours: Configs, theirs: Configs) -> bool:
    """Returns whether both contain the same configs, in any order: results are ordered by trial id."""
    return sorted(json.dumps(c, sort_keys=True) for c in ours) == sorted(json.dumps(c, sort_keys=True) for c in theirs)
