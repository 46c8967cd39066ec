"""The metrics of NAS-Bench-Suite-Zero, each compared with a plain second implementation in float64."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from archray.trainables.nets import NetworkSettings, build, count_multiply_adds, count_parameters
from archray.trainables.proxies import ProxySettings, score
from archray.trainables.proxies.metrics.responses import class_correlations, correlations, divergence, zen_score
from archray.trainables.spaces import get_space

CELL = "|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"


class Plain(nn.Module):
    """Two convolutions, one of them without a normalization behind it, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.relu = nn.Conv2d(4, 5, 3, stride=2), nn.ReLU()
        self.pool, self.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.relu(self.second(self.norm(self.first(x))))).flatten(1))


def cell(space: str = "nasbench201", architecture: str = CELL) -> nn.Module:
    settings = NetworkSettings(channels=4, cells=1)
    return build(space, architecture, network=settings, in_channels=2, num_classes=3, seed=0, for_scoring=True)


NETWORKS: dict[str, Callable[[], nn.Module]] = {"plain": Plain, "cell": cell}


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return NETWORKS[request.param]().double().train()


def batch(m: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(m, 2, 8, 8, generator=generator, dtype=torch.float64), torch.arange(m) % 3


def value(network: nn.Module, name: str) -> float:
    result = score(network, *batch(), [name], ProxySettings())[name]
    assert (result.direction, result.failure) == ("max", None)
    return result.value


def weights(network: nn.Module) -> list[Tensor]:
    return [layer.weight for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]


def test_l2_norm_adds_up_the_norms_of_layers(network: nn.Module) -> None:
    expected = sum(math.sqrt(sum(w * w for w in weight.flatten().tolist())) for weight in weights(network))
    assert value(network, "l2_norm") == pytest.approx(expected, rel=1e-12)


def test_plain_is_the_slope_of_the_loss_along_the_weights(network: nn.Module) -> None:
    """theta^T g = dL(theta + h theta)/dh, by central differences."""
    images, labels = batch()
    originals = [weight.detach().clone() for weight in weights(network)]

    def loss(h: float) -> float:
        with torch.no_grad():
            for weight, original in zip(weights(network), originals, strict=True):
                weight.copy_(original * (1 + h))
            return float(F.cross_entropy(network(images), labels))

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    loss(0.0)
    assert value(network, "plain") == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_plain_counts_layers_without_a_normalization_behind_them() -> None:
    network = cell(architecture="|nor_conv_3x3~0|+|none~0|none~1|+|none~0|nor_conv_3x3~1|none~2|").double()
    images, labels = batch()
    bare = [network.get_submodule(name).weight for name in ("classifier",)]
    bare += [layer.weight for name, layer in network.named_modules() if name.endswith("shortcut.1")]
    gradients = torch.autograd.grad(F.cross_entropy(network(images), labels), bare)
    expected = sum(float((w.detach() * g).sum()) for w, g in zip(bare, gradients, strict=True))
    assert value(network, "plain") == pytest.approx(expected, rel=1e-2)  # the eps of normalization (note P1)


def image_gradients(network: nn.Module) -> NDArray[np.float64]:
    """(m, d): the sum over samples and classes of each logit's gradient, one backward pass for each."""
    images = batch()[0].requires_grad_()
    total = torch.zeros_like(images)
    for logit in network(images).flatten():
        total += torch.autograd.grad(logit, images, retain_graph=True)[0]
    return total.flatten(1).numpy()


def test_jacov_equals_that_of_numpy(network: nn.Module) -> None:
    eigenvalues, _ = np.linalg.eig(np.corrcoef(image_gradients(network)))
    expected = -sum(math.log(v + 1e-5) + 1 / (v + 1e-5) for v in eigenvalues.real)
    assert value(network, "jacov") == pytest.approx(expected, rel=1e-8)


def by_class(rows: NDArray[np.float64], labels: Sequence[int], num_classes: int) -> float:
    """EPE-NAS as in its authors' code: a matrix per class, and an exception for rows without a length."""
    images = defaultdict(list)
    for row, label in zip(rows, labels, strict=True):
        images[label].append(row)
    scores = []
    for members in images.values():
        matrix = np.corrcoef(np.stack(members))
        total = float(np.sum(np.log(np.abs(matrix) + 1e-5)))
        if num_classes <= 100:
            scores.append(total)
        elif np.ndim(matrix):
            scores.append(total / len(matrix))
    if num_classes <= 100:
        return sum(abs(total) for total in scores)
    return sum(abs(one - other) for one in scores for other in scores) / len(scores)


def test_epe_nas_equals_that_of_a_loop_over_classes(network: nn.Module) -> None:
    expected = by_class(image_gradients(network), batch()[1].tolist(), 3)
    assert value(network, "epe_nas") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("num_classes", [7, 100, 101, 200])
def test_epe_nas_of_few_and_of_many_classes(num_classes: int) -> None:
    rows = np.random.default_rng(0).standard_normal((12, 30))
    labels = [0, 1, 2, 0, 1, 3, 3, 3, 4, 1, 0, 5]  # 2, 4 and 5 have one image each
    found = class_correlations(torch.tensor(rows), torch.tensor(labels), num_classes)
    assert found == pytest.approx(by_class(rows, labels, num_classes), rel=1e-9)


def normalize(x: Tensor) -> tuple[Tensor, float]:
    """Batch normalization without learned parameters, and log sigma, channel by channel."""
    channels, variances = [], []
    for c in range(x.shape[1]):
        values = x[:, c]
        variance = ((values - values.mean()) ** 2).mean()
        channels.append((values - values.mean()) / (variance + 1e-5).sqrt())
        variances.append(float(variance))
    return torch.stack(channels, 1), 0.5 * math.log(sum(variances) / len(variances))


def test_zen_equals_that_of_a_plain_network() -> None:
    """Weights, input and perturbation are sampled in this order: layer by layer, then x, then e."""
    network, images = Plain().double(), batch()[0]
    generator = torch.Generator().manual_seed(7)
    drawn = [torch.randn(w.shape, generator=generator).double() for w in weights(network)]
    x, e = (torch.randn(images.shape, generator=generator).double() for _ in range(2))

    def features(x: Tensor) -> tuple[Tensor, float]:
        normal, log_sigma = normalize(F.conv2d(x, drawn[0], padding=1))
        return F.conv2d(normal, drawn[1], stride=2).clamp(min=0), log_sigma

    (first, log_sigma), (second, _) = features(x), features(x + 0.01 * e)
    expected = math.log(float((first - second).abs().sum((1, 2, 3)).mean())) + log_sigma
    assert zen_score(network, images, 7) == pytest.approx(expected, rel=1e-9)


def test_zen_includes_the_scale_that_normalization_removes() -> None:
    """Scaling the input of a normalization keeps the features, and adds the logarithm of the scale."""

    class Louder(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return self.classifier(self.pool(self.relu(self.second(self.norm(10 * self.first(x))))).flatten(1))

    images = batch()[0]
    difference = zen_score(Louder().double(), images, 0) - zen_score(Plain().double(), images, 0)
    assert difference == pytest.approx(math.log(10), abs=1e-4)


def test_zen_depends_on_neither_weights_nor_data_and_leaves_the_network_unchanged() -> None:
    network, images = cell(), torch.randn(6, 2, 8, 8)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    found = zen_score(network, images, 3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.constant_(layer.weight, 0.5)
    assert zen_score(network, torch.ones_like(images), 3) == found != zen_score(network, images, 4)


@pytest.mark.parametrize("space", ["nasbench1shot1-1", "darts"])
def test_zen_of_a_network_without_a_pooling_module(space: str) -> None:
    known = get_space(space)
    network = cell(space, known.encode(known.sample(np.random.default_rng(0))))
    assert math.isfinite(value(network.double(), "zen"))


def test_costs_equal_those_of_the_network(network: nn.Module) -> None:
    assert value(network, "parameters") == count_parameters(network) == sum(p.numel() for p in network.parameters())
    assert value(network, "multiply_adds") == count_multiply_adds(network, (2, 8, 8))


def test_multiply_adds_by_hand() -> None:
    # 8 x 8 positions of 4 x (2 x 9), 3 x 3 of 5 x (4 x 9), and the classifier
    assert value(Plain().double(), "multiply_adds") == 64 * 4 * 18 + 9 * 5 * 36 + 15


def test_a_constant_gradient_is_a_failure() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(128, 3))  # linear: the same gradient for every image
    nn.init.constant_(network[1].weight, 0.1)
    results = score(network.double(), *batch(), ["jacov", "epe_nas", "l2_norm"], ProxySettings())
    assert results["l2_norm"].failure is None
    for name in ("jacov", "epe_nas"):
        assert math.isnan(results[name].value) and "has no correlations" in str(results[name].failure)


def test_equal_images_have_a_very_low_jacov() -> None:
    """An eigenvalue of zero costs 1 / k."""
    independent, equal = torch.randn(4, 50), torch.randn(1, 50).expand(4, 50)
    assert divergence(correlations(equal)) < -2e5 < divergence(correlations(independent)) < -4


def test_a_batch_without_two_images_of_a_class_fails_only_epe_nas() -> None:
    network = Plain().double()
    results = score(network, batch(3)[0], torch.arange(3), ["epe_nas", "jacov"], ProxySettings())
    assert "expected two images of one class in the batch, got 3 images" in str(results["epe_nas"].failure)
    assert "take a larger batch" in str(results["epe_nas"].failure)
    assert results["jacov"].failure is None


def test_a_network_that_changes_images_in_place_does_not_affect_the_others() -> None:
    class InPlace(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.mul_(2.0))

    network, (images, labels) = InPlace().double(), batch()
    kept = images.clone()
    assert score(network, images.clone(), labels, ["jacov"], ProxySettings())["jacov"].failure is None
    assert torch.equal(images, kept)


def test_a_network_without_a_feature_map_has_no_zen() -> None:
    results = score(nn.Sequential(nn.Flatten(), nn.Linear(128, 3)).double(), *batch(), ["zen"], ProxySettings())
    assert "expected a module with a feature map" in str(results["zen"].failure)


def test_a_dead_normalization_has_no_zen() -> None:
    class Dead(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 0 * self.norm(0 * self.first(x)).sum()

    assert "do not vary" in str(score(Dead().double(), *batch(), ["zen"], ProxySettings())["zen"].failure)
