"""The conformance suite of searchers through a real `tune.Tuner`, interrupted and restored among others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, RunConfig, TuneConfig, Tuner

from archray.searchers.testing.conformance import Configs, SearcherConformance
from archray.searchers.testing.trainable import ConformanceTrainable


class TunerConformance(SearcherConformance):
    """Subclass it instead of `SearcherConformance` to run all of it, and these too.

    Each test runs a Tune experiment on the Ray that is initialised, or on a local one with two CPUs.
    """

    concurrency: int = 2

    def test_tuner_runs_the_same_search(self, tmp_path: Path) -> None:
        """As many trials at once as asked for, no blocking, and the suggestions that `drive` gets."""
        (tmp_path / "meeting").mkdir()
        at_once = self.concurrency if self._independent_from_the_start() else 1
        results = self.tuner(tmp_path, meeting=tmp_path / "meeting" if at_once > 1 else None).fit()
        assert results.num_errors == 0
        assert same_configs(own_configs(results), self.undisturbed(self.concurrency))

    def test_tuner_interrupted_and_restored(self, tmp_path: Path) -> None:
        interruption = Interruption(tmp_path / "interrupted", after=max(1, self.budget // 2))
        tuner = self.tuner(tmp_path, callbacks=[interruption])
        try:
            tuner.fit()
        except Exception:
            assert (tmp_path / "interrupted").exists()
        else:
            raise AssertionError("the run was not interrupted")
        with quiet_ray():
            results = Tuner.restore(
                str(tmp_path / "run"), trainable=self.trainable(), param_space=self.param_space()
            ).fit()
        assert results.num_errors == 0
        whole = self.fresh()
        assert same_configs(own_configs(results), self.run(whole, concurrency=self.concurrency))
        restored = self.fresh()
        restored.restore_from_dir(str(tmp_path / "run"))
        if hasattr(whole, "history") and hasattr(restored, "history"):
            ours, theirs = (frame.history().drop(columns="trial_id") for frame in (whole, restored))
            assert ours.equals(theirs)

    def test_tuner_refuses_unresolved_domains(self, tmp_path: Path) -> None:
        try:
            self.tuner(tmp_path, extra={"lr": tune.uniform(0, 1)}).fit()
        except ValueError:
            return
        raise AssertionError("a trial would get a domain instead of a value")

    # How the tests run a Tuner

    def trainable(self) -> Any:
        return tune.with_resources(ConformanceTrainable, {"cpu": 1 / self.concurrency})

    def param_space(self, meeting: Path | None = None) -> dict[str, Any]:
        return {"conformance": {"evaluator": self.evaluator, "meeting": meeting and str(meeting)}}

    def tuner(
        self,
        folder: Path,
        meeting: Path | None = None,
        callbacks: list[tune.Callback] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Tuner:
        """A Tuner over a fresh searcher that learns metric and mode from TuneConfig."""
        with quiet_ray():
            return Tuner(
                self.trainable(),
                param_space={**self.param_space(meeting), **(extra or {})},
                tune_config=TuneConfig(
                    metric="score",
                    mode="max",
                    search_alg=self.fresh(metric=None, mode=None),
                    num_samples=-1,
                    max_concurrent_trials=self.concurrency,
                    reuse_actors=True,
                ),
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
    """Ends the experiment by an exception after so many trials, once: a restored experiment runs on.

    Args:
        mark: a file that is made when it happens.
        after: trials that end before.
    """

    def __init__(self, mark: Path, after: int) -> None:
        self.mark = mark
        self.after = after

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        ended = sum(trial.is_finished() for trial in trials)
        if ended >= self.after and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("interrupted on purpose")


@contextmanager
def quiet_ray() -> Iterator[None]:
    """Starts a small local Ray if there is none, and has Tune save its state after every step."""
    if not ray.is_initialized():
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = "0"
    yield


def own_configs(results: tune.ResultGrid) -> Configs:
    """What the searcher suggested to each trial."""
    configs = [results[number].config or {} for number in range(len(results))]
    return [{k: v for k, v in config.items() if k != "conformance"} for config in configs]


def same_configs(ours: Configs, theirs: Configs) -> bool:
    """Whether both hold the same configs; trials are listed in the order of their ids, not of suggestion."""
    return sorted(json.dumps(c, sort_keys=True) for c in ours) == sorted(json.dumps(c, sort_keys=True) for c in theirs)
