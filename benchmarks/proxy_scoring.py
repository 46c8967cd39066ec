"""Architectures per second: grad_norm, snip, grasp, ntk_trace and kappa in shared passes, against the plain way.

The plain way makes a pass per metric: gradients by a backward pass each, grasp by a double backward pass as Abdelfattah
et al. (2021) do, and the per-sample gradients of ntk_trace and kappa each by giving every sample its own copy of the
weights (note P2). Both score the same networks on the same batch in float32, one after the other, and the faster of
the repeats counts.

The values are compared in float64, where both must agree to 1e-4 (they do to about 1e-9), else the exit status is 1.
In float32 a ReLU unit whose input is zero up to rounding can be on in one and off in the other, so there the deviation
of each way from float64 is printed.

    python benchmarks/proxy_scoring.py --architectures 8 --threads 1
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import ProxySettings, score
from archray.trainables.spaces import get_space

METRICS = ("grad_norm", "snip", "grasp", "ntk_trace", "kappa")
TOLERANCE = 1e-4
Values = dict[str, float]


def weight_layers(network: nn.Module) -> list[Any]:
    return [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def shared(network: nn.Module, images: Tensor, labels: Tensor) -> Values:
    """archray's way. NaN where a metric failed."""
    return {name: s.value for name, s in score(network, images, labels, METRICS, ProxySettings()).items()}


def plain(network: nn.Module, images: Tensor, labels: Tensor) -> Values:
    """A pass per metric."""
    weights = [layer.weight for layer in weight_layers(network)]
    values = {}
    gradients = torch.autograd.grad(F.cross_entropy(network(images), labels), weights)
    values["grad_norm"] = sum(float(g.norm()) for g in gradients)
    gradients = torch.autograd.grad(F.cross_entropy(network(images), labels), weights)
    values["snip"] = sum(float((w.detach() * g).abs().sum()) for w, g in zip(weights, gradients, strict=True))
    constant = torch.autograd.grad(F.cross_entropy(network(images), labels), weights)
    gradients = torch.autograd.grad(F.cross_entropy(network(images), labels), weights, create_graph=True)
    product = torch.stack([(c * g).sum() for c, g in zip(constant, gradients, strict=True)]).sum()
    products = torch.autograd.grad(product, weights)
    values["grasp"] = -sum(float((w.detach() * h).sum()) for w, h in zip(weights, products, strict=True))
    jacobian = own_copies_jacobian(network, images, labels)
    values["ntk_trace"] = float((jacobian.square().sum() / len(images)).sqrt())
    jacobian = own_copies_jacobian(network, images, labels)
    eigenvalues = torch.linalg.eigvalsh((jacobian @ jacobian.T).double())
    values["kappa"] = float(eigenvalues[-1] / eigenvalues[0])
    return values


def own_copies_jacobian(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """(m, d): the gradient of the sum of label logits by each sample's own copy of the weights (note P2)."""
    m = len(images)
    copies: list[Tensor] = []
    layers = weight_layers(network)

    def copied(parameter: Tensor) -> Tensor:
        copies.append(parameter.detach().expand(m, *parameter.shape).clone().requires_grad_())
        return copies[-1]

    def replace(layer: Any) -> None:
        weight = copied(layer.weight)
        bias = copied(layer.bias) if layer.bias is not None else None
        if isinstance(layer, nn.Linear):
            assert bias is not None
            layer.forward = lambda x: torch.baddbmm(bias[:, None], x[:, None], weight.transpose(1, 2))[:, 0]
            return
        assert bias is None and layer.groups == 1

        def convolve(x: Tensor) -> Tensor:  # a group per sample
            y = F.conv2d(
                x.reshape(1, -1, *x.shape[2:]), weight.flatten(0, 1), None, layer.stride, layer.padding, groups=m
            )
            return y.view(m, -1, *y.shape[2:])

        layer.forward = convolve

    for layer in layers:
        replace(layer)
    try:
        total = network(images).gather(1, labels[:, None]).sum()
        gradients = torch.autograd.grad(total, copies)
    finally:
        for layer in layers:
            del layer.forward
    return torch.cat([gradient.flatten(1) for gradient in gradients], 1)


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def fastest(way: Callable[..., Values], options: argparse.Namespace, *arguments: Any) -> tuple[float, Values]:
    """Seconds of the fastest of the repeated runs, and the values."""
    clock = CLOCKS[options.clock]
    best, values = float("inf"), {}
    for _ in range(options.repeats):
        start = clock()
        values = way(*arguments)
        best = min(best, clock() - start)
    return best, values


def deviation(values: Values, exact: Values) -> Values:
    return {name: abs(values[name] / exact[name] - 1) for name in METRICS}


def measure(channels: int, cells: int, options: argparse.Namespace) -> bool:
    """Prints the table of one size; whether all values agreed."""
    space = get_space("nasbench201")
    rng = np.random.default_rng(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, generator=generator)
    labels = torch.randint(10, (options.batch_size,), generator=generator)
    seconds: dict[str, list[float]] = {"shared": [], "plain": []}
    worst: dict[str, Values] = {way: dict.fromkeys(METRICS, 0.0) for way in ("float64", "shared", "plain")}
    done = 0
    while done < options.architectures:
        architecture = space.sample(rng)
        network = build(
            space,
            architecture,
            network=NetworkSettings(channels=channels, cells=cells),
            in_channels=3,
            num_classes=10,
            seed=options.seed,
            for_scoring=True,
        )
        double = copy.deepcopy(network).double()
        # in the layout that float32 is scored in, so that the same kernels are compared
        exact = shared(double, images.double().contiguous(memory_format=torch.channels_last), labels)
        if not all(np.isfinite(value) for value in exact.values()):
            continue  # a disconnected cell has no values to compare
        reference = plain(double, images.double(), labels)
        found = {}
        for name, way in (("shared", shared), ("plain", plain)):
            time_taken, found[name] = fastest(way, options, network, images, labels)
            seconds[name].append(time_taken)
        for name, values in (("float64", exact), ("shared", found["shared"]), ("plain", found["plain"])):
            for metric, value in deviation(values, reference).items():
                worst[name][metric] = max(worst[name][metric], value)
        done += 1
        if options.verbose:
            print(f"  {space.encode(architecture)} {seconds['shared'][-1]:.3f} s, plain {seconds['plain'][-1]:.3f} s")
    total = {name: sum(times) for name, times in seconds.items()}
    print(
        f"(C, N) = ({channels}, {cells}): {done} architectures, batch {options.batch_size}, "
        f"{options.threads} thread(s), {options.clock} clock"
    )
    print(f"  {'':10}{'s / architecture':>18}{'architectures / s':>20}{'speed-up':>12}")
    for name in ("shared", "plain"):
        print(f"  {name:10}{total[name] / done:18.3f}{done / total[name]:20.3f}{total['plain'] / total[name]:12.2f}")
    print(f"  largest relative deviation {'':4}" + "".join(f"{name:>11}" for name in METRICS))
    for name, title in (
        ("float64", "shared, both in float64"),
        ("shared", "shared float32, float64"),
        ("plain", "plain float32, float64"),
    ):
        print(f"  {title:31}" + "".join(f"{worst[name][metric]:11.1e}" for metric in METRICS))
    return all(value <= TOLERANCE for value in worst["float64"].values())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", type=int, default=8, help="drawn at random for each size (default 8)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each, the fastest counts (default 2)")
    parser.add_argument("--batch-size", type=int, default=64, help="images in the batch (default 64)")
    parser.add_argument("--image-size", type=int, default=32, help="height and width of the images (default 32)")
    parser.add_argument("--size", action="append", metavar="C,N", help="channels and cells; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="of architectures, weights and images (default 0)")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: processor time, for a machine that others use too"
    )
    parser.add_argument("--verbose", action="store_true", help="print every architecture")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    agreed = True
    for size in options.size or ["16,1", "16,5"]:
        channels, cells = (int(number) for number in size.split(","))
        agreed = measure(channels, cells, options) and agreed
    if not agreed:
        print(f"the two ways differ by more than {TOLERANCE} in float64", file=sys.stderr)
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
