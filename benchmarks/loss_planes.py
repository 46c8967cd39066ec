"""Seconds per point of a loss plane: `LossPlane` against a plain loop of evaluations and several points by one pass.

`loop`: sets the weights and evaluates one point after another, in torch's default layout. `vmap`: several points at
once by torch.func, which groups their convolutions. `variance`: loss and the gradient's exact variance over instances;
`by instance`: the same with a gradient for each instance by torch.func. Times are processor times of one thread, the
fastest of the repeats, in turns. The exit status is 1 if losses or variances differ.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.trainables.data import DataSettings, load_images
from archray.trainables.landscape.loss_plane import LossPlane, filter_normalized
from archray.trainables.nets import build
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import get_space

TOLERANCE = 1e-3  # relative, of float32 in two orders of summation, where the loss is large
PLANE = 41**2


def loop_of_losses(
    network: nn.Module, points: list[tuple[float, float]], images: Tensor, labels: Tensor, *, seed: int
) -> list[float]:
    """Returns the losses at the points by a plain loop, the reference for tests and timings of `LossPlane`."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (filter_normalized(network, generator) for _ in range(2))
    network = copy.deepcopy(network).eval()
    origin = [parameter.detach().clone() for parameter in network.parameters()]
    losses = []
    with torch.no_grad():
        for alpha, beta in points:
            for parameter, w, a, b in zip(network.parameters(), origin, first, second, strict=True):
                parameter.copy_(w + alpha * a + beta * b)
            losses.append(F.cross_entropy(network(images), labels).item())
    return losses


def variance_by_instance(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Returns E|g_i - E g|^2 from the gradients of all instances by `torch.func`: reference of `gradient_variance`."""
    parameters = {name: parameter.detach() for name, parameter in network.named_parameters()}

    def loss(parameters: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = torch.func.functional_call(network, parameters, (image[None],))
        return F.cross_entropy(logits, label[None])

    by_instance: Callable[..., dict[str, Tensor]] = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    gradients = torch.cat([g.flatten(1).double() for g in by_instance(parameters, images, labels).values()], 1)
    return float((gradients - gradients.mean(0)).square().sum(1).mean())


def by_vmap(network: nn.Module, points: list[tuple[float, float]], images: Tensor, labels: Tensor) -> list[float]:
    """Returns the losses at the points, all in one pass."""
    generator = torch.Generator().manual_seed(0)
    first, second = (filter_normalized(network, generator) for _ in range(2))
    alpha, beta = torch.tensor(points).T
    stacked = {
        name: w.detach() + alpha.view(-1, *[1] * w.ndim) * a + beta.view(-1, *[1] * w.ndim) * b
        for (name, w), a, b in zip(network.named_parameters(), first, second, strict=True)
    }

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(network, weights, (images,)), labels)

    with torch.no_grad():
        losses: list[float] = torch.func.vmap(loss)(stacked).tolist()
    return losses


def trained(network: nn.Module, images: Tensor, labels: Tensor, steps: int) -> nn.Module:
    """Trains a few steps, so that the center of the plane is lower than its surroundings."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        rows = torch.arange(step * 32, step * 32 + 32) % len(labels)
        optimizer.zero_grad()
        F.cross_entropy(network(images[rows]), labels[rows]).backward()
        optimizer.step()
    return network.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="darts")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=1)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--points", type=int, default=4, help="number of timed points; vmap takes all in one pass")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data, space = load_images(DataSettings(name=options.data)), get_space(options.space)
    network = build(
        space,
        space.sample(np.random.default_rng(0)),
        network=NetworkSettings(channels=options.channels, cells=options.cells),
        in_channels=data.in_channels,
        num_classes=data.num_classes,
        seed=0,
    )
    trained(network, data.train.images, data.train.labels, options.steps)
    images, labels = data.test.images[: options.images], data.test.labels[: options.images]
    points = [(x, y) for x, y in np.random.default_rng(1).uniform(-0.5, 0.5, (options.points, 2)).tolist()]
    plane = LossPlane(network, images, labels, seed=0)

    def by_instance() -> list[float]:
        still = copy.deepcopy(plane.network)
        variances = []
        for point in points[:1]:
            plane.move(*point)
            still.load_state_dict(plane.network.state_dict())
            parts = zip(
                images.split(32), labels.split(32), strict=True
            )  # limits the memory; the time includes all parts
            variances.append(sum(variance_by_instance(still, x, y) for x, y in parts))
        return variances

    ways: dict[str, tuple[Callable[[], list[float]], int]] = {
        "loop": (lambda: loop_of_losses(network, points, images, labels, seed=0), len(points)),
        "vmap": (lambda: by_vmap(network, points, images, labels), len(points)),
        "plane": (lambda: [plane.loss(*point) for point in points], len(points)),
        "variance": (lambda: [plane.loss_and_variance(*point)[1] for point in points[:1]], 1),
        "by instance": (by_instance, 1),
    }
    seconds, values = dict.fromkeys(ways, math.inf), {}
    for _ in range(options.repeats + 1):
        for name, (way, number) in ways.items():
            start = time.process_time()
            values[name] = way()
            seconds[name] = min(seconds[name], (time.process_time() - start) / number)
    print(f"{options.space}, {options.data}, C = {options.channels}, N = {options.cells}, {len(images)} images")
    for name, against in (("loop", "loop"), ("vmap", "loop"), ("plane", "loop"), ("variance", "by instance")):
        minutes = PLANE * seconds[name] / 60
        print(
            f"{name:9} {seconds[name]:.4f} s a point, {seconds[against] / seconds[name]:.2f} times {against}; "
            f"41 x 41 points: {minutes:.1f} min on one core, {minutes / 2:.1f} on two"
        )
    plane.move(*points[0])
    few = images[:64], labels[:64]
    same = [
        np.allclose(values["plane"], values["loop"], rtol=TOLERANCE),
        np.allclose(values["vmap"], values["loop"], rtol=TOLERANCE),
        math.isclose(
            LossPlane(plane.network, *few, seed=0).loss_and_variance(0.0, 0.0)[1],
            variance_by_instance(plane.network, *few),
            rel_tol=TOLERANCE,
        ),
    ]
    print(f"losses of plane and vmap as the loop's, variance as by instance: {same}")
    sys.exit(not all(same))


if __name__ == "__main__":
    main()
