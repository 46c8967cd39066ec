"""Trainables, scorers and solvers on a GPU, against the CPU. Without a GPU most of them run on a simulated one.

The random draws of a GPU differ from those of the CPU. Training is therefore compared with one batch per epoch and
without augmentation, so that the order of the images does not matter.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archray_test_simulated_gpu import STATE, simulated_gpu
from torch import Tensor, nn

from archray.errors import OUT_OF_MEMORY, InvalidInput
from archray.trainables import training
from archray.trainables.checkpoint import write_weights
from archray.trainables.data import DataSettings, load, load_images, proxy_batch
from archray.trainables.devices import allocator_fraction, choose_device, limited_worker
from archray.trainables.feature_maps.features import DenseFeatures
from archray.trainables.feature_maps.ridge import TorchGram, solve_ridge
from archray.trainables.landscape.loss_plane import LossPlane
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import PROXIES, ProxySettings, score
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks import build_supernet
from archray.trainables.tune.feature_map_trainable import FeatureMapTrainable
from archray.trainables.tune.nasi_trainable import NASITrainable
from archray.trainables.tune.scorers import PoolScorer, SupernetScorer, trained_weights
from archray.trainables.tune.standalone_trainable import StandaloneTrainable
from archray.trainables.tune.supernet_trainable import PosteriorTrainable, SlicedTrainable, SupernetTrainable

HAS_GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    """Simulates a GPU where there is none."""
    with nullcontext() if HAS_GPU else simulated_gpu():
        yield
    load._on_gpu.cache_clear()  # its data set is on the simulated GPU


CELL = "|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"
DATA = {"name": "digits", "limit": 60, "validation_fraction": 0.3}
NETWORK = {"channels": 4, "cells": 1}
TRAINING = {"epochs": 2, "batch_size": 64, "lr": 0.02, "augmentation": None, "threads": 1, "tf32": False}
RANDOM = ("zen",)  # metrics of random draws on the device of the images
NOT_COMPARED = (
    "device", "gpu_memory_peak", "seconds", "seconds_epoch", "seconds_featurize", "seconds_solve", "seconds_score"
)  # fmt: skip
# After few steps, nearly equal weights of operations decide about these entries of a supernet's result.
DERIVED = ("architecture", "shared_loss", "shared_accuracy", "discretization_drop")


def trial(cls: Any, config: dict[str, Any], device: str) -> Any:
    content = json.loads(json.dumps(config))
    content["settings"]["device"] = device
    return cls(content)


def results(cls: Any, config: dict[str, Any], device: str) -> list[dict[str, Any]]:
    """Returns the results of all steps of a trial."""
    steps, made = trial(cls, config, device), []
    while not made or not made[-1]["done"]:
        made.append(steps.step())
    return made


def deviations(expected: Any, found: Any, path: str = "") -> dict[str, float]:
    """Returns the relative deviation of each number; infinite where the values cannot be compared."""
    if isinstance(expected, dict):
        keys = [key for key in expected if key not in NOT_COMPARED + DERIVED]
        return {name: value for key in keys for name, value in deviations(expected[key], found[key], key).items()}
    if isinstance(expected, str) and expected.startswith(("{", "[")):
        return deviations(json.loads(expected), json.loads(found), path)
    if isinstance(expected, (list, tuple)):
        pairs = zip(expected, found, strict=True)
        return {f"{i}.{n}": v for i, (a, b) in enumerate(pairs) for n, v in deviations(a, b, path).items()}
    if isinstance(expected, float) and isinstance(found, (int, float)):
        if math.isnan(expected) and math.isnan(found):
            return {path: 0.0}
        return {path: abs(expected - found) / max(abs(expected), 1e-3)}
    return {path: 0.0 if expected == found else math.inf}


def assert_equal(expected: Any, found: Any, tolerance: float) -> None:
    wrong = {name: value for name, value in deviations(expected, found).items() if not value <= tolerance}
    assert not wrong, "; ".join(f"{name} {value:.2e}" for name, value in wrong.items())


STANDALONE = {"settings": {"data": DATA, "network": NETWORK, "training": TRAINING}, "architecture": CELL, "seed": 1}


def standalone(**training: Any) -> dict[str, Any]:
    config = copy.deepcopy(STANDALONE)
    config["settings"]["training"] |= training
    return config


@pytest.mark.parametrize(
    ("training", "tolerance"),
    [
        ({}, 1e-3),
        ({"channels_last": True}, 1e-3),
        ({"micro_batch_size": 20, "grad_clip": 1.0}, 0.1),  # parts of a batch depend on the order of the images
        ({"tf32": True}, 2e-2),
        ({"amp": True}, 5e-2),
        pytest.param({"cuda_graphs": True}, 1e-3, marks=needs_gpu),
        pytest.param({"amp": True, "channels_last": True, "cuda_graphs": True}, 5e-2, marks=needs_gpu),
        pytest.param({"amp": True, "channels_last": True, "compile": True}, 5e-2, marks=needs_gpu),
    ],
)
def test_training_equals_the_cpu(training: dict[str, Any], tolerance: float) -> None:
    expected = results(StandaloneTrainable, STANDALONE, "cpu")
    found = results(StandaloneTrainable, standalone(**training), "cuda")
    losses = [[r["train_loss"] for r in steps] for steps in (expected, found)]
    assert_equal(losses[0], losses[1], tolerance)
    assert all(r["gpu_memory_peak"] > 0 for r in found)


def test_a_process_keeps_one_data_set_of_8_bit_images_on_the_gpu() -> None:
    kept = []
    for limit in (30, 40, 50):
        data = DataSettings(name="glyphs", limit=limit)
        dataset = load_images(data, device="cuda")
        assert dataset is load_images(data, device="cuda")
        assert dataset.train.pixels.dtype == torch.uint8
        assert dataset.train.pixels.device.type == "cuda"
        kept.append(weakref.ref(dataset))
    del dataset
    gc.collect()
    assert [reference() is None for reference in kept] == [True, True, False]


def test_a_scorer_on_a_share_of_the_gpu_is_limited_like_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    fractions: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda fraction, _: fractions.append(fraction))
    options = {"proxy": {"metrics": ["grad_norm"], "batch_size": 8}, "device": "cuda"}
    scorer = limited_worker(PoolScorer, 0.25)(space="nasbench201", data=DATA, **options)
    assert scorer.device.type == "cuda"
    memory = torch.cuda.get_device_properties(0).total_memory
    assert fractions == [allocator_fraction(0.25, memory)]
    assert fractions[0] < 0.25


def test_training_with_augmentation_is_repeatable_on_the_device() -> None:
    config = standalone(augmentation={"crop": 2, "flip": True, "cutout": 3}, batch_size=16)
    first, second = (results(StandaloneTrainable, config, "cuda") for _ in range(2))
    assert_equal(first, second, 1e-3)
    assert all(math.isfinite(result["train_loss"]) for result in first)


SUPERNETS = {
    "darts": {"relaxation": {"name": "softmax"}, "optimizer": {"name": "adam"}},
    "gaea": {"relaxation": {"name": "simplex"}, "optimizer": {"name": "mirror-descent"}},
    "erm": {"relaxation": {"name": "simplex"}, "optimizer": {"name": "mirror-descent"}, "objective": "erm"},
    "gdas": {"relaxation": {"name": "gumbel"}, "optimizer": {"name": "adam"}},
    "rs-ws": {"relaxation": {"name": "path"}, "optimizer": {"name": "none"}},
    "enas": {"relaxation": {"name": "controller"}, "optimizer": {"name": "reinforce"}},
    "second-order": {
        "relaxation": {"name": "softmax"}, "optimizer": {"name": "adam"}, "objective": "bilevel-second-order"
    },
    "partial": {"relaxation": {"name": "softmax"}, "optimizer": {"name": "adam"}, "partial_channels": 2},
}  # fmt: skip


def supernet(name: str, space: str) -> dict[str, Any]:
    options: dict[str, Any] = copy.deepcopy(SUPERNETS[name])
    training = {**TRAINING, "objective": options.pop("objective", "bilevel")}
    return {
        "settings": {"space": space, "data": DATA, "network": NETWORK, "training": training, **options},
        "seed": 5,
    }


# The other spaces take minutes on a simulated GPU.
SLOW_SPACES = [pytest.param(space, marks=pytest.mark.slow) for space in ("darts", "nasbench1shot1-1")]


@pytest.mark.parametrize("space", ["nasbench201", *SLOW_SPACES])
@pytest.mark.parametrize("name", SUPERNETS)
def test_a_supernet_equals_the_cpu(name: str, space: str) -> None:
    config = supernet(name, space)
    try:
        expected = results(SupernetTrainable, config, "cpu")
    except InvalidInput as error:
        pytest.skip(str(error))
    found = results(SupernetTrainable, config, "cuda")
    assert_equal(expected[0], found[0], 1e-3)
    assert_equal([r["train_loss"] for r in expected], [r["train_loss"] for r in found], 1e-2)


@needs_gpu
@pytest.mark.parametrize("name", ["darts", "gaea", "erm", "partial"])
def test_cuda_graphs_change_no_result_of_a_supernet(name: str) -> None:
    config = supernet(name, "nasbench201")
    config["settings"]["training"] |= {"batch_size": 10, "augmentation": {"crop": 1}}
    expected = results(SupernetTrainable, config, "cuda")
    config["settings"]["training"]["cuda_graphs"] = True
    assert_equal(expected, results(SupernetTrainable, config, "cuda"), 1e-2)


@pytest.mark.parametrize("space", ["nasbench201", *(pytest.param(s, marks=pytest.mark.slow) for s in ("darts", "vit"))])
def test_training_free_metrics_equal_float64_on_the_cpu(space: str) -> None:
    # In float32, the CPU's kernels for contiguous images round differently, which can change the sign of an activation.
    gpu_type = torch.float32 if HAS_GPU else torch.float64
    data = load_images(DataSettings(name="digits", image_size=16))
    images, labels = proxy_batch(data, 32, 42)
    settings, options = ProxySettings(), {"in_channels": 1, "num_classes": 10, "seed": 0, "for_scoring": True}
    chosen, rng = get_space(space), np.random.default_rng(0)
    wrong = {}
    for number in range((4 if space == "nasbench201" else 2) if HAS_GPU else 1):
        network = build(chosen, chosen.sample(rng), network=NetworkSettings(channels=8, cells=1), **options)
        exact = score(copy.deepcopy(network).double(), images.double(), labels, list(PROXIES.names()), settings)
        found = score(
            network.to(gpu_type).cuda(), images.to(gpu_type).cuda(), labels.cuda(), list(PROXIES.names()), settings
        )
        for name, value in exact.items():
            both_failed = value.failure is not None and found[name].failure is not None
            if both_failed or name in RANDOM:
                continue
            deviation = abs(found[name].value - value.value) / max(abs(value.value), 1e-12)
            if not deviation <= 1e-3:
                wrong[f"{number} {name}"] = f"{value.value:.6g} {found[name].value:.6g} {found[name].failure}"
    assert not wrong, "; ".join(f"{name}: {values}" for name, values in wrong.items())


def test_a_pool_scorer_gives_the_values_of_the_cpu() -> None:
    proxy = {"metrics": ["grad_norm", "snip", "grasp", "ntk_trace", "kappa"], "batch_size": 16, "network": NETWORK}
    rows = [PoolScorer("nasbench201", DATA, proxy, device=device)(CELL) for device in ("cpu", "cuda")]
    assert_equal(rows[0], rows[1], 2e-3)


def test_a_supernet_scorer_gives_the_values_of_the_cpu(tmp_path: Path) -> None:
    config = supernet("rs-ws", "nasbench201")
    trained = trial(SupernetTrainable, config, "cuda")
    trained.step()
    trained.save_checkpoint(str(tmp_path))
    weights = trained_weights(tmp_path)
    rows = [SupernetScorer(config["settings"], weights, device)([CELL]) for device in ("cpu", "cuda")]
    assert_equal(rows[0], rows[1], 1e-2)


def test_nasi_equals_the_cpu() -> None:
    settings = {"space": "nasbench201", "data": DATA, "network": NETWORK, "steps": 2, "every": 2, "batch_size": 8}
    config = {"settings": {**settings, "samples": 2, "threads": 1}, "seed": 5}
    assert_equal(results(NASITrainable, config, "cpu")[0], results(NASITrainable, config, "cuda")[0], 2e-3)


def test_a_sliced_supernet_trains() -> None:
    training = {"epochs": 2, "batch_size": 16}
    config = {"settings": {"space": "vit", "data": DATA, "network": {"channels": 2, "cells": 2}, "training": training}}
    steps = results(SlicedTrainable, config | {"seed": 2}, "cuda")
    assert steps[-1]["failure"] is None and math.isfinite(steps[-1]["train_loss"])


@pytest.mark.parametrize("gram", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(400, 50), (60, 300)])
def test_ridge_regression_equals_the_cpu(shape: tuple[int, int], gram: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    features, targets = (torch.randn(shape[0], size, generator=generator) for size in (shape[1], 10))
    held_out = torch.randn(20, shape[1], generator=generator)

    def decisions(device: str) -> Tensor:
        solution = solve_ridge(DenseFeatures(features.to(device)), targets.double().to(device), 0.5, gram=gram)
        return (held_out.double().to(device) @ solution.model.weights + solution.model.intercept).cpu()

    torch.testing.assert_close(decisions("cuda"), decisions("cpu"), rtol=1e-6, atol=1e-6)


@needs_gpu
def test_the_cholesky_factor_replaces_the_matrix() -> None:
    size = 2048
    gram = TorchGram(size, torch.float32)
    gram.add(torch.randn(2 * size, size, device="cuda"))
    held = gram.matrix.data_ptr()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gram.factorize(1.0)
    assert gram.matrix.data_ptr() == held
    assert torch.cuda.max_memory_allocated() - before < 0.5 * 4 * size**2


def test_feature_maps_equal_the_cpu() -> None:
    space = get_space("fourier")
    rng = np.random.default_rng(0)
    maps = [space.encode(space.sample(rng)) for _ in range(3)]
    for solve in ({}, {"gram": "float64"}, {"loss": "svm"}, {"validation": "assigned"}):
        settings = {"space": "fourier", "data": {"name": "digits", "limit": 200}, "dimension": 50, "solve": solve}
        for config in ({"candidates": maps}, {"architecture": maps[0]}):
            trials = [
                results(FeatureMapTrainable, {"settings": settings, "seed": 1} | config, d) for d in ("cpu", "cuda")
            ]
            assert_equal(trials[0], trials[1], 1e-2)


def test_a_round_of_halving_equals_the_cpu(tmp_path: Path) -> None:
    settings = supernet("rs-ws", "nasbench201")["settings"] | {"weights_dir": str(tmp_path)}
    candidates = [CELL, CELL.replace("nor_conv_3x3", "nor_conv_1x1")]
    config = {"settings": settings, "seed": 5, "candidates": candidates, "budget": 1, "round": 1, "replica": 0}
    scores = [results(SupernetTrainable, config, device)[-1]["scores"] for device in ("cpu", "cuda")]
    assert_equal(scores[0], scores[1], 1e-2)


def test_a_posterior_equals_the_cpu(tmp_path: Path) -> None:
    shared = build_supernet("nasbench201", NetworkSettings(**NETWORK), 1, 10, seed=0)
    settings = {
        "space": "nasbench201", "data": DATA, "supernet": {"network": NETWORK}, "epochs": 1, "batch_size": 64,
        "weights": write_weights(str(tmp_path), "weights.pt", shared.state_dict()), "threads": 1,
    }  # fmt: skip
    trials = [results(PosteriorTrainable, {"settings": settings, "seed": 5}, device) for device in ("cpu", "cuda")]
    assert_equal(trials[0], trials[1], 1e-2)


@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
@pytest.mark.parametrize("cls", [StandaloneTrainable, SupernetTrainable])
def test_a_checkpoint_moves_between_devices(cls: Any, first: str, second: str, tmp_path: Path) -> None:
    config = STANDALONE if cls is StandaloneTrainable else supernet("gaea", "nasbench201")
    expected = results(cls, config, "cpu")
    begun = trial(cls, config, first)
    begun.step()
    begun.save_checkpoint(str(tmp_path))
    resumed = trial(cls, config, second)
    resumed.load_checkpoint(str(tmp_path))
    made = [resumed.step()]
    assert made[-1]["done"]
    assert_equal([r["train_loss"] for r in expected[1:]], [r["train_loss"] for r in made], 1e-2)


def test_a_loss_plane_equals_the_cpu() -> None:
    data = load_images(DataSettings(**DATA))
    network = build("nasbench201", CELL, network=NetworkSettings(**NETWORK), in_channels=1, num_classes=10, seed=0)
    values = []
    for device in ("cpu", "cuda"):
        images, labels = data.train.images.to(device), data.train.labels.to(device)
        plane = LossPlane(copy.deepcopy(network).to(device), images, labels, seed=0)
        values.append([plane.loss(0.1, 0.2), *plane.loss_and_variance(0.1, 0.2), plane.largest_curvature(0)])
    assert_equal(values[0], values[1], 2e-2)


@needs_gpu
def test_a_trial_without_memory_fails_and_its_actor_trains_the_next() -> None:
    config = standalone(batch_size=64, epochs=1)
    begun = trial(StandaloneTrainable, config, "cuda")
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    ballast = torch.empty(free - 2**26, dtype=torch.uint8, device="cuda")
    large = copy.deepcopy(config)
    large["settings"] |= {"network": {"channels": 256, "cells": 2}, "device": "cuda"}
    begun.reset_config(large)
    result = begun.step()
    del ballast
    assert result["done"] and result["failure"].startswith(OUT_OF_MEMORY), result
    assert begun.reset_config(config | {"settings": {**config["settings"], "device": "cuda"}})
    assert begun.step()["failure"] is None


HALF = """
import sys, torch
from archray.trainables.devices import limit_memory
device = torch.device("cuda", 0)
limit_memory(device, 0.5)
total = torch.cuda.get_device_properties(0).total_memory
held = torch.empty(int(0.45 * total), dtype=torch.uint8, device=device)
try:
    torch.empty(int(0.1 * total), dtype=torch.uint8, device=device)
except torch.OutOfMemoryError:
    print("limited", flush=True)
sys.stdin.read()
"""


@needs_gpu
def test_two_trials_with_half_a_gpu_have_half_of_its_memory_each() -> None:
    torch.cuda.empty_cache()
    command = [sys.executable, "-c", HALF]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    assert [process.stdout.readline().strip() for process in both if process.stdout] == ["limited"] * 2
    for process in both:
        process.communicate()
        assert process.returncode == 0


def test_a_device_that_does_not_exist() -> None:
    count = torch.cuda.device_count()
    with pytest.raises(InvalidInput, match=f"cuda:{count}"):
        choose_device(f"cuda:{count}")


# The simulated GPU


only_simulated = pytest.mark.skipif(HAS_GPU, reason="counts operations on a simulated GPU")


def waits(cls: Any, config: dict[str, Any], batch_size: int) -> dict[tuple[str, str], int]:
    """Returns how often the host waits for the GPU in one epoch, by operation and line."""
    content = copy.deepcopy(config)
    content["settings"]["training"] |= {"batch_size": batch_size, "epochs": 1, "augmentation": {"crop": 1, "cutout": 2}}
    trainer = trial(cls, content, "cuda")
    trainer.begin()
    STATE.waits.clear()
    trainer.trainer.epoch()
    return dict(STATE.waits)


@only_simulated
@pytest.mark.parametrize("name", ["standalone", "darts", "gaea", "rs-ws", "partial"])
def test_no_step_of_a_training_waits_for_the_gpu(name: str) -> None:
    config = STANDALONE if name == "standalone" else supernet(name, "nasbench201")
    cls = StandaloneTrainable if name == "standalone" else SupernetTrainable
    few, many = waits(cls, config, 64), waits(cls, config, 8)
    if name == "gaea":  # its optimizer rejects NaN in each step
        few, many = ({k: v for k, v in places.items() if "optimizers" not in k[1]} for places in (few, many))
    assert few and not {place: number for place, number in many.items() if number > few.get(place, 0)}


@only_simulated
def test_the_simulated_gpu_finds_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    network, images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).cuda(), torch.ones(4, 1, 8, 8)
    with pytest.raises(RuntimeError, match="same device"):
        network(images)
    x, statistics = torch.ones(4, 2, 6, 6, device="cuda"), torch.ones(2, device="cuda")
    arguments = (x, x, None, None, None, statistics, statistics, True, 1e-5)
    with pytest.raises(RuntimeError, match="does not have a device"):
        torch.ops.aten.native_batch_norm_backward(*arguments, [True] * 3)
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device="cuda", generator=torch.Generator())
    monkeypatch.setattr(training, "cosine", lambda *rate: float(torch.tensor(0.1, device="cuda")))
    assert waits(StandaloneTrainable, STANDALONE, 8) != waits(StandaloneTrainable, STANDALONE, 64)
