"""Latencies: what is timed, what is not timed again, and what the look-up by operation sums."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.costs import CostSettings, LatencySettings, NetworkCosts, costs_of
from archray.trainables.costs.latency import Timing, network_latency, operation_latencies, operations_of, time_calls
from archray.trainables.costs.latency_meter import Latencies, LatencyMeter
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space

SMALL = NetworkSettings(channels=4, cells=1)
FEW = LatencySettings(warmup=1, repeats=3)


class TwoTerms(nn.Module):
    """The same convolution twice, in a row, and their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        one = self.first(images)
        return torch.relu(self.second(one) + one)


def test_the_calls_that_count() -> None:
    calls: list[int] = []
    timing = time_calls(lambda: calls.append(1), warmup=2, repeats=5)
    assert len(calls) == 7
    assert timing.median >= 0.0 and timing.iqr >= 0.0


def test_a_network_is_timed_as_it_is_exported() -> None:
    threads = torch.get_num_threads()
    timing = network_latency(TwoTerms(), (4, 8, 8), FEW)
    assert timing.median > 0.0
    assert torch.get_num_threads() == threads


def test_the_operations_of_a_network_give_its_outputs_shapes() -> None:
    operations = operations_of(TwoTerms().eval(), torch.zeros(2, 4, 8, 8))
    assert len(operations) == 4  # two convolutions, a sum, a ReLU
    assert len({operation.key for operation in operations}) == 3
    assert {tuple(operation.call().shape) for operation in operations} == {(2, 4, 8, 8)}


def test_only_operations_that_are_not_known_are_timed() -> None:
    known: dict[str, Timing] = {}
    keys = operation_latencies(TwoTerms(), (4, 8, 8), FEW, known)
    assert len(keys) == 4 and len(known) == 3
    before = dict(known)
    assert operation_latencies(TwoTerms(), (4, 8, 8), FEW, known) == keys
    assert known == before


class Counted:
    """Stands where a device would: times that a test can foresee, and how often one was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def whole(self, architecture: str) -> tuple[float, float]:
        self.asked.append(architecture)
        return float(len(architecture)), 0.5

    def operations(self, architecture: str, known: list[str]) -> tuple[list[str], dict[str, tuple[float, float]]]:
        self.asked.append(architecture)
        return list(architecture), {letter: (float(ord(letter)), 3.0) for letter in set(architecture) - set(known)}


def test_each_network_is_timed_once_and_a_record_is_kept() -> None:
    device, saved = Counted(), list[Mapping[str, Any]]()
    latencies = Latencies(lambda: device, "whole", save=saved.append)
    assert [latencies(name) for name in ("aa", "b", "aa")] == [(2.0, 0.5), (1.0, 0.5), (2.0, 0.5)]
    assert device.asked == ["aa", "b"] and len(saved) == 2
    resumed = Latencies(lambda: device, "whole", dict(saved[-1]))
    assert resumed("aa") == (2.0, 0.5) and device.asked == ["aa", "b"]


def test_the_look_up_sums_operations_that_are_timed_once() -> None:
    device = Counted()
    latencies = Latencies(lambda: device, "lookup")
    assert latencies("ab") == (97.0 + 98.0, pytest.approx(18**0.5))
    assert latencies("aab") == (2 * 97.0 + 98.0, pytest.approx(27**0.5))
    assert latencies.record["operations"].keys() == {"a", "b"}
    again = Latencies(lambda: device, "lookup", latencies.record)
    assert again("ab")[0] == 195.0 and device.asked == ["ab", "aab"]


def test_the_meter_builds_and_times_the_networks_of_a_space() -> None:
    meter = LatencyMeter("nasbench201", SMALL, 3, 8, 10, FEW.model_dump(mode="json"))
    name = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"
    median, iqr = pickle.loads(pickle.dumps(meter)).whole(name)
    assert median > 0.0 and iqr >= 0.0
    keys, new = meter.operations(name, [])
    assert set(new) == set(keys)
    assert meter.operations(name, list(new))[1] == {}


def test_a_latency_is_a_column_with_its_spread() -> None:
    space = get_space("nasbench201")
    rng = np.random.default_rng(0)
    names = [space.encode(space.sample(rng)) for _ in range(2)]
    settings = CostSettings(latency=FEW, model="lookup")
    frame = costs_of(space, names, ("flops", "latency_ms"), network=SMALL, image_size=8, settings=settings)
    assert list(frame.columns) == ["architecture", "flops", "latency_ms", "latency_ms_iqr"]
    assert (frame["latency_ms"] > 0).all()


def test_onnxruntime_times_too() -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'archray[export]'")
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'archray[export]'")
    settings = LatencySettings(warmup=1, repeats=3, runtime="onnxruntime")
    assert network_latency(TwoTerms(), (4, 8, 8), settings).median > 0.0


def test_what_fuses_operations_has_no_look_up() -> None:
    settings = CostSettings(model="lookup", latency=LatencySettings(runtime="onnxruntime"))
    with pytest.raises(InvalidInput, match="choose the runtime torch-export, or whole"):
        NetworkCosts("nasbench201", ("latency_ms",), network=SMALL, settings=settings)
