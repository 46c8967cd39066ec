"""A node leaves during a map: several raylets on this machine, one of which is removed."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import time
import ray
from ray.cluster_utils import Cluster
from archray.cluster.actor_pool import actor_map

class Node:
    def __call__(self, item):
        time.sleep(0.2)
        return ray.get_runtime_context().get_node_id()

cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=0, num_gpus=0, include_dashboard=False))
nodes = [cluster.add_node(num_cpus=2, num_gpus=0) for _ in range(2)]
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)
outcomes, removed = [], None
for chunk in actor_map(Node, list(range(60)), worker_kwargs={}, chunk_size=2, num_actors=4):
    outcomes += chunk
    if removed is None and len({outcome.value for outcome in outcomes}) == 2:
        removed = nodes.pop()
        lost = removed.node_id
        cluster.remove_node(removed, allow_graceful=False)
assert removed is not None
assert sorted(outcome.index for outcome in outcomes) == list(range(60))
assert all(outcome.error is None for outcome in outcomes)
assert outcomes[-1].value != lost
assert {outcome.value for outcome in outcomes} == {lost, nodes[0].node_id}
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
@pytest.mark.ci
def test_a_node_that_leaves_loses_no_item() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
