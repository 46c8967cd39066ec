"""Speed of a training step of the DARTS and PC-DARTS supernets, compared with the style of the original.

The original has one module per operation and edge, and sums their weighted outputs. Here it consists of copies of the
supernet's own modules, in torch's default layout and in channels-last. A step is a forward pass and a backward pass to
weights and architecture parameters. The clock is the processor time of all threads. The ways take turns, so that other
work on the machine affects all alike, and the medians over the repeats count. The script compares outputs and gradients
in float64 at a small size. They must agree to 1e-9, otherwise the exit status is 1.

    python benchmarks/supernet_step.py --batch-size 32 --repeats 5
    python benchmarks/supernet_step.py --profile
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import profile

from archray.trainables.nets import NetworkSettings
from archray.trainables.supernets.networks import Supernet, build_supernet

TOLERANCE = 1e-9
NODES, INPUTS = (2, 3, 4, 5), 2


class Original(nn.Module):
    """A supernet of DARTS in the style of the original, with copies of the modules of `supernet`."""

    def __init__(self, supernet: Supernet) -> None:
        super().__init__()
        self.supernet = copy.deepcopy(supernet).to(memory_format=torch.contiguous_format)
        self.partial = supernet.partial_channels

    def forward(self, images: Tensor, weights: dict[str, Tensor]) -> Tensor:
        before, last = self.supernet.stem(images)
        for cell in self.supernet.cells:
            before, last = last, self.cell(cell, before, last, weights, "reduce" if cell.reduction else "normal")
        return self.supernet.classifier(last.mean((2, 3)))

    def cell(self, cell: nn.Module, before: Tensor, last: Tensor, weights: dict[str, Tensor], kind: str) -> Tensor:
        states, row = [cell.preprocess_0(before), cell.preprocess_1(last)], 0
        for node in NODES:
            total = 0
            for source, state in enumerate(states):
                stride = 2 if cell.reduction and source < INPUTS else 1
                mixed = self.mixed(cell.mixed.edges[f"{node}<-{source}"], state, weights[kind][row], stride)
                if self.partial > 1:
                    mixed = weights[f"{kind}_inputs_{node}"][0, source] * mixed
                total, row = total + mixed, row + 1
            states.append(total)
        return torch.cat(states[INPUTS:], dim=1)

    def mixed(self, operations: nn.ModuleDict, x: Tensor, weights: Tensor, stride: int) -> Tensor:
        seen = x[:, : x.shape[1] // self.partial]
        out = weights[0] * seen[:, :, ::stride, ::stride].mul(0.0)  # none
        for weight, operation in zip(weights[1:], operations.values(), strict=True):
            out = out + weight * operation(seen)
        if self.partial == 1:
            return out
        rest = x[:, x.shape[1] // self.partial :]
        out = torch.cat([out, rest if stride == 1 else F.max_pool2d(rest, 2, 2)], dim=1)
        n, channels, height, width = out.shape
        out = out.view(n, self.partial, channels // self.partial, height, width)
        return out.transpose(1, 2).reshape(n, channels, height, width)


def mixture(supernet: Supernet, dtype: torch.dtype) -> dict[str, Tensor]:
    """Draws random rows on the simplex for every group."""
    generator = torch.Generator().manual_seed(1)
    return {
        group.name: torch.randn(group.shape, generator=generator, dtype=dtype).softmax(-1).requires_grad_()
        for group in supernet.groups
    }


def agree(partial: int) -> bool:
    """Returns whether outputs and all gradients of the two ways agree in float64, at a small size."""
    network = NetworkSettings(channels=8, cells=1)
    supernet = build_supernet("darts", network, 3, 10, seed=0, partial_channels=partial).double()
    original = Original(supernet)
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)).double()
    tensors_of_ways = []
    for way, parameters in ((supernet, supernet.parameters()), (original, original.parameters())):
        weights = mixture(supernet, torch.float64)
        logits = way(images, weights)
        logits.square().sum().backward()
        tensors_of_ways.append([logits.detach(), *(p.grad for p in parameters), *(w.grad for w in weights.values())])
    worst = max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in zip(*tensors_of_ways, strict=True))
    print(f"K = {partial}: largest deviation of outputs and gradients in float64, relative to the largest: {worst:.1e}")
    return worst < TOLERANCE


def step(network: nn.Module, images: Tensor, labels: Tensor, weights: dict[str, Tensor]) -> None:
    F.cross_entropy(network(images, weights), labels).backward()


def ways(partial: int, options: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """Returns one step of each way by name, on the same images and weights."""
    settings = NetworkSettings(channels=options.channels, cells=options.cells)
    supernet = build_supernet("darts", settings, 3, 10, seed=0, partial_channels=partial)
    original = Original(supernet)
    moved = copy.deepcopy(original).to(memory_format=torch.channels_last)
    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size)
    labels = torch.randint(10, (options.batch_size,))
    weights = mixture(supernet, torch.float32)
    last = images.contiguous(memory_format=torch.channels_last)
    return {
        "original": lambda: step(original, images, labels, weights),
        "original, channels-last": lambda: step(moved, last, labels, weights),
        "archray": lambda: step(supernet, images, labels, weights),
    }


def measure(partial: int, options: argparse.Namespace) -> None:
    """Prints the medians, and the ratios to the original within each round."""
    steps = ways(partial, options)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.repeats + 1):
        for name, run in steps.items():
            start = time.process_time()
            run()
            if turn > 0:  # the first allocates
                seconds[name].append(time.process_time() - start)
    for name, taken in seconds.items():
        ratios = [original / way_seconds for original, way_seconds in zip(seconds["original"], taken, strict=True)]
        print(
            f"K = {partial} | {name:24s} | {options.batch_size / statistics.median(taken):6.1f} images/s | "
            f"{statistics.median(ratios):.2f} times the original"
        )


KINDS = {  # substring of a kernel's name -> label of its time
    "native_batch_norm": "torch's batch norm",
    "convolution": "convolutions",
    "pool": "pools",
    "clamp": "ReLU",
    "relu": "ReLU",
    "threshold": "ReLU",
}


def where(partial: int, options: argparse.Namespace) -> None:
    """Prints the time of a step by kind of kernel."""
    for name, run in ways(partial, options).items():
        run()
        with profile() as profiler:
            run()
        times: dict[str, float] = {}
        for event in profiler.key_averages():
            kernel = event.key.lower()
            kind = next(
                (kind for part, kind in KINDS.items() if part in kernel), "sums (archray: normalized), copies, overhead"
            )
            times[kind] = times.get(kind, 0.0) + event.self_cpu_time_total / 1e6
        print(f"K = {partial} | {name}: " + ", ".join(f"{k} {v:.2f} s" for k, v in sorted(times.items())))


def main() -> int:
    """Runs the command line. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partial", type=int, nargs="+", default=[1, 4], help="K: 1 is DARTS, 4 PC-DARTS")
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--cells", type=int, default=2, help="N: 3 N + 2 cells")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="print the time by kind of kernel instead")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if not all(agree(partial) for partial in options.partial):
        return 1
    for partial in options.partial:
        (where if options.profile else measure)(partial, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
