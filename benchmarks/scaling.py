"""Pool scoring over 1, 2, 4 and 8 nodes: architectures a second, and the share of the actors' time that is work.

    python benchmarks/scaling.py [--nodes 1 2 4 8] [--seconds 60] [--item 0.2] [--spread 0.5]

Several raylets on this machine, two pretended CPUs each, and a head without any. An actor of `score_in_shards` sleeps
in place of scoring: `--item` seconds on average, a half less to a half more by `--spread`, as the architecture's name
says. So the machine's cores are no limit, and what is measured is the driver's part: chunks sent and taken back, shards
written, actors that wait for the last ones. The pool grows with the nodes, so that each actor has `--seconds` of work.
The processes of actors start at the same time on real nodes and one after another on two cores: the clock runs from the
moment when all of them work, to the end of the last item. What the starts took is a column of its own.
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

CPUS = 2  # pretended, of a node; an actor takes one
TYPES = {"metric": "float64", "began": "float64", "ended": "float64", "actor": "string", "failure": "string"}


class Sleeper:
    """Scores by sleeping: as long as the architecture's name says."""

    def __call__(self, architecture: str) -> dict[str, Any]:
        began = time.time()
        time.sleep(float(architecture.partition(":")[2]))
        return {"metric": 0.0, "began": began, "ended": time.time(), "actor": str(os.getpid()), "failure": None}


def names(count: int, mean: float, spread: float) -> list[str]:
    """Distinct names that say how long each takes, spread evenly and in no order (by the golden ratio)."""
    places = [(number * 0.6180339887498949) % 1 for number in range(count)]
    return [f"{number}:{mean * (1 + spread * (2 * place - 1)):.4f}" for number, place in enumerate(places)]


def score(nodes: int, architectures: list[str]) -> tuple[pd.DataFrame, float]:
    """A row for each architecture, scored over so many nodes, and when the scoring was begun."""
    small = {"num_gpus": 0, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small})
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=CPUS, **small)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)
        began = time.time()
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
        return table, began
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=60.0, help="of work for each actor")
    parser.add_argument("--item", type=float, default=0.2, help="seconds that an architecture takes on average")
    parser.add_argument("--spread", type=float, default=0.5, help="how far from the average, as a share of it")
    options = parser.parse_args()
    print("| nodes | actors | architectures/s | actors' time at work | until all worked |\n|---|---|---|---|---|")
    for nodes in options.nodes:
        count = round(nodes * CPUS * options.seconds / options.item)
        table, asked = score(nodes, names(count, options.item, options.spread))
        actors = table["actor"].nunique()
        began, ended = table.groupby("actor")["began"].min().max(), table["ended"].max()
        worked = (table["ended"] - table["began"].clip(lower=began)).clip(lower=0).sum()
        rate, share = (table["ended"] > began).sum() / (ended - began), worked / (ended - began) / actors
        print(f"| {nodes} | {actors} | {rate:.1f} | {share:.1%} | {began - asked:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
