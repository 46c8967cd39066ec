"""The error of a latency that is summed over operations, against the latency of the whole network, on NAS-Bench-201.

    python benchmarks/latency_lookup.py [--cells 30] [--repeats 51] [--stages 1] [--channels 16] [--clock cpu]

The script times each network as a whole, as its program of torch.export, and by the sum over the operations of that
program. It times each distinct operation once. It prints the plain sum, and the sum on a line that is fitted to a few
other networks; none of these is among the cells here. Whole networks are timed in two passes, so that the error of the
sum can be compared with the error of a second measurement. Every time is the median of the repeats, on one thread.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from archray.trainables.costs import CostSettings, LatencySettings
from archray.trainables.costs.meter import Latencies, LatencyMeter, calibration_candidates
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--stages", type=int, default=1, help="cells per stage")
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--size", type=int, default=32, help="pixels per side")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu on a busy machine")
    options = parser.parse_args()
    space, rng = get_space("nasbench201"), np.random.default_rng(0)
    fitted = calibration_candidates(space)
    forms: dict[str, None] = {}
    while len(forms) < options.cells:
        name = space.encode(space.canonical(space.sample(rng)))
        if name not in fitted:
            forms[name] = None
    settings = CostSettings(latency=LatencySettings(repeats=options.repeats, clock=options.clock))
    network = NetworkSettings(channels=options.channels, cells=options.stages)
    meter = LatencyMeter("nasbench201", network, 3, options.size, 10, settings.latency)
    first, again = Latencies(lambda: meter, "whole"), Latencies(lambda: meter, "whole")
    looked_up = Latencies(lambda: meter, "lookup", candidates=lambda: fitted, announce=print)
    columns = {"whole": first, "again": again, "sum": looked_up.sum, "lookup": looked_up}
    frame = pd.DataFrame({name: [times(form)[0] for form in forms] for name, times in columns.items()})
    frame["iqr"] = [first(form)[1] for form in forms]
    print(frame.round(3).to_string())
    print(f"{len(looked_up.record['operations'])} distinct operations timed for {options.cells} networks")
    for name in ("again", "sum", "lookup"):
        ratio = frame[name] / frame["whole"]
        scaled = ratio / ratio.median()
        ranks = frame[name].corr(frame["whole"], method="spearman")
        for of, error in (("absolute error", (ratio - 1).abs()), ("after one factor for all", (scaled - 1).abs())):
            print(f"{name}, {of}: median {error.median():.1%}, largest {error.max():.1%}")
        print(
            f"{name}: factor {ratio.median():.3f}, Pearson {frame[name].corr(frame['whole']):.3f}, Spearman {ranks:.3f}"
        )


if __name__ == "__main__":
    main()
