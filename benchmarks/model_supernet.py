"""Time and memory of a step of the supernet of a model with choices, relative to the built-in supernet.

`examples/nasbench201_with_choices.py` and `examples/darts_with_choices.py` against the built-in spaces, with the same
sizes and images. A step is a forward and a backward pass, of the whole mixture or of one path. The ways take turns, and
the median of the ratios counts.

    python benchmarks/model_supernet.py --repeats 9
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks import Supernet, build_supernet

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CELLS = {"nasbench201": 5, "darts": 2}  # per stage


def mixtures(supernet: Supernet, one_path: bool) -> dict:
    """The uniform mixture, or the path of one architecture."""
    if one_path:
        return supernet.path(supernet.space.sample(np.random.default_rng(0)))
    return {group.name: torch.full(group.shape, 1.0 / group.shape[1], requires_grad=True) for group in supernet.groups}


def step(supernet: Supernet, mixture: dict, images: torch.Tensor, labels: torch.Tensor) -> None:
    supernet.zero_grad(set_to_none=True)
    F.cross_entropy(supernet(images, mixture), labels).backward()


def seconds(function: object, *arguments: object) -> float:
    start = time.perf_counter()
    function(*arguments)  # type: ignore[operator]
    return time.perf_counter() - start


def peak_bytes(function: object, *arguments: object) -> int:
    """The largest sum of tensors at a time, from torch's allocation events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        function(*arguments)  # type: ignore[operator]
    total = peak = 0
    for event in trace.profiler.kineto_results.events():
        if event.name() == "[memory]":
            total += event.nbytes()
            peak = max(peak, total)
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--channels", type=int, default=16)
    options = parser.parse_args()
    images = torch.randn(options.batch_size, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(options.batch_size) % 10
    print("space,case,time_ratio,time_q25,time_q75,memory_ratio,built_in_seconds")
    for space, cells in CELLS.items():
        network, reference = (
            NetworkSettings(channels=options.channels, cells=cells),
            EXAMPLES / f"{space}_with_choices.py",
        )
        ours, built_in = (build_supernet(get_space(n), network, 3, 10, seed=0) for n in (f"{reference}:network", space))
        for one_path in (False, True):
            cases = [(supernet, mixtures(supernet, one_path), images, labels) for supernet in (ours, built_in)]
            times = [[seconds(step, *case) for case in cases] for _ in range(options.repeats + 1)][
                1:
            ]  # after a warm-up
            ratios = [own / other for own, other in times]
            low, _, high = statistics.quantiles(ratios, n=4)
            memory = peak_bytes(step, *cases[0]) / peak_bytes(step, *cases[1])
            row = [statistics.median(ratios), low, high, memory, statistics.median(other for _, other in times)]
            numbers = ",".join(f"{number:.3f}" for number in row)
            print(f"{space},{'path' if one_path else 'mixture'},{numbers}", flush=True)


if __name__ == "__main__":
    main()
