"""Failures, the metrics without gradients, settings, and the worker that scores a pool."""

from __future__ import annotations

import json
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

from archray.errors import ArchrayError, InvalidArchitecture, InvalidInput, UnknownName
from archray.trainables.proxies import PROXIES, Proxy, ProxySettings, low_is_good, score
from archray.trainables.proxies.metrics.responses import log_determinant, synaptic_flow
from archray.trainables.spaces import get_space
from archray.trainables.tune.scorers import PoolScorer

ALL = tuple(PROXIES.names())
CONNECTED = "|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"
METRICS_WITHOUT_PASS = (
    "synflow",
    "parameters",
    "multiply_adds",
)  # metrics that do not need the shared pass over the network
DISCONNECTED = "|none~0|+|nor_conv_1x1~0|nor_conv_3x3~1|+|none~0|none~1|none~2|"


def batch(m: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(m, 2, 8, 8, generator=generator), torch.randint(3, (m,), generator=generator)


def small_network(*middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), *middle, nn.Flatten(), nn.Linear(144, 3))


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("this layer does not work")


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def test_for_other_columns_more_is_better() -> None:
    assert low_is_good("kappa") and not low_is_good("kappa_of_mine") and not low_is_good("own.py:kappa")


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (Raises(), "this layer does not work"),
        (Times(math.nan), "finite"),
        (Times(0.0), "does not depend on its input"),
        (nn.Flatten(0), "IndexError"),
    ],
)
def test_a_bad_network_is_a_failed_score(layer: nn.Module, reason: str) -> None:
    results = score(small_network(layer), *batch(), ALL, ProxySettings())
    assert set(results) == set(ALL)
    for name, result in results.items():
        assert result.direction == PROXIES.get(name).direction
        if name in METRICS_WITHOUT_PASS and result.failure is None:
            continue
        assert math.isnan(result.value)
        assert result.failure is not None and reason in result.failure


def test_logits_of_a_wrong_shape_are_a_failure() -> None:
    network = nn.Sequential(nn.Conv2d(2, 4, 3))
    assert "expected logits" in str(score(network, *batch(), ["snip"], ProxySettings())["snip"].failure)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_images_have_no_condition_number_but_a_trace(dtype: torch.dtype) -> None:
    images, labels = batch(4)
    images[1], labels[1] = images[0], labels[0]
    results = score(
        small_network().to(dtype), images.to(dtype), labels, ["kappa", "ntk_trace", "naswot"], ProxySettings()
    )
    assert results["ntk_trace"].value > 0
    # Equal samples have equal gradients: lambda_min is zero, up to rounding on either side.
    assert math.isnan(results["kappa"].value)
    assert str(results["kappa"].failure).startswith("expected a positive lambda_min")
    assert math.isnan(results["naswot"].value) and "-inf" in str(results["naswot"].failure)


def test_a_missing_part_of_a_network_fails_only_its_metric() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(128, 6), nn.Tanh(), nn.Linear(6, 3))
    results = score(network, *batch(), ALL, ProxySettings())
    assert "nn.ReLU" in str(results["naswot"].failure)
    assert "feature map" in str(results["zen"].failure)
    assert not any(result.failure for name, result in results.items() if name not in ("naswot", "zen"))


def test_bad_input_raises_an_error() -> None:
    images, labels = batch()
    with pytest.raises(
        UnknownName, match=r"there is no proxy 'jacob'; did you mean 'jacov'\? choose one of epe_nas, .*zen"
    ):
        score(small_network(), images, labels, ["jacob"], ProxySettings())
    with pytest.raises(InvalidInput, match="one label each"):
        score(small_network(), images, labels[:-1], ["snip"], ProxySettings())


@pytest.mark.parametrize("values", [{"metrics": ("snip", "snip")}, {"metrics": ("jacob",)}])
def test_settings_reject_bad_metrics(values: dict[str, object]) -> None:
    with pytest.raises((ArchrayError, ValueError)):
        ProxySettings.model_validate(values)


@pytest.mark.parametrize("name", ALL)
def test_a_metric_has_its_name_and_a_summary(name: str) -> None:
    metric = PROXIES.get(name)
    assert isinstance(metric, Proxy) and metric.name == name
    assert metric.summary and not metric.summary.endswith(".")


def test_synflow_of_linear_layers() -> None:
    """Without nonlinearities R = 1^T |W2| |W1| 1, linear in each layer: the score is 2 R."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(128, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False))
    first, second = network[1].weight.detach().abs().double(), network[3].weight.detach().abs().double()
    flow = second @ first @ torch.ones(128, dtype=torch.float64)
    assert synaptic_flow(network, torch.randn(2, 8, 8)) == pytest.approx(2 * float(flow.sum()), rel=1e-12)


def test_synflow_is_in_float64_and_leaves_out_batch_norm() -> None:
    """A deep network with positive weights overflows float32, but not float64 (note H1)."""
    layers: list[nn.Module] = []
    for _ in range(20):
        layers += [nn.Conv2d(2, 2, 1, bias=False), nn.BatchNorm2d(2)]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 3, bias=False))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.constant_(module.weight, 500.0)
    nn.init.ones_(network[-1].weight)
    image = torch.randn(2, 8, 8)
    assert synaptic_flow(network, image) == pytest.approx(21 * 3 * 128 * 1000.0**20, rel=1e-9)
    assert synaptic_flow(network, image, "bn") < 1e6


def test_naswot_counts_units_in_the_same_state() -> None:
    states = [torch.tensor([[1, 0, 1], [1, 1, 1]]).bool(), torch.tensor([[0], [0]]).bool()]
    # K = [[4, 3], [3, 4]]
    assert log_determinant(states) == pytest.approx(math.log(7.0))


def scorer(**proxy: object) -> PoolScorer:
    settings = {"batch_size": 8, "network": {"channels": 4, "cells": 1}, **proxy}
    return PoolScorer("nasbench201", {"name": "digits"}, settings, device="cpu")


def test_a_row_of_a_pool() -> None:
    row = scorer(metrics=ALL)(CONNECTED)
    assert set(row) == {"architecture", *ALL, "failure", "seconds", "parameters", "device"}
    assert row["failure"] is None
    assert all(isinstance(value := row[name], float | int) and math.isfinite(value) for name in ALL)
    assert json.loads(json.dumps(row)) == row
    space = get_space("nasbench201")
    assert row["architecture"] == space.encode(space.canonical(space.decode(CONNECTED)))


def test_rows_repeat() -> None:
    first, again = scorer(metrics=ALL), pickle.loads(pickle.dumps(scorer(metrics=ALL)))
    state = torch.get_rng_state()
    rows = [{k: v for k, v in worker(CONNECTED).items() if k != "seconds"} for worker in (first, first, again)]
    assert rows[0] == rows[1] == rows[2]
    assert torch.equal(state, torch.get_rng_state())


def test_a_disconnected_cell_is_a_row_with_the_reason() -> None:
    row = scorer()(DISCONNECTED)
    assert math.isnan(float(row["ntk_trace"] or 0)) and math.isnan(float(row["kappa"] or 0))
    assert str(row["failure"]).startswith("ntk_trace, kappa: disconnected")


def test_an_unknown_architecture_raises_an_error() -> None:
    with pytest.raises(InvalidArchitecture):
        scorer()("|conv_9x9~0|")
