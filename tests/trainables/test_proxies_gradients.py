"""Metrics of the loss gradient, and theta^T H g by tangents, compared with loops of torch.autograd.grad in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.trainables.nasi.trace_norm import trace_norm
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import ProxySettings, score
from archray.trainables.proxies.layers import WEIGHT_LAYERS, batch_statistics, forward
from archray.trainables.proxies.metrics.gradients import double_backward
from archray.trainables.proxies.tangents import recognized
from archray.trainables.spaces import get_space


class Functional(nn.Module):
    """A functional ReLU, which the tangents cannot intercept."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.classifier = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.relu(self.norm(self.convolution(x))).mean((2, 3)))


class Shifted(Functional):
    """Adds a parameter outside the known layers."""

    def __init__(self) -> None:
        super().__init__()
        self.relu, self.shift = nn.ReLU(), nn.Parameter(torch.ones(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.relu(self.norm(self.convolution(x)) + self.shift).mean((2, 3)))


def residual_block() -> nn.Module:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(2, 4, 3, padding=1, bias=True)
            self.norm, self.relu = nn.BatchNorm2d(4, eps=0.1), nn.ReLU()
            self.convolution = nn.Conv2d(4, 4, 3, padding=1, groups=2)
            self.classifier = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for _ in range(2):  # the same layers twice
                x = x + self.convolution(self.relu(self.norm(x)))
            return self.classifier(torch.cat([x, self.relu(x)], 1).mean((2, 3)))

    return Block()


def cell(architecture: str, cells: int = 1) -> nn.Module:
    return build(
        "nasbench201",
        architecture,
        network=NetworkSettings(channels=3, cells=cells),
        in_channels=2,
        num_classes=3,
        seed=0,
        for_scoring=True,
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "cell": lambda: cell("|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"),
    "deep pools": lambda: cell("|avg_pool_3x3~0|+|none~0|avg_pool_3x3~1|+|nor_conv_1x1~0|none~1|avg_pool_3x3~2|", 4),
    "residual": residual_block,
    "functional": Functional,
    "shifted": Shifted,
}
KNOWN = {"cell": True, "deep pools": True, "residual": True, "functional": False, "shifted": False}


def make(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = NETWORKS[name]().double().train()
        for module in network.modules():  # affine parameters away from 1 and 0
            if isinstance(module, nn.BatchNorm2d) and module.affine:
                nn.init.normal_(module.weight, 1.0, 0.3)
                nn.init.normal_(module.bias, 0.0, 0.3)
    return network


def batch(m: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(m, 2, 8, 8, generator=generator, dtype=torch.float64)
    return images, torch.randint(3, (m,), generator=generator)


def weights_of(network: nn.Module) -> list[Tensor]:
    return [module.weight for module in network.modules() if isinstance(module, WEIGHT_LAYERS)]


def loss_of(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(network(images), labels)


def hessian_gradient(network: nn.Module, images: Tensor, labels: Tensor, by: list[Tensor]) -> list[Tensor]:
    """H g by `by`, as in the authors' code: the gradient of <g, grad L> with g held constant."""
    constant = torch.autograd.grad(loss_of(network, images, labels), by)
    gradients = torch.autograd.grad(loss_of(network, images, labels), by, create_graph=True)
    product = torch.stack([(c * g).sum() for c, g in zip(constant, gradients, strict=True)]).sum()
    return list(torch.autograd.grad(product, by))


@pytest.mark.parametrize("name", NETWORKS)
def test_grasp_equals_the_double_backward_pass(name: str) -> None:
    network, (images, labels) = make(name), batch()
    assert recognized(forward(network, images)) is KNOWN[name]
    weights = weights_of(network)
    products = hessian_gradient(network, images, labels, weights)
    expected = -sum(float((w.detach() * h).sum()) for w, h in zip(weights, products, strict=True))
    found = score(network, images, labels, ["grasp"], ProxySettings())["grasp"]
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert double_backward(loss_of(network, images, labels), weights) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_grasp_as_printed_covers_all_parameters(name: str) -> None:
    network, (images, labels) = make(name), batch()
    every = list(network.parameters())
    products = hessian_gradient(network, images, labels, every)
    expected = abs(sum(float((w.detach() * h).sum()) for w, h in zip(every, products, strict=True)))
    found = score(network, images, labels, ["grasp"], ProxySettings(grasp="absolute"))["grasp"]
    assert found.value == pytest.approx(expected, rel=1e-9)


def test_grasp_equals_finite_differences() -> None:
    """theta^T H g is the derivative along theta of g(theta + h theta)^T g."""
    network, (images, labels) = make("cell"), batch()
    weights = weights_of(network)
    originals = [w.detach().clone() for w in weights]
    constant = torch.autograd.grad(loss_of(network, images, labels), weights)

    def along(h: float) -> float:
        with torch.no_grad():
            for weight, original in zip(weights, originals, strict=True):
                weight.copy_(original * (1 + h))
        gradients = torch.autograd.grad(loss_of(network, images, labels), weights)
        return sum(float((g * c).sum()) for g, c in zip(gradients, constant, strict=True))

    step = 1e-7  # small: no ReLU unit may switch
    expected = -(along(step) - along(-step)) / (2 * step)
    along(0.0)
    found = score(network, images, labels, ["grasp"], ProxySettings())["grasp"]
    assert found.value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("number", range(4))
def test_grasp_on_random_cells(number: int) -> None:
    space = get_space("nasbench201")
    network = cell(space.encode(space.sample(np.random.default_rng(number)))).double()
    images, labels = batch()
    found = score(network, images, labels, ["grasp"], ProxySettings())["grasp"]
    if found.failure:
        assert "disconnected" in found.failure
        return
    assert found.value == pytest.approx(
        double_backward(loss_of(network, images, labels), weights_of(network)), rel=1e-8
    )


def test_both_identities_under_batch_normalization() -> None:
    """Note P1, for eps near 0: theta_l^T g_l = 0 and theta_l^T (H g)_l = -||g_l||^2 for layers before it."""
    network, (images, labels) = make("cell"), batch()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-14
    weights = weights_of(network)
    gradients = torch.autograd.grad(loss_of(network, images, labels), weights)
    products = hessian_gradient(network, images, labels, weights)
    before = [name for name, module in network.named_modules() if isinstance(module, WEIGHT_LAYERS)]
    checked = 0
    for name, weight, g, h in zip(before, weights, gradients, products, strict=True):
        if "shortcut" in name or "classifier" in name:  # without a normalization behind it
            assert abs(float((weight.detach() * g).sum())) > 1e-6
            continue
        norm = float(weight.detach().norm() * g.norm())
        assert abs(float((weight.detach() * g).sum())) < 1e-9 * norm
        assert float((weight.detach() * h).sum()) == pytest.approx(-float(g.square().sum()), rel=1e-6)
        checked += 1
    assert checked >= 5


@pytest.mark.parametrize("name", NETWORKS)
def test_trace_norms_equal_those_of_nasi(name: str) -> None:
    """On a separate network: Eq. 6.6 and 6.7 by a loop over images, and NASI's measurement of a path."""
    network, (images, labels) = make(name), batch()
    every, logits = list(network.parameters()), network(images)
    losses = F.cross_entropy(logits, labels, reduction="none")
    of_images = [torch.autograd.grad(loss, every, retain_graph=True) for loss in losses]  # grad L_x, with batch norm
    means = [torch.stack(of_parameter).mean(0) for of_parameter in zip(*of_images, strict=True)]
    expected = sum(float(mean.square().sum()) for mean in means)
    assert trace_norm(logits, labels, every, "batch") == pytest.approx(expected, rel=1e-10)
    metrics = ["ntk_trace_batch", "ntk_trace_samples", "grad_norm"]
    scores = score(network, images, labels, metrics, ProxySettings(grad_norm="global"))
    mean_of_squares = sum(float(g.square().sum()) for of_image in of_images for g in of_image) / len(labels)
    assert scores["ntk_trace_samples"].value == pytest.approx(mean_of_squares, rel=1e-10)
    assert trace_norm(network(images), labels, every, "samples") == pytest.approx(mean_of_squares, rel=1e-10)
    assert scores["ntk_trace_batch"].value == pytest.approx(expected, rel=1e-10)
    assert scores["ntk_trace_batch"].value == pytest.approx(scores["grad_norm"].value ** 2, rel=1e-12)
    assert scores["ntk_trace_batch"].direction == "max"


@pytest.mark.parametrize("name", NETWORKS)
def test_grad_norm_and_snip(name: str) -> None:
    network, (images, labels) = make(name), batch()
    weights, every = weights_of(network), list(network.parameters())
    g = torch.autograd.grad(loss_of(network, images, labels), weights)
    g_every = torch.autograd.grad(loss_of(network, images, labels), every)
    expected = {
        "grad_norm": sum(math.sqrt(float((x * x).sum())) for x in g),
        "snip": sum(float((w.detach() * x).abs().sum()) for w, x in zip(weights, g, strict=True)),
    }
    printed = {
        "grad_norm": math.sqrt(sum(float((x * x).sum()) for x in g_every)),
        "snip": abs(sum(float((w.detach() * x).sum()) for w, x in zip(every, g_every, strict=True))),
    }
    default = score(network, images, labels, ["grad_norm", "snip"], ProxySettings())
    options = score(network, images, labels, ["grad_norm", "snip"], ProxySettings(grad_norm="global", snip="signed"))
    for metric in expected:
        assert default[metric].value == pytest.approx(expected[metric], rel=1e-10)
        assert options[metric].value == pytest.approx(printed[metric], rel=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_fisher(name: str) -> None:
    """With a dummy gate of ones on every channel of every sample: b.a summed over positions is the gate's gradient."""
    network, (images, labels) = make(name), batch()
    gates: list[Tensor] = []

    def gate(layer: nn.Module, inputs: object, output: Tensor) -> Tensor:
        gates.append(torch.ones(*output.shape[:2], *[1] * (output.ndim - 2), dtype=output.dtype, requires_grad=True))
        return output * gates[-1]

    handles = [m.register_forward_hook(gate) for m in network.modules() if isinstance(m, WEIGHT_LAYERS)]
    loss = loss_of(network, images, labels)
    for handle in handles:
        handle.remove()
    expected = sum(float(g.flatten(1).square().mean(0).sum()) / 2 for g in torch.autograd.grad(loss, gates))
    found = score(network, images, labels, ["fisher"], ProxySettings())["fisher"]
    assert found.value == pytest.approx(expected, rel=1e-9)


def test_float32_keeps_four_digits() -> None:
    network, (images, labels) = make("cell"), batch()
    metrics = (
        "grad_norm",
        "snip",
        "grasp",
        "ntk_trace",
        "ntk_trace_batch",
        "ntk_trace_samples",
        "kappa",
        "knas",
        "fisher",
    )
    exact = score(network, images, labels, metrics, ProxySettings())
    single = score(network.float(), images.float(), labels, metrics, ProxySettings())
    for name in metrics:
        assert single[name].value == pytest.approx(exact[name].value, rel=1e-4), name


def test_the_network_is_unchanged() -> None:
    network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    network[0].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    images, labels = batch()
    results = score(network, images.float(), labels, ["grasp", "ntk_trace", "synflow", "naswot"], ProxySettings())
    assert not any(result.failure for result in results.values())
    after = network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert not any(module.training for module in network.modules())
    assert not network[0].weight.requires_grad and network[4].weight.requires_grad
    assert all(p.grad is None for p in network.parameters())
    assert not any("forward" in vars(module) or module._forward_hooks for module in network.modules())


def test_batch_statistics_are_restored_after_an_error() -> None:
    network = nn.Sequential(nn.BatchNorm2d(2)).eval()
    with pytest.raises(RuntimeError), batch_statistics(network):
        network(torch.zeros(2, 3, 4, 4))
    assert not network.training
