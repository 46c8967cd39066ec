"""The program of a second node: `python -c NODE ADDRESS` joins the head on loopback until its input ends."""

NODE = """
import sys
from archray.cluster.loopback import LOOPBACK, loopback_only
from ray._private.node import Node
from ray._private.parameter import RayParams

ports = dict(node_manager_port=0, dashboard_agent_listen_port=0)
with loopback_only():
    params = RayParams(gcs_address=sys.argv[1], node_ip_address=LOOPBACK, num_cpus=1, num_gpus=0, **ports)
    node = Node(params, head=False, shutdown_at_exit=False, spawn_reaper=True)
print("a node", flush=True)
sys.stdin.readline()
node.kill_all_processes(check_alive=False, allow_graceful=True)
"""
