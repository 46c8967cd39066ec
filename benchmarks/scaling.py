"""Pool scoring over 1, 2, 4 and 8 nodes: architectures per second, and the share of the actors' time with work.

    python benchmarks/scaling.py [--nodes 1 2 4 8] [--seconds 60] [--item 0.2] [--spread 0.5]

The script starts several raylets on this machine, with two simulated CPUs each, and a head without CPUs. An actor of
`score_in_shards` sleeps instead of scoring: `--item` seconds on average, up to a half more or less with `--spread`. The
architecture's name contains the time. So the machine's cores are no limit, and the script measures the driver's part:
exchange of chunks, writing of shards, and actors that wait for the last chunks. The pool grows with the nodes, so that
each actor has `--seconds` of work. On real nodes the processes of actors start at the same time; on two cores they
start one after another. The clock therefore runs from the moment when all actors work to the end of the last item. A
separate column contains the time of the starts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import pandas as pd
import ray
from ray.cluster_utils import Cluster
from rich.console import Console

from archray.cluster.settings import ResourceSettings
from archray.files import Folder
from archray.platform.engine.pool_scoring import score_in_shards

CPUS = 2  # simulated CPUs of a node; an actor takes one
TYPES = {"metric": "float64", "started": "float64", "ended": "float64", "actor": "string", "failure": "string"}


class Sleeper:
    """Scores by sleeping for the seconds in the architecture's name."""

    def __call__(self, architecture: str) -> dict[str, Any]:
        start = time.time()
        time.sleep(float(architecture.partition(":")[2]))
        return {"metric": 0.0, "started": start, "ended": time.time(), "actor": str(os.getpid()), "failure": None}


def names(count: int, mean: float, spread: float) -> list[str]:
    """Returns distinct names with evenly spread times, in no order (by the golden ratio)."""
    places = [(number * 0.6180339887498949) % 1 for number in range(count)]
    return [f"{number}:{mean * (1 + spread * (2 * place - 1)):.4f}" for number, place in enumerate(places)]


def score(nodes: int, architectures: list[str]) -> tuple[pd.DataFrame, float]:
    """Scores the architectures over `nodes` nodes. Returns a row per architecture, and the start time."""
    small = {"num_gpus": 0, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small})
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=CPUS, **small)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)
        start = time.time()
        with tempfile.TemporaryDirectory() as scratch:
            table = score_in_shards(
                Folder(scratch),
                architectures,
                worker=Sleeper,
                worker_kwargs={},
                types=TYPES,
                resources=ResourceSettings(cpus_per_trial=1, gpus_per_trial=0),
                console=Console(quiet=True),
            )
        return table, start
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of work per actor")
    parser.add_argument("--item", type=float, default=0.2, help="mean seconds per architecture")
    parser.add_argument("--spread", type=float, default=0.5, help="maximum deviation from the mean, as a share of it")
    options = parser.parse_args()
    print("| nodes | actors | architectures/s | actors' time at work | until all worked |\n|---|---|---|---|---|")
    for nodes in options.nodes:
        count = round(nodes * CPUS * options.seconds / options.item)
        table, start_time = score(nodes, names(count, options.item, options.spread))
        actors = table["actor"].nunique()
        start, ended = table.groupby("actor")["started"].min().max(), table["ended"].max()
        worked = (table["ended"] - table["started"].clip(lower=start)).clip(lower=0).sum()
        rate, share = (table["ended"] > start).sum() / (ended - start), worked / (ended - start) / actors
        print(f"| {nodes} | {actors} | {rate:.1f} | {share:.1%} | {start - start_time:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
