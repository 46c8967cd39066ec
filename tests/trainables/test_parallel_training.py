"""Several workers train one network with the batches, loss curves, results and checkpoints of a single worker."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
import pytest
import ray
import torch
from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, ResultGrid, RunConfig, TuneConfig, Tuner
from torch import distributed as dist

from archray.errors import InvalidInput
from archray.trainables.data import DataSettings, load_images
from archray.trainables.data.dataset import Augmentation
from archray.trainables.data.settings import AugmentationSettings
from archray.trainables.training import Team, Trainer, passes_of
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune import parallel_trainable
from archray.trainables.tune.parallel_trainable import ParallelTrainable, TrainWorker
from archray.trainables.tune.standalone_trainable import METRICS, StandaloneTrainable, load_trained

CELL = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|nor_conv_1x1~2|"


@pytest.mark.parametrize(("size", "count"), [(1, 7), (2, 33), (3, 16), (7, 7)])
def test_the_parts_of_a_batch_add_up_to_the_batch(size: int, count: int) -> None:
    parts = [range(count)[Team(rank, size).part(count)] for rank in range(size)]
    assert [index for part in parts for index in part] == list(range(count))
    assert {len(part) for part in parts} <= {count // size, math.ceil(count / size)}


@pytest.mark.parametrize(("workers", "micro"), [(1, None), (2, 1), (3, 5), (3, 100)])
def test_every_worker_has_as_many_passes_and_none_is_empty(workers: int, micro: int | None) -> None:
    for images in (workers, 17, 32):
        passes = passes_of(images, workers, micro)
        for rank in range(workers):
            sizes = [len(some) for some in torch.arange(images)[Team(rank, workers).part(images)].tensor_split(passes)]
            assert min(sizes) >= 1
            assert micro is None or max(sizes) <= micro + 1


def test_the_parts_of_a_batch_are_augmented_like_the_whole() -> None:
    augment = Augmentation(AugmentationSettings(crop=2, flip=True, cutout=3))
    images = torch.rand(9, 3, 8, 8)
    whole = augment(images, torch.Generator().manual_seed(1))
    parts = [Team(rank, 2).part(9) for rank in range(2)]
    again = [augment(images[part], torch.Generator().manual_seed(1), part, 9) for part in parts]
    assert torch.equal(torch.cat(again), whole)


SPACES = Path(__file__).parents[1] / "worker_modules" / "archray_test_memory.py"
PLAIN = {"space": f"{SPACES}:MemorySpace", "architecture": "width=4|kernel=3"}  # without batch normalization


def config(epochs: int = 3, **training: Any) -> dict[str, Any]:
    return {
        "settings": {
            "data": {"name": "digits", "limit": 90},
            "network": {"channels": 4, "cells": 1},
            # 90 images in batches of 16 and less: no two parts have the same size
            "training": {"epochs": epochs, "batch_size": 16, "lr": 0.05, "threads": 1, **training},
        },
        "architecture": CELL,
        # At 1 a unit lies at its ReLU's kink: weights that differ by 1e-7 then end in losses that differ by 1e-3.
        "seed": 2,
    }


def fit(
    folder: Path, space: dict[str, Any], workers: int, name: str, *, cpus: float = 1, at_a_time: int = 1, **options: Any
) -> ResultGrid:
    bundles = tune.PlacementGroupFactory([{}, *[{"CPU": cpus}] * workers])
    return Tuner(
        tune.with_resources(ParallelTrainable, bundles),
        param_space=space,
        tune_config=TuneConfig(max_concurrent_trials=at_a_time, reuse_actors=at_a_time == 1),
        run_config=RunConfig(
            name=name,
            storage_path=str(folder),
            verbose=0,
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1, num_to_keep=1),
            **options,
        ),
    ).fit()


def curves(results: ResultGrid, number: int = 0) -> pd.DataFrame:
    assert not results.errors, results.errors
    return results[number].metrics_dataframe


def assert_equal_curves(ours: pd.DataFrame, theirs: pd.DataFrame, **tolerance: float) -> None:
    assert list(ours["epoch"]) == list(theirs["epoch"])
    for metric in (*METRICS, "lr", "parameters", "multiply_adds"):
        assert ours[metric].tolist() == pytest.approx(theirs[metric].tolist(), nan_ok=True, **tolerance), metric


def without_batch_norm(space: dict[str, Any]) -> dict[str, Any]:
    settings = {key: value for key, value in space["settings"].items() if key != "network"}
    return {**space, "settings": {**settings, "space": PLAIN["space"]}, "architecture": PLAIN["architecture"]}


def single_worker_curves(space: dict[str, Any]) -> pd.DataFrame:
    """Returns the curves of one worker in this process."""
    trainable = StandaloneTrainable(space)
    return pd.DataFrame([trainable.step() for _ in range(space["settings"]["training"]["epochs"])])


def test_the_gradients_of_passes_add_up_to_that_of_the_batch() -> None:
    whole, passes = (single_worker_curves(without_batch_norm(config(micro_batch_size=size))) for size in (None, 5))
    assert_equal_curves(passes, whole, rel=1e-4)
    assert whole["train_loss"].is_monotonic_decreasing


def test_more_workers_than_images_per_batch_raise_an_error() -> None:
    dataset = load_images(DataSettings(name="digits", limit=90))
    with pytest.raises(InvalidInput, match=r"at most as many workers as a batch has images, 15, got 16. Lower train_w"):
        Trainer(torch.nn.Linear(1, 1), dataset, TrainingSettings(batch_size=16), seed=1, team=Team(0, 16))


JOIN = """
import sys
from archray.trainables.tune.parallel_trainable import TrainWorker, dist

TrainWorker(1, 2, {}, "", 0, gpus=0, threads=1).join(sys.argv[1])
dist.barrier()
"""


def test_no_other_program_can_take_the_port_of_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_trainable, "LOOPBACK", "")  # so that a team on loopback uses a port
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")  # without Ray
    first = TrainWorker(0, 2, {}, "", 0, gpus=0, threads=torch.get_num_threads())
    meeting = first.meeting()
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", urlsplit(meeting).port))
    with subprocess.Popen([sys.executable, "-c", JOIN, meeting]) as second:
        first.join(meeting)
        try:
            dist.barrier()
        finally:
            dist.destroy_process_group()
    assert second.returncode == 0


def test_a_trial_without_bundles_for_workers_raises_an_error() -> None:
    with pytest.raises(InvalidInput, match=r"one bundle for each worker. Use tune.PlacementGroupFactory"):
        ParallelTrainable(config()).step()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_two_workers_have_the_loss_curves_of_one(tmp_path: Path) -> None:
    """Batches of 15 images, which two workers cannot halve, normalized as a whole, augmented and clipped."""
    space = config(augmentation={"crop": 1, "flip": False, "cutout": 2}, grad_clip=5.0, label_smoothing=0.1)
    results = fit(tmp_path, space, 2, "two")
    one = single_worker_curves(space)
    assert_equal_curves(curves(results), one, rel=1e-4, abs=1e-5)
    assert one["train_loss"].nunique() == 3
    with results[0].checkpoint.as_directory() as place:  # can be read without knowledge of workers
        network = load_trained(place)
    assert not [name for name in network.state_dict() if "module." in name]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_two_workers_that_add_up_passes(tmp_path: Path) -> None:
    space = without_batch_norm(config(micro_batch_size=3))
    assert_equal_curves(
        curves(fit(tmp_path, space, 2, "passes")), single_worker_curves(without_batch_norm(config())), rel=1e-4
    )


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_workers_with_separate_statistics_learn_equally_well(tmp_path: Path) -> None:
    """Each normalizes 7 or 8 images separately. The network differs, but trains similarly."""
    space = config(epochs=8, sync_batch_norm=False)
    two, one = curves(fit(tmp_path, space, 2, "own")), single_worker_curves(space)
    assert two["train_loss"].tolist() != pytest.approx(one["train_loss"].tolist(), rel=1e-3)
    assert two["train_loss"].tolist() == pytest.approx(one["train_loss"].tolist(), rel=0.25)


class LoseWorker(tune.Callback):
    """Kills the last worker after the second epoch, once; the checkpoint is that of the first."""

    def __init__(self) -> None:
        self.lost = False

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        if result["epoch"] == 2 and not self.lost:
            self.lost = True
            os.kill(max(workers_alive()), signal.SIGKILL)


def workers_alive() -> list[int]:
    """Returns the processes of workers."""
    actors = ray._private.state.actors().values()  # noqa: TID251  # Ray's public list of actors needs its dashboard
    return [actor["Pid"] for actor in actors if actor["ActorClassName"] == "TrainWorker" and actor["State"] == "ALIVE"]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_a_training_continues_after_a_worker_was_lost(tmp_path: Path) -> None:
    lose = LoseWorker()
    failures = FailureConfig(max_failures=1)
    results = fit(tmp_path, config(), 2, "lost", callbacks=[lose], failure_config=failures)
    assert lose.lost
    assert not results.errors
    last, one = results[0].metrics, single_worker_curves(config()).iloc[-1]
    assert (last["iterations_since_restore"], last["epoch"]) == (2, 3)
    for metric in METRICS:
        assert last[metric] == pytest.approx(one[metric], rel=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_running_out_of_memory_in_one_worker_is_a_result(tmp_path: Path) -> None:
    space = without_batch_norm(config()) | {"architecture": "width=8|kernel=1"}  # at no share of a GPU
    [result] = fit(tmp_path, space, 2, "short")
    assert result.error is None
    assert result.metrics["failure"].startswith("out of memory: CUDA out of memory")
    assert result.metrics["done"] is True
    assert workers_alive() == []


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_trials_stopped_in_the_middle_leave_nothing_behind(tmp_path: Path) -> None:
    space = config(epochs=1000) | {"number": tune.grid_search(list(range(20)))}
    results = fit(tmp_path, space, 2, "stopped", cpus=0.25, at_a_time=4, stop={"training_iteration": 2})
    assert len(results) == 20
    assert not results.errors
    assert {result.metrics["training_iteration"] for result in results} == {2}
    groups = ray.util.placement_group_table().values()
    assert len(groups) >= 20
    assert {group["state"] for group in groups} == {"REMOVED"}
    assert workers_alive() == []
