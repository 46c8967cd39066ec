"""Planes of the loss: directions, points by a plain loop, and the variance by one gradient per instance."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from archray.errors import InvalidInput
from archray.references import load_reference
from archray.trainables.landscape.loss_plane import LossPlane, filter_normalized, flatness, gradient_variance
from archray.trainables.nets import build
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import get_space

CELL = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_3x3~1|skip_connect~2|"
GENOTYPE_SEED = 3
BENCHMARK = Path(__file__).resolve().parents[3] / "benchmarks" / "loss_planes.py"
loop_of_losses, variance_by_instance = (
    load_reference(f"{BENCHMARK}:{name}") for name in ("loop_of_losses", "variance_by_instance")
)
Fixed = tuple[nn.Module, torch.Tensor, torch.Tensor]


def network_of(space_name: str) -> nn.Module:
    space = get_space(space_name)
    named = space.decode(CELL) if space_name == "nasbench201" else space.sample(np.random.default_rng(GENOTYPE_SEED))
    return build(space, named, network=NetworkSettings(channels=4, cells=1), in_channels=1, num_classes=3, seed=0)


@pytest.fixture(scope="module", params=["nasbench201", "darts"])
def fixed_network(request: pytest.FixtureRequest) -> Fixed:
    """A network in float64 with non-default statistics and affine parameters, and images."""
    generator = torch.Generator().manual_seed(0)
    network = network_of(request.param).double()
    images = torch.randn(10, 1, 8, 8, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        network(images)  # in train mode: running statistics
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return network.eval(), images, torch.randint(3, (10,), generator=generator)


def test_each_filter_of_a_direction_has_the_norm_of_the_weights(fixed_network: Fixed) -> None:
    network = fixed_network[0]
    direction = filter_normalized(network, torch.Generator().manual_seed(1))
    again = filter_normalized(network, torch.Generator().manual_seed(1))
    for step, same, (_, weights) in zip(direction, again, network.named_parameters(), strict=True):
        assert torch.equal(step, same)
        if weights.ndim == 1:
            assert not step.any()
        else:
            torch.testing.assert_close(step.flatten(1).norm(dim=1), weights.detach().flatten(1).norm(dim=1))


def test_losses_equal_those_of_a_plain_loop(fixed_network: Fixed) -> None:
    network, images, labels = fixed_network
    before = {name: value.clone() for name, value in network.state_dict().items()}
    points = [(0.0, 0.0), (0.5, -1.0), (-1.0, 0.3), (0.0, 0.0)]
    plane = LossPlane(network, images, labels, seed=5, batch=4)
    ours = [plane.loss(*point) for point in points]
    assert ours == pytest.approx(loop_of_losses(network, points, images, labels, seed=5), rel=1e-10)
    assert ours[0] == ours[3]  # moving does not wear out the weights
    assert ours[0] != pytest.approx(ours[1], rel=1e-3)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_float32_agrees_with_the_loop(fixed_network: Fixed) -> None:
    network, images, labels = fixed_network
    single = network_of("nasbench201" if type(network).__name__.startswith("NASBench") else "darts")
    single.load_state_dict(network.state_dict())
    points = [(0.2, -0.4), (-0.7, 0.1)]
    ours = [LossPlane(single, images.float(), labels, seed=5).loss(*point) for point in points]
    assert ours == pytest.approx(loop_of_losses(single.eval(), points, images.float(), labels, seed=5), rel=1e-4)


def test_the_variance_equals_that_of_a_gradient_per_instance(fixed_network: Fixed) -> None:
    network, images, labels = fixed_network
    plane = LossPlane(network, images, labels, seed=5, batch=4)
    for point in [(0.0, 0.0), (0.4, -0.3)]:
        loss, variance = plane.loss_and_variance(*point)
        assert loss == pytest.approx(plane.loss(*point), rel=1e-10)
        assert variance == pytest.approx(variance_by_instance(plane.network, images, labels), rel=1e-9)


def test_identical_instances_have_no_variance(fixed_network: Fixed) -> None:
    network, images, labels = fixed_network
    same = images[:1].expand(6, -1, -1, -1), labels[:1].expand(6)
    _, several = gradient_variance(network, [(images, labels)])
    assert abs(gradient_variance(network, [same])[1]) < 1e-9 * several


def test_the_curvature_is_the_largest_eigenvalue_of_the_hessian() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    images, labels = torch.randn(20, 1, 2, 2, dtype=torch.float64), torch.arange(20) % 3
    parameters = list(network.parameters())

    def loss(flat: torch.Tensor) -> torch.Tensor:
        weight, bias = flat[:12].view(3, 4), flat[12:]
        return nn.functional.cross_entropy(images.flatten(1) @ weight.T + bias, labels)

    hessian = torch.func.hessian(loss)(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    largest = torch.linalg.eigvalsh(hessian)[-1].item()
    found = LossPlane(network, images, labels, seed=0, batch=7).largest_curvature(seed=0, iterations=200)
    assert found == pytest.approx(largest, rel=1e-6)


def test_batch_statistics_have_no_gradient_per_instance() -> None:
    space = get_space("nasbench201")
    settings = NetworkSettings(channels=4, cells=1, normalization="scoring")
    network = build(space, space.decode(CELL), network=settings, in_channels=1, num_classes=3, seed=0)
    plane = LossPlane(network, torch.randn(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64), seed=0)
    assert math.isfinite(plane.loss(0.0, 0.0))
    with pytest.raises(InvalidInput, match="running statistics"):
        plane.loss_and_variance(0.0, 0.0)


def test_a_network_with_other_parameters_raises_an_error() -> None:
    network = nn.Sequential(nn.Flatten(), nn.LayerNorm(4), nn.Linear(4, 3)).eval()
    with pytest.raises(InvalidInput, match=r"1\.weight, 1\.bias"):
        gradient_variance(network, [(torch.randn(2, 1, 2, 2), torch.zeros(2, dtype=torch.int64))])


def test_the_curvature_of_a_paraboloid_is_exact() -> None:
    steps = np.linspace(-1, 1, 21)
    losses = 0.5 + 3 * steps[:, None] ** 2 + steps[None, :] ** 2
    measures = flatness(steps, losses)
    assert measures["center"] == pytest.approx(0.5)
    assert measures["curvature"] == pytest.approx(6.0)
    assert measures["flat_share"] == pytest.approx(float((losses - 0.5 <= 1.0).mean()))
    losses[0, 0] = np.nan
    assert flatness(steps, losses)["curvature"] == pytest.approx(6.0)
