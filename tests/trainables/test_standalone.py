"""The standalone trainable: results, failures, resume in a new process. test_trials.py has tests of all trainables."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from archray.errors import InvalidInput, UnknownName
from archray.trainables.checkpoint import STATE_FILE, read_state, write_state
from archray.trainables.devices import choose_device, out_of_memory
from archray.trainables.tune.standalone_trainable import METRICS, StandaloneTrainable, load_trained

CELL = "|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|none~1|avg_pool_3x3~2|"
KEYS = {*METRICS, "epoch", "epochs", "lr", "parameters", "multiply_adds", "seconds_epoch", "gpu_memory_peak"}
KEYS |= {"failure", "done"}

GREEDY_SPACE = """
import torch
from archray.trainables.spaces import Decision, Space

class Greedy(torch.nn.Linear):
    def forward(self, images):
        if self.training:
            torch.empty(2**60, dtype=torch.uint8)  # more than any machine has
        return super().forward(images.flatten(1))

class GreedySpace(Space):
    name = "greedy"
    decisions = (Decision("size", ("huge", "small")),)

    def build(self, architecture, *, in_channels, num_classes):
        kind = Greedy if architecture == ("huge",) else torch.nn.Linear
        return torch.nn.Sequential(torch.nn.Flatten(), kind(64 * in_channels, num_classes))
"""


def make_config(architecture: str = CELL, seed: int | None = 5, **training: Any) -> dict[str, Any]:
    """A tiny network on 60 digits."""
    settings: dict[str, Any] = {
        "data": {"name": "digits", "limit": 60},
        "network": {"channels": 4, "cells": 1},
        "training": {"epochs": 2, "batch_size": 16, **training},
    }
    return {"settings": settings, "architecture": architecture} | ({} if seed is None else {"seed": seed})


def run(trainable: StandaloneTrainable, steps: int) -> list[dict[str, Any]]:
    return [trainable.step() for _ in range(steps)]


def comparable(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the result without wall-clock time and with NaN made equal to itself."""
    return [{k: repr(v) for k, v in result.items() if k != "seconds_epoch"} for result in results]


def parameters(trainable: StandaloneTrainable) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in trainable.trainer.network.state_dict().items()}


def assert_bit_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [key for key in one if not torch.equal(one[key], other[key])] == []


# Results


def test_every_result_has_the_same_keys_and_the_last_one_has_test_metrics() -> None:
    first, last = run(StandaloneTrainable(make_config()), 2)
    assert first.keys() == last.keys() == KEYS
    assert (first["epoch"], first["done"], last["epoch"], last["done"]) == (1, False, 2, True)
    assert math.isnan(first["test_accuracy"])
    assert last["lr"] == 0.0
    assert first["failure"] is None
    assert first["parameters"] > 0
    assert first["multiply_adds"] > 0
    for split in ("train", "validation", "test"):
        assert 0 <= last[f"{split}_accuracy"] <= 1
        assert math.isfinite(last[f"{split}_loss"])
    json.dumps(last)


@pytest.mark.parametrize(("when", "evaluated"), [("every", [True, True]), ("never", [False, False])])
def test_the_epochs_at_which_the_test_split_is_evaluated(when: str, evaluated: list[bool]) -> None:
    config = make_config()
    config["settings"]["evaluate_test"] = when
    results = run(StandaloneTrainable(config), 2)
    assert [math.isfinite(result["test_accuracy"]) for result in results] == evaluated


# Resume


@pytest.mark.slow
def test_four_epochs_equal_two_and_two_in_a_fresh_process(tmp_path: Path) -> None:
    augmentation = {"crop": 1, "flip": True, "cutout": 3}
    config = make_config(epochs=4, threads=1, augmentation=augmentation, label_smoothing=0.1, grad_clip=5.0)
    straight = StandaloneTrainable(config)
    expected = run(straight, 4)

    beginning = (
        "import json, sys\n"
        "from archray.trainables.tune.standalone_trainable import StandaloneTrainable\n"
        "trainable = StandaloneTrainable(json.loads(sys.argv[1]))\n"
        "results = [trainable.step() for _ in range(2)]\n"
        "trainable.save_checkpoint(sys.argv[2])\n"
        "print(json.dumps(results))\n"
    )
    command = [sys.executable, "-c", beginning, json.dumps(config), str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    got = json.loads(done.stdout.splitlines()[-1])

    continued = StandaloneTrainable(config)
    continued.load_checkpoint(str(tmp_path))
    got += run(continued, 2)
    assert comparable(got) == comparable(expected)
    assert_bit_equal(parameters(continued), parameters(straight))


def test_a_checkpoint_has_only_tensors_and_plain_data(tmp_path: Path) -> None:
    trainable = StandaloneTrainable(make_config())
    trainable.step()
    trainable.save_checkpoint(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]
    state = torch.load(tmp_path / STATE_FILE, weights_only=True)

    def kinds(value: Any) -> set[type]:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        return {type(value)}.union(*map(kinds, inside))

    plain = {dict, list, tuple, str, int, float, bool, type(None), torch.Tensor}
    assert {kind.__name__ for kind in kinds(state) - plain} <= {"OrderedDict"}


def test_a_failed_write_keeps_the_old_state(tmp_path: Path) -> None:
    write_state(tmp_path, {"epoch": 1})
    with pytest.raises((AttributeError, TypeError, RuntimeError)):
        write_state(tmp_path, {"weights": torch.zeros(1000), "epoch": (x for x in ())})
    assert read_state(tmp_path) == {"epoch": 1}
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


def test_a_trained_network_loads_from_its_checkpoint(tmp_path: Path) -> None:
    trainable = StandaloneTrainable(make_config())
    last = run(trainable, 2)[-1]
    trainable.save_checkpoint(str(tmp_path))
    network = load_trained(tmp_path)
    assert not network.training
    test = trainable.trainer.dataset.test
    accuracy = (network(test.images).argmax(1) == test.labels).double().mean().item()
    assert accuracy == pytest.approx(last["test_accuracy"])


# Failures are results


def assert_failed(result: dict[str, Any], reason: str) -> None:
    assert result.keys() == KEYS
    assert result["done"] is True
    assert all(math.isnan(result[metric]) for metric in METRICS)
    assert reason in result["failure"]


@pytest.mark.parametrize(
    ("architecture", "reason"), [("|conv5x5~0|", "nasbench201"), (CELL.replace("none", "conv5x5"), "conv5x5")]
)
def test_an_invalid_architecture_is_a_result(tmp_path: Path, architecture: str, reason: str) -> None:
    trainable = StandaloneTrainable(make_config(architecture))
    assert_failed(trainable.step(), reason)
    trainable.save_checkpoint(str(tmp_path))
    with pytest.raises(InvalidInput, match="its trial failed"):
        load_trained(tmp_path)


def test_a_nonfinite_loss_stops_the_trial() -> None:
    trainable = StandaloneTrainable(make_config(epochs=9, lr=1e30))
    result = trainable.step()
    assert_failed(result, "got nan in epoch 1")
    assert comparable([trainable.step()]) == comparable([result])


def test_running_out_of_memory_is_a_result_and_the_next_trial_trains(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(GREEDY_SPACE)
    config = make_config("size=huge")
    config["settings"]["space"] = f"{tmp_path / 'greedy.py'}:GreedySpace"
    trainable = StandaloneTrainable(config)
    assert_failed(trainable.step(), "out of memory")
    assert trainable.reset_config(config | {"architecture": "size=small"})
    assert [result["failure"] for result in run(trainable, 2)] == [None, None]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
    ],
)
def test_errors_that_count_as_out_of_memory(error: RuntimeError) -> None:
    reason = out_of_memory(error)
    assert reason is not None
    assert reason.startswith("out of memory")


def test_other_errors_do_not_count_as_out_of_memory() -> None:
    assert out_of_memory(RuntimeError("shapes do not match")) is None


# Bad settings raise an error


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epoch": 3}, "epoch"),
        ({"training": {"epochs": 0}}, r"training\.epochs"),
        ({"training": {"learning_rate": 0.1}}, r"training\.learning_rate"),
        ({"data": {"nam": "digits"}}, r"data\.nam"),
        ({"device": "tpu9"}, "tpu9"),
    ],
)
def test_settings_that_cannot_be_used_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        StandaloneTrainable({"settings": change, "architecture": CELL})


@pytest.mark.parametrize("config", [{}, {"architecture": 3}, {"architecture": CELL, "seed": -1}])
def test_a_config_without_a_usable_architecture_or_seed_raises_an_error(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"architecture|seed"):
        StandaloneTrainable(config)


def test_an_unknown_space_raises_an_error() -> None:
    with pytest.raises(UnknownName, match="nasbench201"):
        StandaloneTrainable({"settings": {"space": "nasbench9"}, "architecture": CELL})


def test_auto_uses_no_gpu_that_was_not_assigned() -> None:
    assert choose_device("auto", gpus=0).type == "cpu"
    assert choose_device("cpu").type == "cpu"
