"""A pool is scored on nodes of which one fails and another joins: several raylets on this machine."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading, time
import pandas as pd
import ray
from ray.cluster_utils import Cluster
from rich.console import Console
from archray.cluster.settings import ResourceSettings
from archray.files import Folder
from archray.platform.engine.pool_scoring import score_in_shards

class Scorer:
    def __call__(self, architecture):
        time.sleep(0.3)
        return {"metric": float(len(architecture)), "node": ray.get_runtime_context().get_node_id(), "failure": None}

small = {"num_gpus": 0, "object_store_memory": 80 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small})
nodes = [cluster.add_node(num_cpus=1, **small) for _ in range(2)]
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)
folder = Folder(sys.argv[1])
seen = lambda: {node for name in (folder / "shards").files() for node in folder.read_parquet(f"shards/{name}")["node"]}

def disturb():
    while not {node.node_id for node in nodes} <= seen():
        time.sleep(0.1)
    cluster.remove_node(nodes[0], allow_graceful=False)
    nodes.append(cluster.add_node(num_cpus=1, **small))

hands = threading.Thread(target=disturb)
hands.start()
architectures = ["x" * number for number in range(1, 121)]
table = score_in_shards(
    folder, architectures, worker=Scorer, worker_kwargs={}, chunk=2, console=Console(quiet=True),
    types={"metric": "float64", "node": "string", "failure": "string"},
    resources=ResourceSettings(cpus_per_trial=1, gpus_per_trial=0),
)
hands.join()
assert list(table["architecture"]) == architectures
assert list(table["metric"]) == [float(len(name)) for name in architectures]
assert table["failure"].isna().all(), "who was on the lost node is not to blame"
assert set(table["node"]) == {node.node_id for node in nodes}, "the one that joined got work"
shards = pd.concat([folder.read_parquet(f"shards/{name}") for name in (folder / "shards").files()])
assert shards["architecture"].is_unique
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
def test_a_lost_node_and_a_new_node_change_no_result(tmp_path):
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "pool")], check=True, timeout=500)
