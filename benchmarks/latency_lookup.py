"""How far a latency that is looked up by operation is from the whole network's, on cells of NAS-Bench-201.

    python benchmarks/latency_lookup.py [--cells 30] [--repeats 51] [--stages 1] [--clock cpu]

Each network is timed whole, as its program of torch.export runs, and by the sum over the operations of that program,
each distinct one of which is timed once. Whole networks are timed twice, in two passes over them, so that the error of
the look-up can be read against that of measuring again. Every time is the median of the repeats, on one thread.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

from archray.trainables.costs import CostSettings, LatencySettings
from archray.trainables.costs.latency_meter import Latencies, LatencyMeter
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--stages", type=int, default=1, help="cells a stage")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu where others use the machine")
    options = parser.parse_args()
    space, rng = get_space("nasbench201"), np.random.default_rng(0)
    forms: dict[str, None] = {}
    while len(forms) < options.cells:
        forms[space.encode(space.canonical(space.sample(rng)))] = None
    settings = CostSettings(latency=LatencySettings(repeats=options.repeats, clock=options.clock))
    network = NetworkSettings(cells=options.stages)
    how = settings.latency.model_dump(mode="json")
    meter = LatencyMeter("nasbench201", network, 3, 32, 10, how)
    first, again = Latencies(lambda: meter, "whole"), Latencies(lambda: meter, "whole")
    looked_up = Latencies(lambda: meter, "lookup")
    columns = {"whole": first, "again": again, "lookup": looked_up}
    frame = pd.DataFrame({name: [times(form)[0] for form in forms] for name, times in columns.items()})
    frame["iqr"] = [first(form)[1] for form in forms]
    print(frame.round(3).to_string())
    print(f"{len(looked_up.record['operations'])} distinct operations timed for {options.cells} networks")
    for name in ("again", "lookup"):
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
