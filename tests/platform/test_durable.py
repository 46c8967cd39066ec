"""`DurableTuner`: an experiment continues from a copy of its folder at any moment, as after a kill of its driver."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import ConcurrencyLimiter, Repeater, Searcher

import archray
from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.run.tune_snapshot import experiment_state, kept_trials
from archray.searchers import LocalSearch, RandomSearch, RegularizedEvolution
from archray.searchers.drive_searcher import replay_calls
from archray.searchers.ledger import TuneTrial

DOMAINS = {"x": tune.uniform(0, 1), "y": tune.choice([1, 2, 3])}
TRIALS, STEPS = 6, 2


def trainable(log: Path) -> Callable[[dict[str, Any]], None]:
    """A function trainable without checkpoints. Each start of a trial is a line of `log`."""

    def train(config: dict[str, Any]) -> None:
        with log.open("a") as file:
            file.write(json.dumps({"x": config["x"], "y": config["y"]}) + "\n")
        for step in range(STEPS):
            tune.report({"loss": (config["x"] - 0.3) ** 2 + config["y"], "nested": {"step": step}})

    return train


class Copies(tune.Callback):
    """Copies the folder of the experiment when some numbers of trials are saved as ended."""

    def __init__(self, ended: Sequence[int], place: Path) -> None:
        self.ended, self.place = set(ended), place

    def __getstate__(self) -> dict[str, Any]:
        return {"ended": set(), "place": self.place}  # a restored experiment makes no copies

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.ended and trials:
            folder = Folder(trials[0].storage.experiment_fs_path)
            saved = sum(trial["status"] == "TERMINATED" for trial in kept_trials(folder))
            if saved in self.ended:
                self.ended.discard(saved)
                shutil.copytree(folder.path, self.place / f"after-{saved}")


def evolution() -> Searcher:
    return RegularizedEvolution(DOMAINS, budget=TRIALS, population=3, sample_size=2, metric="loss", mode="min", seed=0)


def optuna() -> Searcher:
    samplers: Any = pytest.importorskip("optuna").samplers
    from ray.tune.search.optuna import OptunaSearch

    return OptunaSearch(sampler=samplers.TPESampler(seed=0, n_startup_trials=2))


def hyperopt() -> Searcher:
    pytest.importorskip("hyperopt")
    from ray.tune.search.hyperopt import HyperOptSearch

    return HyperOptSearch(random_state_seed=0, n_initial_points=2)


ARCHRAY: dict[str, Callable[[], Searcher]] = {
    "evolution": evolution,
    "random-search": lambda: RandomSearch(DOMAINS, budget=TRIALS, metric="loss", mode="min", seed=0),
    "local-search": lambda: LocalSearch(
        {"x": tune.choice([0.1, 0.3, 0.6]), "y": DOMAINS["y"]}, budget=TRIALS, metric="loss", mode="min", seed=0
    ),
}
needs_extra = pytest.mark.extra("tune-searchers")
SEARCHES = [
    pytest.param(lambda: None, id="random"),
    *[
        pytest.param(make, id=name, marks=[pytest.mark.slow, pytest.mark.ci] if name != "evolution" else [])
        for name, make in ARCHRAY.items()
    ],
    pytest.param(optuna, id="optuna", marks=needs_extra),
    pytest.param(hyperopt, id="hyperopt", marks=needs_extra),
    pytest.param(lambda: ConcurrencyLimiter(optuna(), 2, batch=True), id="batches", marks=needs_extra),
]


def experiment(folder: Path, log: Path, search: Searcher | None, *callbacks: tune.Callback) -> Any:
    mine = isinstance(search, RegularizedEvolution | RandomSearch | LocalSearch)
    limited = isinstance(search, ConcurrencyLimiter)
    return archray.DurableTuner(
        trainable(log),
        param_space=None if mine else DOMAINS,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=-1 if mine else TRIALS,
            search_alg=search,
            max_concurrent_trials=None if limited else 1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=folder.name, storage_path=str(folder.parent), verbose=0, callbacks=list(callbacks)
        ),
    )


def configs(results: tune.ResultGrid) -> list[tuple[float, int]]:
    assert not results.errors
    return sorted((result.config["x"], result.config["y"]) for result in results)  # type: ignore[index]


@pytest.mark.parametrize("search", SEARCHES)
def test_no_finished_trial_runs_again(search: Callable[[], Searcher | None], ray_session: None, tmp_path: Path) -> None:
    made = search()
    log, copies = tmp_path / "log", Copies([1, 4], tmp_path)
    whole = configs(experiment(tmp_path / "whole", log, made, copies).fit())
    assert len(whole) == TRIALS
    for place in sorted(tmp_path.glob("after-*")):
        ended = int(place.name.removeprefix("after-"))
        log.write_text("")
        results = archray.DurableTuner.restore(place, trainable(log)).fit()
        assert len(log.read_text().splitlines()) == TRIALS - ended
        assert len(results) == TRIALS and len(set(configs(results))) == len(set(whole))
        if made is not None and not isinstance(made, ConcurrencyLimiter):  # a searcher with a seed, one trial at a time
            assert configs(results) == whole
        for result in results:
            frame = result.metrics_dataframe
            assert frame is not None and frame["nested/step"].tolist() == [0, 1]
    assert len(list(tmp_path.glob("after-*"))) == 2


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
    """Fails when `ended` trials are saved as ended; in the restored experiment two trials later."""

    def __init__(self, ended: int, folder: Path) -> None:
        self.ended, self.folder, self.count = ended, folder, 0

    def __getstate__(self) -> dict[str, Any]:
        return {"ended": self.ended + 2, "folder": self.folder, "count": 0}

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.count += 1

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if (
            self.count == 2
            and sum(trial["status"] == "TERMINATED" for trial in kept_trials(Folder(self.folder))) == self.ended
        ):
            raise RuntimeError("a bug in a callback")


@pytest.mark.parametrize("search", [lambda: None, evolution], ids=["random", "evolution"])
def test_errors_in_the_driver_lose_no_trial(
    search: Callable[[], Searcher | None], ray_session: None, tmp_path: Path
) -> None:
    log, folder = tmp_path / "log", tmp_path / "whole"
    with pytest.raises(RuntimeError, match="a bug in a callback"):
        experiment(folder, log, search(), Failure(2, folder)).fit()
    for ended in (2, 4):  # the second session starts with a state of the first
        log.write_text("")
        tuner = archray.DurableTuner.restore(folder, trainable(log))
        if ended == 2:
            with pytest.raises(RuntimeError, match="a bug in a callback"):
                tuner.fit()
        else:
            assert len(configs(tuner.fit())) == TRIALS
            assert len(log.read_text().splitlines()) == TRIALS - ended


def test_an_unfinished_trial_resumes_from_its_checkpoint(ray_session: None, tmp_path: Path) -> None:
    log, copy = tmp_path / "log", tmp_path / "copy"

    def train(config: dict[str, Any]) -> None:
        done = 0
        if checkpoint := tune.get_checkpoint():
            with checkpoint.as_directory() as place:
                done = int((Path(place) / "steps").read_text())
        for step in range(done + 1, 6):
            with log.open("a") as file:
                file.write(f"{step}\n")
            with tempfile.TemporaryDirectory() as place:
                (Path(place) / "steps").write_text(str(step))
                tune.report({"loss": 1 / step}, checkpoint=tune.Checkpoint(place))

    class CopyAfterThree(tune.Callback):
        def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
            folder = Folder(trials[0].storage.experiment_fs_path)
            if (saved := experiment_state(folder)) is None:
                return
            [state] = [TuneTrial.read(*parts) for parts in json.loads(saved)["trial_data"]]
            if state.last_result.get("training_iteration") == 3 and not copy.exists():
                shutil.copytree(folder.path, copy)

    archray.DurableTuner(
        train,
        run_config=tune.RunConfig(
            name="whole", storage_path=str(tmp_path), verbose=0, callbacks=[CopyAfterThree()],
            checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        ),
    ).fit()  # fmt: skip
    assert log.read_text().split() == ["1", "2", "3", "4", "5"]
    log.write_text("")
    [result] = archray.DurableTuner.restore(copy, train).fit()
    assert log.read_text().split() == ["4", "5"]
    assert result.metrics_dataframe is not None and len(result.metrics_dataframe) == 5


def test_asha_continues_with_all_results(ray_session: None, tmp_path: Path) -> None:
    """The first two trials are good. Without their results, ASHA would train every later trial to its end."""

    def train(config: dict[str, Any]) -> None:
        for _ in range(4):
            tune.report({"loss": config["x"], "y": config["y"]})

    copies = Copies([3], tmp_path)
    archray.DurableTuner(
        train,
        param_space={"x": tune.grid_search([0, 1, 2, 3, 4, 5, 6, 7]), "y": 0},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            max_concurrent_trials=1,
            reuse_actors=True,
            scheduler=ASHAScheduler(max_t=4, grace_period=1, reduction_factor=4),
        ),
        run_config=tune.RunConfig(name="whole", storage_path=str(tmp_path), verbose=0, callbacks=[copies]),
    ).fit()
    results = archray.DurableTuner.restore(tmp_path / "after-3", train).fit()
    iterations = {result.config["x"]: result.metrics["training_iteration"] for result in results}  # type: ignore[index]
    assert iterations[0] == 4
    assert [iterations[x] for x in range(3, 8)] == [1] * 5


class Unseeded(Searcher):
    """A searcher whose suggestions do not follow from its saved state."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.ended: dict[str, bool] = {}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {"x": random.SystemRandom().random(), "y": 1}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.ended[trial_id] = error

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_text(json.dumps(self.ended))

    def restore(self, checkpoint_path: str) -> None:
        self.ended = json.loads(Path(checkpoint_path).read_text())


def test_a_searcher_learns_nothing_from_a_trial_that_it_does_not_repeat(caplog: pytest.LogCaptureFixture) -> None:
    events = [
        TuneTrial("a", {"x": 0.5, "y": 1}, "TERMINATED", {"loss": 1.0}),  # in the searcher's saved state
        TuneTrial("b", {"x": 0.5, "y": 1}, "PENDING", {}),
        TuneTrial("b", {"x": 0.5, "y": 1}, "TERMINATED", {"loss": 1.0}),
    ]
    searcher = Unseeded()
    replay_calls(searcher, events, {"a": "RUNNING"})
    assert searcher.ended == {"a": False, "b": True}
    assert "does not learn from this trial" in caplog.text


@pytest.mark.parametrize("how", ["resume_errored", "restart_errored"])
def test_failed_trials_run_again_on_request(how: str, ray_session: None, tmp_path: Path) -> None:
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


def test_after_ctrl_c_the_hint_names_the_durable_tuner(
    ray_session: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("ray"), "propagate", True)
    caplog.set_level(logging.WARNING, "ray.tune.tune")

    class CtrlC(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            if trial is trials[0]:
                os.kill(os.getpid(), signal.SIGINT)

    log, folder = tmp_path / "log", tmp_path / "interrupted"
    first = experiment(folder, log, None, CtrlC())
    assert 1 <= len(first.fit()) < TRIALS
    assert f'with: archray.DurableTuner.restore(path="{folder}", trainable=...)' in caplog.text
    with pytest.raises(RunFolderError, match=r"a second call. Continue the experiment with DurableTuner\.restore"):
        first.fit()
    with pytest.raises(RunFolderError, match=r"got ray\.tune\.Tuner\.restore"):
        tune.Tuner.restore(str(folder), trainable(log)).fit()
    assert len(configs(archray.DurableTuner.restore(folder, trainable(log)).fit())) == TRIALS


def test_an_experiment_is_not_overwritten(ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_wrong_configurations_raise_errors(ray_session: None, tmp_path: Path) -> None:
    train = trainable(tmp_path / "log")
    with pytest.raises(InvalidInput, match="a name in run_config"):
        archray.DurableTuner(train, run_config=tune.RunConfig(storage_path=str(tmp_path)))
    one = tune.CheckpointConfig(num_to_keep=1)
    with pytest.raises(InvalidInput, match="num_to_keep of at least 2"):
        archray.DurableTuner(
            train, run_config=tune.RunConfig(name="e", storage_path=str(tmp_path), checkpoint_config=one)
        )
    with pytest.raises(InvalidInput, match="got Repeater"):
        experiment(tmp_path / "e", tmp_path / "log", ConcurrencyLimiter(Repeater(evolution(), repeat=2), 2))
    assert not archray.DurableTuner.can_restore(tmp_path / "e")
    with pytest.raises(RunFolderError, match="got none"):
        archray.DurableTuner.restore(tmp_path / "e", train)
