"""Per-sample gradients, the Gram matrix and its metrics, compared with slow references in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import ProxySettings, score
from archray.trainables.proxies.gram import exact_gram_matrix, gram_matrix, inner_product_gram, weight_gradients
from archray.trainables.proxies.layers import WEIGHT_LAYERS, forward
from archray.trainables.proxies.metrics.gradients import (
    DegenerateKernel,
    condition_number,
    root_mean_entry,
    root_mean_trace,
)

CELL = "|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_1x1~1|nor_conv_3x3~2|"


class Tokens(nn.Module):
    """(m, C, H, W) -> (m, H W, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)


class Twice(nn.Module):
    """One layer used twice."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.relu(self.layer(x)))


def head(channels: int) -> list[nn.Module]:
    return [nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 3)]


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), *head(4)),
    "two batch norms": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4, affine=False, track_running_stats=False),
        nn.ReLU(),
        nn.Conv2d(4, 6, 1, stride=2, bias=True),
        nn.BatchNorm2d(6),
        *head(6),
    ),
    "strides and dilation": lambda: nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), stride=(2, 1), dilation=(1, 2), padding=(1, 0)), nn.BatchNorm2d(4), *head(4)
    ),
    "groups": lambda: nn.Sequential(
        nn.Conv2d(2, 6, 3, groups=2), nn.BatchNorm2d(6), nn.Conv2d(6, 6, 3, groups=6, padding=1), *head(6)
    ),
    "padding modes": lambda: nn.Sequential(
        nn.Conv2d(2, 3, 4, padding="same"), nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), *head(4)
    ),
    "padded 1x1": lambda: nn.Sequential(nn.Conv2d(2, 4, 1, padding=1), nn.BatchNorm2d(4), *head(4)),
    "few positions": lambda: nn.Sequential(
        nn.AdaptiveAvgPool2d(2), nn.Conv2d(2, 16, 3, padding=1), nn.BatchNorm2d(16), *head(16)
    ),
    "tokens": lambda: nn.Sequential(Tokens(), nn.Linear(2, 5), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 64, 3)),
    "one dimension": lambda: nn.Sequential(
        nn.Flatten(2), nn.Conv1d(2, 4, 5, stride=2), nn.Flatten(), nn.Linear(120, 3)
    ),
    "a layer twice": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), Twice(nn.Conv2d(4, 4, 3, padding=1)), nn.BatchNorm2d(4), *head(4)
    ),
    "changed in place": lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.BatchNorm2d(4), *head(4)),
    "nasbench201": lambda: build(
        "nasbench201",
        CELL,
        network=NetworkSettings(channels=4, cells=1),
        in_channels=2,
        num_classes=3,
        seed=0,
        for_scoring=True,
    ),
}


def batch(m: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(m, 2, 8, 8, generator=generator, dtype=torch.float64)
    return images, torch.randint(3, (m,), generator=generator)


def make(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return NETWORKS[name]().double().train()


def separate_copies_jacobian(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """(m, d): the reference of note P2. Every sample has a separate copy of every weight and bias, and batch
    normalization still uses all samples. Row i is the gradient of the sum of label logits by the copies of sample i.
    """
    m = len(images)
    copies: list[list[Tensor]] = []

    def give_copies(layer: Any) -> None:
        rows = [
            [p.detach().clone().requires_grad_() for p in (layer.weight, layer.bias) if p is not None] for _ in range(m)
        ]
        copies.append([tensor for row in rows for tensor in row])

        def one(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            return F.linear(x, weight, bias) if isinstance(layer, nn.Linear) else layer._conv_forward(x, weight, bias)

        layer.forward = lambda x: torch.cat([one(x[i : i + 1], *rows[i]) for i in range(m)])

    layers = [module for module in network.modules() if isinstance(module, WEIGHT_LAYERS)]
    for layer in layers:
        give_copies(layer)
    total = network(images).gather(1, labels[:, None]).sum()
    blocks = []
    for tensors in copies:
        gradients = torch.autograd.grad(total, tensors, retain_graph=True)
        blocks.append(torch.cat([g.flatten() for g in gradients]).view(m, -1))
    for layer in layers:
        del layer.forward
    return torch.cat(blocks, 1)


def label_gram(network: nn.Module, images: Tensor, labels: Tensor, memory_mib: float = 64.0) -> Tensor:
    record = forward(network, images)
    total = record.logits.gather(1, labels[:, None]).sum()
    gradients = torch.autograd.grad(total, [call.edge for call in record.calls])
    return gram_matrix(record.calls, gradients, memory_mib)


@pytest.mark.parametrize("name", NETWORKS)
def test_gram_equals_that_of_separate_copies_of_the_weights(name: str) -> None:
    network, (images, labels) = make(name), batch()
    jacobian = separate_copies_jacobian(network, images, labels)
    torch.testing.assert_close(label_gram(network, images, labels), jacobian @ jacobian.T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_limit_on_memory_changes_nothing(name: str) -> None:
    network, (images, labels) = make(name), batch()
    free = label_gram(network, images, labels)
    bound = label_gram(network, images, labels, memory_mib=1e-6)  # one output channel at a time
    torch.testing.assert_close(bound, free, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_samples_add_up_to_that_of_the_weights(name: str) -> None:
    network, (images, labels) = make(name), batch()
    record = forward(network, images)
    total = record.logits.gather(1, labels[:, None]).sum()
    output_gradients = torch.autograd.grad(total, [call.edge for call in record.calls], retain_graph=True)
    for weight, expected in zip(record.weights, torch.autograd.grad(total, record.weights), strict=True):
        found = sum(
            weight_gradients(call.layer, call.input, b).sum(0)
            for call, b in zip(record.calls, output_gradients, strict=True)
            if call.layer.weight is weight
        )
        assert isinstance(found, Tensor)
        torch.testing.assert_close(found.reshape(expected.shape), expected, rtol=1e-9, atol=1e-12)


def test_both_forms_of_the_gram_matrix_of_a_layer_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = nn.Conv2d(3, 5, 3, padding=1, stride=2).double()
    inputs = torch.randn(4, 3, 6, 6, generator=generator, dtype=torch.float64)
    b = torch.randn(4, 5, 3, 3, generator=generator, dtype=torch.float64)
    p = weight_gradients(layer, inputs, b).flatten(1)
    torch.testing.assert_close(inner_product_gram(layer, inputs, b), p @ p.T)


def test_batch_normalization_changes_the_exact_jacobian() -> None:
    network, (images, labels) = make("batch norm"), batch()
    weights = [layer.weight for layer in network.modules() if isinstance(layer, WEIGHT_LAYERS)]
    biases = [layer.bias for layer in network.modules() if isinstance(layer, WEIGHT_LAYERS) and layer.bias is not None]
    outputs = network(images).gather(1, labels[:, None])[:, 0]
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(output, weights + biases, retain_graph=True)])
        for output in outputs
    ]
    jacobian = torch.stack(rows)
    exact = exact_gram_matrix(outputs, weights + biases, 64.0)
    torch.testing.assert_close(exact, jacobian @ jacobian.T, rtol=1e-10, atol=1e-12)
    one_parameter_at_a_time = exact_gram_matrix(outputs, weights + biases, 1e-9)
    torch.testing.assert_close(one_parameter_at_a_time, exact, rtol=1e-10, atol=1e-12)
    # Note P2: not the same numbers.
    assert abs(root_mean_trace(exact) / root_mean_trace(label_gram(network, images, labels)) - 1) > 1e-2


def test_without_normalization_both_kinds_of_gradient_agree() -> None:
    network, (images, labels) = make("padding modes"), batch()
    metrics = ("ntk_trace", "kappa", "knas")
    per_sample = score(network, images, labels, metrics, ProxySettings())
    exact = score(network, images, labels, metrics, ProxySettings(ntk_gradient="exact"))
    for name in metrics:
        assert per_sample[name].value == pytest.approx(exact[name].value, rel=1e-8)


def test_knas_is_the_norm_of_the_summed_gradient_over_m() -> None:
    """Note P3, over the parameters of the Gram matrix."""
    network, (images, labels) = make("nasbench201"), batch()
    layers = [module for module in network.modules() if isinstance(module, WEIGHT_LAYERS)]
    parameters = [p for layer in layers for p in (layer.weight, layer.bias) if p is not None]
    total = network(images).gather(1, labels[:, None]).sum()
    gradients = torch.autograd.grad(total, parameters)
    expected = torch.stack([g.norm() for g in gradients]).norm() / len(images)
    assert root_mean_entry(label_gram(network, images, labels)) == pytest.approx(float(expected), rel=1e-9)


def test_the_sum_of_logits_is_an_option() -> None:
    network, (images, labels) = make("padding modes"), batch()
    found = score(network, images, labels, ["ntk_trace"], ProxySettings(ntk_output="sum"))["ntk_trace"]
    squares = 0.0
    for image in images:
        network.zero_grad()
        network(image[None]).sum().backward()
        squares += sum(float(p.grad.square().sum()) for p in network.parameters() if p.grad is not None)
    assert found.value == pytest.approx(math.sqrt(squares / len(images)), rel=1e-9)


def test_kappa_and_trace_of_a_known_matrix() -> None:
    gram = torch.diag(torch.tensor([4.0, 8.0, 0.5, 3.5], dtype=torch.float64))
    assert condition_number(gram) == pytest.approx(16.0)
    assert root_mean_trace(gram) == pytest.approx(2.0)


@pytest.mark.parametrize("gram", [torch.zeros(3, 3), -torch.eye(3), torch.full((3, 3), math.nan)])
def test_a_kernel_without_condition_number_raises_an_error(gram: Tensor) -> None:
    with pytest.raises(DegenerateKernel):
        condition_number(gram)
