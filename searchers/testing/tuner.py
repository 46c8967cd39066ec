"""The conformance suite of searchers through a real `tune.Tuner`, interrupted and restored among others."""

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
PATIENCE_S = 120.0  # how long a trial waits for a second one
SAVE_SECONDS = "TUNE_GLOBAL_CHECKPOINT_S"  # between two saves of Tune's state


class ConformanceTrainable(tune.Trainable):
    """Reports the score of its config, in STEPS iterations; can be reused, saved and restored.

    Config, next to the suggestion, under the key `conformance`, or by `tune.with_parameters`:
        evaluator: reference of the function config -> score or result.
        meeting: a folder; the trial continues once two trials have a file there. None: no waiting.
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
                    raise TimeoutError("no second trial was started at the same time")
                time.sleep(0.02)
        self.steps_done += 1
        return {**entries_of(self.evaluate(self.suggested)), "done": self.steps_done >= STEPS}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "steps.json").write_text(json.dumps(self.steps_done))

    def load_checkpoint(self, checkpoint_dir: str) -> None:  # type: ignore[override]  # Ray names a dict, gives a path
        self.steps_done = json.loads((Path(checkpoint_dir) / "steps.json").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True


class TunerConformance(ConformanceSuite):
    """Subclass it, too, and define the same `make`, to test the searcher in a `Tuner`.

    Each test runs a Tune experiment on the Ray that is initialized, or on a local one with two CPUs.
    """

    concurrency: int = 2

    def test_tuner_runs_the_same_search(self, tmp_path: Path) -> None:
        """The given number of trials at once, no blocking, and the suggestions that `drive` gets."""
        (tmp_path / "meeting").mkdir()
        at_once = self.concurrency if self._independent_from_the_start() else 1
        results = fit(self.tuner(tmp_path, meeting=tmp_path / "meeting" if at_once > 1 else None))
        assert results.num_errors == 0
        assert same_configs(suggested_configs(results), self.undisturbed(self.concurrency))

    def test_tuner_without_param_space(self, tmp_path: Path) -> None:
        """Tune passes metric and mode on only with a `param_space`; without one, the searcher's arguments suffice."""
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
            raise AssertionError("the run was not interrupted")
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
        raise AssertionError("a trial would get a domain instead of a value")

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
        """A Tuner over a new searcher that takes metric and mode from TuneConfig."""
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
        """Whether the second suggestion comes before the first result; a method of rounds may have to wait."""
        searcher = self.fresh()
        searcher.set_max_concurrency(self.concurrency)
        return all(isinstance(searcher.suggest(trial), dict) for trial in ("a", "b"))


class Interruption(tune.Callback):
    """Stops an experiment by an exception after a number of trials, once: it creates the file `mark`."""

    def __init__(self, mark: Path, after: int) -> None:
        self.mark, self.after = mark, after

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        ended = sum(trial.is_finished() for trial in trials)
        if ended >= self.after and not self.mark.exists():
            self.mark.touch()
            copy_to_storage(trials[0])
            raise RuntimeError("interrupted on purpose")


def quiet_ray() -> None:
    """Starts a small local Ray if there is none."""
    if not ray.is_initialized():
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)


def fit(tuner: Tuner) -> tune.ResultGrid:
    """Runs a Tuner that saves its state after every step. Restores the environment: other runs save rarely."""
    before = os.environ.get(SAVE_SECONDS)
    os.environ[SAVE_SECONDS] = "0"
    try:
        return tuner.fit()
    finally:
        del os.environ[SAVE_SECONDS]
        if before is not None:
            os.environ[SAVE_SECONDS] = before


def copy_to_storage(trial: Any) -> None:
    """Copies Tune's saved state to the storage, whole: for a callback that ends `fit` by an exception.

    Tune copies in threads, and `fit` does not wait for them after an exception, so the last copy can hold half of a
    state that was being written. While a callback runs, nothing is written.
    """
    syncer = trial.storage.syncer
    with suppress(Exception):  # of the copy under way; the next copy is complete
        syncer.wait()
    syncer.sync_up(trial.storage.experiment_driver_staging_path, trial.storage.experiment_fs_path)
    syncer.wait()


def suggested_configs(results: tune.ResultGrid) -> Configs:
    """The suggestion of each trial."""
    configs = [results[number].config or {} for number in range(len(results))]
    return [{k: v for k, v in config.items() if k != "conformance"} for config in configs]


def same_configs(ours: Configs, theirs: Configs) -> bool:
    """Whether both contain the same configs; results are in the order of trial ids, not of suggestion."""
    return sorted(json.dumps(c, sort_keys=True) for c in ours) == sorted(json.dumps(c, sort_keys=True) for c in theirs)
