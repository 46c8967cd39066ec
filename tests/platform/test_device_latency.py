"""A latency measured in an actor on a simulated device: a second raylet with a custom resource."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
from pathlib import Path
import pandas as pd, pytest, ray
from ray.cluster_utils import Cluster
import archray
from archray.errors import InvalidInput
from archray.platform.engine.run_costs import DeviceMeter, whole_resources
from archray.trainables.costs import LatencySettings
from archray.trainables.nets import NetworkSettings

out = Path(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=2, num_gpus=0, include_dashboard=False))
device = cluster.add_node(num_cpus=0, num_gpus=0, resources={"raspberry": 2})
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)
assert whole_resources({"raspberry": 1}) == {"raspberry": 2.0}  # the whole device
with pytest.raises(InvalidInput, match="a node with the resources .*, got a cluster with .*raspberry"):
    whole_resources({"phone": 1})
with pytest.raises(InvalidInput, match="a node with the resources"):  # before any trial
    archray.search("random", preset="smoke", cost="latency_ms", cost_on='{"phone": 1}', out=out)
assert not out.exists()

how = LatencySettings(warmup=1, repeats=3, runtime=sys.argv[2], batch_size=2)
meter = DeviceMeter({"raspberry": 1}, ("nasbench201", NetworkSettings(channels=4, cells=1), 1, 8, 10, how))
cell = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"
assert meter.whole(cell)[0] > 0
where = ray.get(meter._actor.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id()))
assert where == device.node_id
assert ray.available_resources().get("raspberry", 0.0) == 0.0  # nobody else times there now
del meter

run = archray.search(
    "random", preset="smoke", budget=2, random=0, channels=4, cells=1, constraint="latency_ms <= 60000",
    cost_on='{"raspberry": 1}', costs__latency__runtime=sys.argv[2], costs__latency__threads=2,
    address=cluster.address, out=out,
)
trials = pd.read_parquet(out / "search" / "trials.parquet")
kept = json.loads((out / "costs" / "latency.json").read_text())["whole"]
assert trials["latency_ms"].gt(0).all() and trials["latency_ms_iqr"].ge(0).all()
assert {median for median, _ in kept.values()} >= set(trials["latency_ms"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["torch-export", pytest.param("onnxruntime", marks=pytest.mark.extra("export"))])
def test_networks_are_timed_on_the_node_of_a_custom_resource(runtime: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "run"), runtime], check=True)
