"""A user's metric by reference: a function of network, images and labels, or one of the shared pass."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput, UnknownName
from archray.references import load_reference, worker_reference
from archray.trainables.proxies import PROXIES, Proxy, ProxySettings, check_proxies, get_proxy, score
from archray.trainables.tune.scorers import PoolScorer

CONNECTED = "|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"

FILE = '''
import numpy as np
import torch

from archray.trainables.proxies import NoScore, proxy


def weights(network, images, labels):
    return sum(p.numel() for p in network.parameters())


def integer_tensor(network, images, labels):
    return labels.sum()


def smaller(network, images, labels=None):
    return np.float32(0.5)


smaller.direction = "min"


def sideways(network, images, labels):
    return 1.0


sideways.direction = "up"


def divides(network, images, labels):
    return 1 / 0


def infinite(network, images, labels):
    return float("inf")


def text(network, images, labels):
    return "3.0"


def vector(network, images, labels):
    return images.mean((1, 2, 3))


def unwilling(network, images, labels):
    raise NoScore("not on a Tuesday")


def leaves(network, images, labels):
    raise SystemExit(3)


def vandal(network, images, labels):
    """Does to what it is given whatever can be done."""
    network(images).sum().backward()
    network.eval().requires_grad_(False)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    images.zero_()
    labels.zero_()
    torch.manual_seed(0)
    return float(torch.rand(()))


def draws(network, images, labels):
    return torch.rand(())


def running_mean(network, images, labels):
    return network[1].running_mean.abs().sum()


def two(network, images):
    return 1.0


class Metric:
    pass


NUMBER = 3.0


@proxy(direction="min", gradients_by=lambda shared: shared.record.weights)
def loudest(shared):
    """The largest norm of a layer's weight gradient."""
    return max(float(g.norm()) for g in shared.loss_gradients(shared.record.weights))


@proxy(direction="max")
def undeclared(shared):
    return float(shared.loss_gradients(shared.parameters)[-1].sum())


snip = weights
failure = weights
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own_metrics.py"
    path.write_text(FILE)
    return path


def batch(m: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(m, 2, 8, 8, generator=generator), torch.randint(3, (m,), generator=generator)


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def test_its_value_is_listed_with_the_others(file: Path) -> None:
    own = [f"{file}:{name}" for name in ("weights", "integer_tensor", "smaller")]
    images, labels = batch()
    results = score(network(), images, labels, ["snip", *own, "kappa"], ProxySettings())
    assert list(results) == ["snip", "weights", "integer_tensor", "smaller", "kappa"]
    assert {name: result.direction for name, result in results.items() if result.direction == "min"} == {
        "smaller": "min",
        "kappa": "min",
    }
    assert results["weights"].value == sum(p.numel() for p in network().parameters())
    assert results["integer_tensor"].value == float(labels.sum())
    assert results["smaller"].value == 0.5
    alone = score(network(), images, labels, ["snip", "kappa"], ProxySettings())
    assert {name: results[name] for name in alone} == alone


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("divides", "ZeroDivisionError: division by zero"),
        ("infinite", "the value is inf"),
        ("text", "expected a number, got str"),
        ("vector", "expected a number, got Tensor"),
        ("unwilling", "not on a Tuesday"),
        ("leaves", "SystemExit: 3 ("),
    ],
)
def test_a_failing_metric_fails_alone(file: Path, name: str, reason: str) -> None:
    results = score(network(), *batch(), ["ntk_trace", f"{file}:{name}", "naswot"], ProxySettings())
    assert math.isnan(results[name].value) and reason in (results[name].failure or "")
    assert results["ntk_trace"].failure is None and results["naswot"].failure is None


def test_it_can_score_a_network_that_the_others_reject(file: Path) -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros(len(x), 3)

    results = score(nn.Sequential(nn.Linear(2, 2), Constant()), *batch(), ["snip", f"{file}:weights"], ProxySettings())
    assert results["weights"].value == 6
    assert results["snip"].failure is not None


def test_it_may_change_its_copies(file: Path) -> None:
    images, labels = batch()
    before, state = (images.clone(), labels.clone()), torch.get_rng_state()
    net = network().eval()
    kept = {name: value.clone() for name, value in net.state_dict().items()}
    for metrics in (["grasp", f"{file}:vandal"], [f"{file}:vandal", "grasp"]):
        results = score(net, images, labels, metrics, ProxySettings())
        assert results["grasp"] == score(network(), images, labels, ["grasp"], ProxySettings())["grasp"]
    assert torch.equal(images, before[0]) and torch.equal(labels, before[1])
    assert all(torch.equal(value, kept[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_its_random_numbers_depend_only_on_the_seed(file: Path) -> None:
    def drawn(seed: int, *others: str) -> float:
        return score(network(), *batch(), [*others, f"{file}:draws"], ProxySettings(seed=seed))["draws"].value

    torch.manual_seed(5)
    first = drawn(1)
    torch.manual_seed(6)
    assert drawn(1, "synflow") == first != drawn(2)


def test_it_receives_the_network_as_built(file: Path) -> None:
    results = score(network(), *batch(), ["snip", f"{file}:running_mean"], ProxySettings())
    assert results["running_mean"].value == 0.0


def test_a_metric_of_the_shared_pass(file: Path) -> None:
    images, labels = batch()
    net = network()
    results = score(net, images, labels, [f"{file}:loudest", "grad_norm", f"{file}:undeclared"], ProxySettings())
    assert results["loudest"].direction == "min"
    net.double().train()
    loss = F.cross_entropy(net(images.double()), labels)
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    assert results["loudest"].value == pytest.approx(max(float(gradients[i].norm()) for i in (0, 4)), rel=1e-4)
    assert results["undeclared"].value == pytest.approx(float(gradients[-1].sum()), abs=1e-6)


def test_a_metric_registered_by_hand_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROXIES, "_entries", dict(PROXIES._entries))
    PROXIES.register("depth", Proxy("depth", "max", lambda shared: float(len(shared.record.calls))))
    assert score(network(), *batch(), ["depth", "snip"], ProxySettings())["depth"].value == 2.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", r"has no 'absent'; it has .*weights"),
        ("NUMBER", "to be a function of network, images and labels, got float"),
        ("Metric", "to be a function of network, images and labels, got the class Metric"),
        ("two", r"to be a function of network, images and labels, got two\(network, images\)"),
        ("sideways", "expected max or min as direction of the metric 'sideways', got 'up'"),
        (
            "snip",
            r"its column 'snip' is reserved in a pool; rename the function",
        ),
        ("failure", "its column 'failure' is reserved in a pool"),
    ],
)
def test_an_invalid_metric_raises_before_any_scoring(file: Path, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_proxies(ProxySettings().model_copy(update={"metrics": (f"{file}:{name}",)}))


def test_a_missing_file_raises_an_error(tmp_path: Path) -> None:
    settings = ProxySettings(metrics=(f"{tmp_path}/absent.py:metric",))  # a resumed run has a copy of it
    with pytest.raises(UnknownName, match=r"absent\.py, which does not exist"):
        check_proxies(settings)


def test_a_decorated_function_uses_only_the_shared_pass(tmp_path: Path) -> None:
    path = tmp_path / "confused.py"
    path.write_text(
        "from archray.trainables.proxies import proxy\n"
        "@proxy(direction='max')\n"
        "def confused(network, images, labels):\n    return 1.0\n"
    )
    with pytest.raises(InvalidInput, match=r"under @proxy as a function of the shared pass only .* Remove @proxy"):
        get_proxy(f"{path}:confused")


def test_two_metrics_with_one_name_raise_an_error(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "others.py"
    other.write_text(FILE)
    with pytest.raises(ValueError, match="expected distinct metrics"):
        ProxySettings(metrics=(f"{file}:weights", f"{other}:weights"))


def test_a_row_of_a_pool_has_its_column(file: Path) -> None:
    """In an actor the file is a module, under the name that `worker_reference` returns."""
    reference = worker_reference(f"{file}:weights")
    load_reference(f"{file}:weights")
    settings = ProxySettings(
        batch_size=8,
        network={"channels": 4, "cells": 1},
        metrics=("kappa", reference, worker_reference(f"{file}:divides")),
    )
    assert settings.columns == ("kappa", "weights", "divides")
    row = PoolScorer("nasbench201", {"name": "digits"}, settings.model_dump(mode="json"), device="cpu")(CONNECTED)
    assert set(row) == {"architecture", *settings.columns, "failure", "seconds", "parameters", "device"}
    assert row["weights"] == row["parameters"]
    assert str(row["failure"]).startswith("divides: ") and "ZeroDivisionError: division by zero (" in row["failure"]


def test_grad_sign(repository: Path) -> None:
    """Compares the example with a loop over samples in float64."""
    images, labels = batch()
    found = score(network(), images, labels, [f"{repository}/examples/own_metric.py:grad_sign"], ProxySettings())
    net = network().double()
    signs = []
    for i in range(len(images)):
        net.zero_grad()
        (-net(images[i : i + 1].double()).log_softmax(1)[0, labels[i]]).backward()
        signs.append(torch.cat([p.grad.flatten().sign() for p in net.parameters() if p.grad is not None]))
    expected = float(torch.stack(signs).sum(0).abs().sum())
    # a gradient that is zero up to rounding (that of a bias before batch normalization) has any sign
    assert found["grad_sign"].value == pytest.approx(expected, abs=4 * len(images))
    assert expected > 100
