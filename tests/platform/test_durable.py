"""`DurableTuner`: an experiment whose driver was killed (SIGKILL) continues, also in another place."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import archray_test_durable
import numpy as np
import pytest
import ray
from archray_test_durable import SEARCHES, STEPS, TRIALS, Class, experiment
from ray import cloudpickle, tune
from ray.tune.error import TuneError
from ray.tune.search import BasicVariantGenerator

import archray
from archray.errors import DamagedFile, InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.durable.tuner import ARGUMENTS
from archray.platform.run.trial_log import read_log

pytestmark = pytest.mark.usefixtures("ray_session")
SLOW = [pytest.mark.slow, pytest.mark.ci]
MARKS: dict[str, Any] = {
    **dict.fromkeys(("grid", "asha", "random-search", "local-search"), SLOW),
    **{name: [pytest.mark.extra("tune-searchers")] for name in ("optuna", "hyperopt", "batches")},
}


def killed(name: str, folder: Path, results: int) -> set[str]:
    """Kills the driver of an experiment when it receives a result, and moves its folder.

    Returns: the ids of the trials that had ended.
    """
    address = ray.get_runtime_context().gcs_address
    program = [sys.executable, archray_test_durable.__file__, name, str(folder), address, str(results)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    logged = read_log(Folder(folder), folder.as_posix(), trusted=True)
    assert logged is not None
    folder.rename(folder.with_name("moved"))
    return {trial.trial_id for trial in logged.trials.values() if trial.ended}


def steps(folder: Path) -> Counter[str]:
    """Returns the trained steps of the experiments in a folder."""
    return Counter((folder / "steps").read_text().splitlines())


def described(results: tune.ResultGrid) -> list[Any]:
    """Returns config, losses and steps of each trial, in the order of suggestion."""
    assert not results.errors
    rows = []
    for result in results:
        frame, config = result.metrics_dataframe, dict(result.config or {})
        assert frame is not None
        layer = config.pop("layer", None)
        config.pop("log", None)
        size = None if layer is None else layer.size
        rows.append([config, size, frame["loss"].tolist(), frame["nested/step"].tolist()])
    return rows


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, [])) for name in ("random", "grid", "asha", *SEARCHES)]
)
def test_a_killed_experiment_continues_where_it_stopped(name: str, tmp_path: Path) -> None:
    """No finished trial runs again; other trials resume from their checkpoints; searcher and ASHA have all results.

    The experiment `random` has objects in its configurations, which the log does not contain.
    """
    np.random.seed(0)  # noqa: NPY002  # Tune's generator
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = described(archray.DurableTuner(**experiment(name, tmp_path / "a" / "run")).fit())
    assert len(whole) == TRIALS
    ended = killed(name, tmp_path / "b" / "run", results=2 * STEPS + 2)
    assert len(ended) >= 1
    trainable = experiment(name, tmp_path / "b" / "run")["trainable"]
    results = archray.DurableTuner.restore(tmp_path / "b" / "moved", trainable).fit()
    again = described(results)
    if name == "batches":  # two trials at a time: the order of their ends is open
        assert len(again) == TRIALS
    else:
        assert again == whole
    repeated = steps(tmp_path / "b") - steps(tmp_path / "a")
    if name != "batches":
        # the step whose result the kill prevented, and without checkpoints those before it
        assert len(repeated) <= (1 if trainable is Class else 2), repeated
    if trainable is Class:
        for result in results:
            assert result.checkpoint is not None


def test_a_damaged_checkpoint_costs_one_step(tmp_path: Path) -> None:
    killed("random", tmp_path / "run", results=STEPS)
    newest = max((tmp_path / "moved").glob("session-1/*/checkpoint_*"))
    assert newest.name.endswith(f"{STEPS - 2:06d}")
    (newest / "steps").write_text("")
    results = archray.DurableTuner.restore(tmp_path / "moved", Class).fit()
    assert [row[3] for row in described(results)] == [[1, 2, 3]] * TRIALS
    first = json.dumps([results[0].config["x"], STEPS - 1])  # type: ignore[index]
    assert steps(tmp_path)[first] == 2


class Touch:
    """An object whose pickle creates a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


def test_a_restore_with_all_arguments_reads_no_pickle(tmp_path: Path) -> None:
    arguments = experiment("random", tmp_path / "run", StopAfterOne())
    assert 1 <= len(archray.DurableTuner(**arguments).fit()) < TRIALS
    pickles = [file for file in (tmp_path / "run").rglob("*") if file.suffix == ".pkl"]
    assert tmp_path / "run" / ARGUMENTS in pickles
    for file in pickles:
        file.write_bytes(cloudpickle.dumps(Touch(tmp_path / "executed")))
    given = experiment("random", tmp_path / "run")
    results = archray.DurableTuner.restore(tmp_path / "run", **given).fit()
    assert [row[3] for row in described(results)] == [[1, 2, 3]] * TRIALS
    assert not (tmp_path / "executed").exists()
    given.pop("run_config")
    with pytest.raises(DamagedFile, match=rf"{ARGUMENTS}.*pass param_space, tune_config and run_config"):
        archray.DurableTuner.restore(tmp_path / "run", **given)
    assert (tmp_path / "executed").exists()


class StopAfterOne(tune.Callback):
    """Stops the experiment as Ctrl-C when its first trial has ended."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if trial is trials[0]:
            os.kill(os.getpid(), signal.SIGINT)


JOIN = """
import os
import ray
from ray import tune
from ray.cluster_utils import Cluster
import archray

def fit(name):
    tuner = archray.DurableTuner(lambda config: {"x": 1}, run_config=tune.RunConfig(name, os.getcwd(), verbose=0))
    assert not tuner.fit().errors
    ray.shutdown()

cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, num_gpus=0, include_dashboard=False))
os.environ["RAY_ADDRESS"] = cluster.address
print("address", cluster.address)
fit("joined")
ray.init()
fit("initialized")
cluster.shutdown()
os.environ["RAY_ADDRESS"] = "local"
fit("started")
"""


@pytest.mark.slow
def test_the_cluster_that_an_experiment_joins_is_printed(tmp_path: Path) -> None:
    """The token of a Ray that the experiment starts is private; Ray itself would create a public one."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    environment = {**inherited, "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", JOIN], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    address, *joined = [line for line in done.stdout.splitlines() if "address" in line or "Joined" in line]
    assert joined == [f"Joined the Ray cluster at {address.removeprefix('address ')}."] * 2
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600


class Failure(tune.Callback):
    """Fails when it receives a result, once in each session."""

    def __init__(self, results: int) -> None:
        self.left = results

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("a bug in a callback")


def test_errors_in_the_driver_lose_no_trial(tmp_path: Path) -> None:
    """The second session starts with trials of the first."""
    whole = tmp_path / "run"
    with pytest.raises(TuneError, match="a bug in a callback"):
        archray.DurableTuner(**experiment("evolution", whole, Failure(4))).fit()
    for results in (4, 100):
        tuner = archray.DurableTuner.restore(whole, **experiment("evolution", whole, Failure(results)))
        if results == 4:
            with pytest.raises(TuneError, match="a bug in a callback"):
                tuner.fit()
        else:
            assert [row[3] for row in described(tuner.fit())] == [[1, 2, 3]] * TRIALS
    assert sum(steps(tmp_path).values()) <= TRIALS * STEPS + 2


@pytest.mark.parametrize("how", ["resume_errored", "restart_errored"])
def test_failed_trials_run_again_on_request(how: str, tmp_path: Path) -> None:
    log, broken = tmp_path / "log", tmp_path / "broken"
    broken.touch()

    def train(config: dict[str, Any]) -> None:
        with log.open("a") as file:
            file.write(f"{config['x']}\n")
        if config["x"] == 1 and broken.exists():
            raise ValueError("a fault of the trainable")
        tune.report({"loss": config["x"]})

    first = archray.DurableTuner(
        train,
        param_space={"x": tune.grid_search([0, 1, 2])},
        run_config=tune.RunConfig(name="failed", storage_path=str(tmp_path), verbose=0),
    )
    assert first.fit().num_errors == 1
    broken.unlink()
    log.write_text("")
    assert archray.DurableTuner.restore(tmp_path / "failed", train).fit().num_errors == 1 and log.read_text() == ""
    results = archray.DurableTuner.restore(tmp_path / "failed", train, **{how: True}).fit()
    assert log.read_text().split() == ["1"]
    assert results.num_errors == 0 and sorted(results.get_dataframe()["loss"]) == [0, 1, 2]


def test_a_trial_whose_actor_cannot_be_reset_fails(tmp_path: Path) -> None:
    """Tune informs neither callbacks nor searchers of its end."""

    class Unusable(Class):
        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return bool(new_config["x"] != 0.25) and super().reset_config(new_config)

    arguments = {**experiment("grid", tmp_path / "run"), "trainable": Unusable}
    results = archray.DurableTuner(**arguments).fit()
    assert (results.num_terminated, results.num_errors) == (TRIALS - 2, 2)
    assert "reset_config" in str(results.errors[0])


class KillFirst(tune.Callback):
    """Kills the process of the first trial after its last result; Tune then gives its actor to the second trial."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if trial is trials[0]:
            process = Path(f"/proc/{trial.last_result['pid']}")
            os.kill(int(process.name), signal.SIGKILL)
            while process.exists() and " Z " not in (process / "stat").read_text():
                time.sleep(0.01)


@pytest.mark.parametrize(("retries", "failed"), [(0, 1), (1, 0)])
def test_a_trial_with_a_dead_idle_actor_runs_again(retries: int, failed: int, tmp_path: Path) -> None:
    """Tune does not retry it."""
    arguments = experiment("evolution", tmp_path / "run", KillFirst())
    arguments["trainable"] = Class
    arguments["run_config"].failure_config = tune.FailureConfig(max_failures=retries)
    results = archray.DurableTuner(**arguments).fit()
    assert (len(results), results.num_errors) == (TRIALS, failed)
    assert sum(steps(tmp_path).values()) == (TRIALS - failed) * STEPS
    logged = read_log(Folder(tmp_path / "run"), str(tmp_path / "run"), trusted=True)
    assert logged is not None
    deaths = [trial.failure["processes"] for trial in logged.trials.values() if trial.failure]
    assert list(map(len, deaths)) == [1]


def test_after_ctrl_c_the_hint_names_the_durable_tuner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("ray"), "propagate", True)
    caplog.set_level(logging.WARNING, "ray.tune.tune")
    folder = tmp_path / "interrupted"
    first = archray.DurableTuner(**experiment("grid", folder, StopAfterOne()))
    assert 1 <= len(first.fit()) < TRIALS
    assert f'with: archray.DurableTuner.restore(path="{folder}", trainable=...)' in caplog.text
    with pytest.raises(RunFolderError, match=r"a second call. Continue the experiment with DurableTuner\.restore"):
        first.fit()


def test_an_experiment_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": 1.0})

    monkeypatch.chdir(tmp_path)
    config = tune.RunConfig(name="e", storage_path=".", verbose=0)  # plain Tune rejects a relative path
    archray.DurableTuner(train, run_config=config).fit()
    with pytest.raises(RunFolderError, match=r"Resume it with DurableTuner\.restore"):
        archray.DurableTuner(train, run_config=config)
    for _ in range(3):  # an experiment can be restored several times
        [result] = archray.DurableTuner.restore(tmp_path / "e", train).fit()
        assert result.metrics is not None and result.metrics["loss"] == 1


def test_wrong_configurations_raise_errors(tmp_path: Path) -> None:
    def tuner(**options: Any) -> archray.DurableTuner:
        config = {"name": "e", "storage_path": str(tmp_path), **options.pop("run", {})}
        return archray.DurableTuner(Class, run_config=tune.RunConfig(**config), **options)

    with pytest.raises(InvalidInput, match="a name in run_config"):
        tuner(run={"name": None})
    with pytest.raises(InvalidInput, match="num_to_keep of at least 2"):
        tuner(run={"checkpoint_config": tune.CheckpointConfig(num_to_keep=1)})
    for search in (BasicVariantGenerator(), "variant_generator"):
        with pytest.raises(InvalidInput, match="got BasicVariantGenerator"):
            tuner(tune_config=tune.TuneConfig(search_alg=search))
    assert not archray.DurableTuner.can_restore(tmp_path / "e")
    with pytest.raises(RunFolderError, match="got none"):
        archray.DurableTuner.restore(tmp_path / "e", Class)
