"""Architectures per second: grad_norm, snip, grasp, ntk_trace and kappa in shared passes, against two other ways.

`plain` makes a pass per metric, and gives every sample a copy of the weights for the kernel. `authors` reimplements the
public part of the program of Shu (2022), and is slower (see `proxy_baselines.py`). All ways score the same networks on
the same batch in float32, one after another. The fastest of the repeats counts.

The script compares the values in float64, in which all must agree to 1e-4 (they agree to about 1e-9); otherwise the
exit status is 1. In float32 a ReLU unit with an input near zero can be on in one way and off in another, so the script
only prints the deviation of each way from float64.

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
from proxy_baselines import Values, authors, plain
from torch import Tensor, nn

from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import ProxySettings, score
from archray.trainables.spaces import get_space

METRICS = ("grad_norm", "snip", "grasp", "ntk_trace", "kappa")
TOLERANCE = 1e-4
BASELINES = {"plain": plain, "authors": authors}


def shared(network: nn.Module, images: Tensor, labels: Tensor) -> Values:
    """Scores by archray's shared pass. NaN for a failed metric."""
    return {name: s.value for name, s in score(network, images, labels, METRICS, ProxySettings()).items()}


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def fastest(way: Callable[..., Values], options: argparse.Namespace, *arguments: Any) -> tuple[float, Values]:
    """Returns the seconds of the fastest run, and the values."""
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
    """Prints the table of one size. Returns whether all values agree."""
    space = get_space("nasbench201")
    rng = np.random.default_rng(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, generator=generator)
    labels = torch.randint(10, (options.batch_size,), generator=generator)
    ways = {"shared": shared, **BASELINES}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    worst = {(way, precision): dict.fromkeys(METRICS, 0.0) for way in ways for precision in ("float32", "float64")}
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
        # in the layout of float32 scoring, to compare the same kernels
        last = images.double().contiguous(memory_format=torch.channels_last)
        exact = {
            way: function(double, last if way == "shared" else images.double(), labels)
            for way, function in ways.items()
        }
        if not all(np.isfinite(value) for value in exact["shared"].values()):
            continue  # a disconnected cell has no values to compare
        values_by_way = {}
        for way, function in ways.items():
            time_taken, values_by_way[way] = fastest(function, options, network, images, labels)
            seconds[way].append(time_taken)
            for precision, values in (("float32", values_by_way[way]), ("float64", exact[way])):
                for metric, value in deviation(values, exact["plain"]).items():
                    worst[way, precision][metric] = max(worst[way, precision][metric], value)
        done += 1
        if options.verbose:
            times = ", ".join(f"{way} {times[-1]:.3f} s" for way, times in seconds.items())
            print(f"  {space.encode(architecture)} {times}")
    total = {way: sum(times) for way, times in seconds.items()}
    print(
        f"(C, N) = ({channels}, {cells}): {done} architectures, batch {options.batch_size}, "
        f"{options.threads} thread(s), {options.clock} clock"
    )
    print(f"  {'':10}{'s / architecture':>18}{'architectures / s':>20}{'times shared':>14}")
    for way in ways:
        print(f"  {way:10}{total[way] / done:18.3f}{done / total[way]:20.3f}{total[way] / total['shared']:14.2f}")
    print(f"  largest deviation from plain in float64 {'':3}" + "".join(f"{name:>11}" for name in METRICS))
    for (way, precision), values in worst.items():
        if (way, precision) != ("plain", "float64"):
            print(f"  {way:10}{precision:32}" + "".join(f"{values[metric]:11.1e}" for metric in METRICS))
    return all(value <= TOLERANCE for way in ways for value in worst[way, "float64"].values())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", type=int, default=8, help="drawn at random for each size (default 8)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--repeats", type=int, default=2, help="runs per way; the fastest counts (default 2)")
    parser.add_argument("--batch-size", type=int, default=64, help="images in the batch (default 64)")
    parser.add_argument("--image-size", type=int, default=32, help="height and width of the images (default 32)")
    parser.add_argument("--size", action="append", metavar="C,N", help="channels and cells; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="seed of architectures, weights and images (default 0)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: processor time, for a busy machine")
    parser.add_argument("--verbose", action="store_true", help="print every architecture")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    agreed = True
    for size in options.size or ["16,1", "16,5"]:
        channels, cells = (int(number) for number in size.split(","))
        agreed = measure(channels, cells, options) and agreed
    if not agreed:
        print(f"the ways differ by more than {TOLERANCE} in float64", file=sys.stderr)
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
