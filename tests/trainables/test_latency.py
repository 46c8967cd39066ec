"""Latencies: the timed networks, the records that avoid repeated timings, and the sums of the lookup by operation."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.costs import CostFailed, CostSettings, LatencySettings, NetworkCosts, costs_of
from archray.trainables.costs.measures import Timing, network_latency, operation_latencies, operations_of, time_calls
from archray.trainables.costs.meter import (
    Latencies,
    LatencyMeter,
    calibration_candidates,
    fit_line,
    left_out_errors,
    spread_choice,
)
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space

SMALL = NetworkSettings(channels=4, cells=1)
FEW = LatencySettings(warmup=1, repeats=3)


class TwoTerms(nn.Module):
    """Applies the same convolution twice, in a row, and sums the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        one = self.first(images)
        return torch.relu(self.second(one) + one)


def test_the_calls_that_count() -> None:
    calls: list[int] = []
    timing = time_calls(lambda: calls.append(1), LatencySettings(warmup=2, repeats=5))
    assert len(calls) == 7
    assert timing.median >= 0.0 and timing.iqr >= 0.0


def test_a_network_is_timed_in_its_exported_form() -> None:
    threads = torch.get_num_threads()
    timing = network_latency(TwoTerms(), (4, 8, 8), FEW)
    assert timing.median > 0.0
    assert torch.get_num_threads() == threads


def test_the_operations_of_a_network_reproduce_its_output_shapes() -> None:
    operations = operations_of(TwoTerms().eval(), torch.zeros(2, 4, 8, 8))
    assert len(operations) == 4  # two convolutions, a sum, a ReLU
    assert len({operation.key for operation in operations}) == 3
    assert {tuple(operation.call().shape) for operation in operations} == {(2, 4, 8, 8)}


def test_only_unknown_operations_are_timed() -> None:
    known: dict[str, Timing] = {}
    keys = operation_latencies(TwoTerms(), (4, 8, 8), FEW, known)
    assert len(keys) == 4 and len(known) == 3
    before = dict(known)
    assert operation_latencies(TwoTerms(), (4, 8, 8), FEW, known) == keys
    assert known == before


class Counted:
    """A stand-in for a device, with times that a test can predict and counts of its calls."""

    def __init__(self) -> None:
        self.request_counts: list[str] = []

    def whole(self, architecture: str) -> tuple[float, float]:
        self.request_counts.append(architecture)
        return float(len(architecture)), 0.5

    def operations(self, architecture: str, known: list[str]) -> tuple[list[str], dict[str, tuple[float, float]]]:
        self.request_counts.append(architecture)
        return list(architecture), {letter: (float(ord(letter)), 3.0) for letter in set(architecture) - set(known)}


def test_each_network_is_timed_once_and_a_record_is_kept() -> None:
    device, saved = Counted(), list[Mapping[str, Any]]()
    latencies = Latencies(lambda: device, "whole", save=saved.append)
    assert [latencies(name) for name in ("aa", "b", "aa")] == [(2.0, 0.5), (1.0, 0.5), (2.0, 0.5)]
    assert device.request_counts == ["aa", "b"] and len(saved) == 2
    resumed = Latencies(lambda: device, "whole", dict(saved[-1]))
    assert resumed("aa") == (2.0, 0.5) and device.request_counts == ["aa", "b"]


@pytest.mark.parametrize("model", ["whole", "lookup"])
def test_a_bound_on_noise_is_announced_once(model: Literal["whole", "lookup"]) -> None:
    class Noisy(Counted):
        def whole(self, architecture: str) -> tuple[float, float]:
            return 0.81, 8.5 * (architecture != "calm")

        def operations(self, architecture: str, known: list[str]) -> tuple[list[str], dict[str, tuple[float, float]]]:
            keys = [architecture]
            return keys, {key: self.whole(key) for key in keys if key not in known}

    lines = list[str]()
    for bounded in (False, True):
        latencies = Latencies(Noisy, model, announce=lines.append, bounded=bounded)
        assert latencies("calm") == (0.81, 0.0) and lines == []
        assert latencies("a") == latencies("b") == (0.81, 8.5)
        assert len(lines) == bounded
    assert "latency of a is 0.81 ms, with an interquartile range of 8.5 ms" in lines[0]


def test_the_lookup_sums_operations_that_are_timed_once() -> None:
    device = Counted()
    latencies = Latencies(lambda: device, "lookup")
    assert latencies("ab") == (97.0 + 98.0, pytest.approx(18**0.5))
    assert latencies("aab") == (2 * 97.0 + 98.0, pytest.approx(27**0.5))
    assert latencies.record["operations"].keys() == {"a", "b"}
    again = Latencies(lambda: device, "lookup", latencies.record)
    assert again("ab")[0] == 195.0 and device.request_counts == ["ab", "aab"]


def test_a_lookup_is_calibrated_on_complete_networks() -> None:
    class WithOverhead(Counted):
        """Complete networks take twice the time of their operations, and 50 ms more."""

        def whole(self, architecture: str) -> tuple[float, float]:
            self.request_counts.append(architecture)
            return 50.0 + 2.0 * sum(map(ord, architecture)), 0.5

    device, lines = WithOverhead(), list[str]()
    latencies = Latencies(
        lambda: device, "lookup", candidates=lambda: ["a", "aa", "aaa", "aaaa"], announce=lines.append
    )
    assert latencies("ab") == (pytest.approx(50.0 + 2.0 * 195.0), pytest.approx(2.0 * 18**0.5))
    fitted = latencies.record["calibration"]
    assert (fitted["overhead"], fitted["factor"]) == (pytest.approx(50.0), pytest.approx(2.0))
    assert fitted["networks"].keys() == {"a", "aa", "aaa", "aaaa"} and fitted["error"] < 1e-6
    assert "50 ms + 2 times the sum over operations, fitted to 4 networks" in lines[0]
    device.request_counts.clear()
    again = Latencies(lambda: device, "lookup", latencies.record, candidates=lambda: ["b"])
    assert again("ab") == latencies("ab") and device.request_counts == [] and len(lines) == 1  # the line is kept


def test_a_network_that_cannot_be_timed_is_left_out_of_the_calibration() -> None:
    class Broken(Counted):
        def operations(self, architecture: str, known: list[str]) -> tuple[list[str], dict[str, tuple[float, float]]]:
            if architecture.startswith("x"):
                raise RuntimeError("it cannot be exported")
            return super().operations(architecture, known)

    latencies = Latencies(Broken, "lookup", candidates=lambda: ["xa", "a", "aa"])
    assert latencies.line.factor > 0.0 and "xa" not in latencies.record["calibration"]["networks"]
    with pytest.raises(CostFailed, match="xa: RuntimeError: it cannot be exported"):
        Latencies(Broken, "lookup", candidates=lambda: ["xa"])("a")


@given(
    st.floats(0.0, 5.0),
    st.floats(0.1, 5.0),
    st.lists(st.floats(0.5, 20.0), min_size=3, max_size=8, unique_by=lambda total: round(total, 1)),
)
def test_a_line_is_fitted_exactly(overhead: float, factor: float, sums: list[float]) -> None:
    whole = [overhead + factor * total for total in sums]
    line = fit_line(sums, whole)
    assert [line(total) for total in sums] == pytest.approx(whole)
    assert max(left_out_errors(sums, whole)) < 1e-6


def test_without_a_slope_the_line_is_a_factor() -> None:
    assert fit_line([2.0], [6.0]) == (0.0, pytest.approx(3.0))
    assert fit_line([2.0, 2.0], [6.0, 6.0]) == (0.0, pytest.approx(3.0))
    assert fit_line([1.0, 2.0], [4.0, 1.0]).overhead == 0.0 < fit_line([1.0, 2.0], [4.0, 1.0]).factor


def test_the_networks_for_calibration_are_spread_from_cheapest_to_most_expensive() -> None:
    assert spread_choice([5.0, 1.0, 9.0, 1.1, 1.2], 3) == [1, 0, 2]
    assert sorted(spread_choice([2.0, 2.0, 2.0], 6)) == [0, 1, 2]
    names = calibration_candidates(get_space("nasbench201"))
    assert len(names) == len(set(names)) > 10 and names == calibration_candidates(get_space("nasbench201"))


def test_the_meter_builds_and_times_the_networks_of_a_space() -> None:
    meter = LatencyMeter("nasbench201", SMALL, 3, 8, 10, FEW)
    name = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"
    median, iqr = pickle.loads(pickle.dumps(meter)).whole(name)
    assert median > 0.0 and iqr >= 0.0
    keys, new = meter.operations(name, [])
    assert set(new) == set(keys)
    assert meter.operations(name, list(new))[1] == {}


def test_a_latency_is_a_column_with_its_spread() -> None:
    name = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"
    settings = CostSettings(latency=FEW)
    frame = costs_of("nasbench201", [name], ("flops", "latency_ms"), network=SMALL, image_size=8, settings=settings)
    assert list(frame.columns) == ["architecture", "flops", "latency_ms", "latency_ms_iqr"]
    assert (frame["latency_ms"] > 0).all()


@pytest.mark.slow
def test_a_lookup_is_calibrated_on_six_networks_of_the_space() -> None:
    space = get_space("nasbench201")
    settings = CostSettings(latency=FEW, model="lookup")
    costs = NetworkCosts(space, ("latency_ms",), network=SMALL, image_size=8, settings=settings)
    assert costs(space.sample(np.random.default_rng(0)))["latency_ms"] > 0
    assert len(costs.latencies.record["calibration"]["networks"]) == len(costs.latencies.record["whole"]) == 6


@pytest.mark.extra("export")
def test_onnxruntime_can_time_networks() -> None:
    cell = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|nor_conv_1x1~1|none~2|"
    for options in ({}, {"batch_size": 3, "threads": 2}):
        settings = CostSettings(latency=LatencySettings(warmup=1, repeats=3, runtime="onnxruntime", **options))
        costs = NetworkCosts("nasbench201", ("latency_ms",), network=SMALL, image_size=8, settings=settings)
        times = costs(cell)
        assert times["latency_ms"] > 0.0 and times["latency_ms_iqr"] >= 0.0


def test_a_backend_that_fuses_operations_has_no_lookup() -> None:
    settings = CostSettings(model="lookup", latency=LatencySettings(runtime="onnxruntime"))
    with pytest.raises(InvalidInput, match="Choose the runtime torch-export, or whole"):
        NetworkCosts("nasbench201", ("latency_ms",), network=SMALL, settings=settings)
