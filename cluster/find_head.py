"""What answers at the address of a cluster: asked in seconds, where Ray itself tries for 20 s to ten minutes."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import Any

import grpc
import ray
from ray._private import gcs_utils, services
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.core.generated import gcs_pb2, gcs_service_pb2, gcs_service_pb2_grpc
from ray.exceptions import AuthenticationError

from archray.cluster.loopback import LOOPBACK

MESSAGES: Any = gcs_service_pb2  # their classes are made as they load: mypy finds none
NODES: Any = gcs_pb2
AUTO = "auto"  # Ray's word for "the cluster that runs on this machine"
ANSWER_SECONDS = 5.0  # for a connection to be accepted, and for an answer over it
AUTH_MODE = "RAY_AUTH_MODE"
TOKEN, TOKEN_FILE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
GET_TOKEN = (
    "'ray get-auth-token' on the head prints it; give it as RAY_AUTH_TOKEN, or the file with it as RAY_AUTH_TOKEN_PATH"
)


class Unreachable(Exception):
    """Nothing that can be joined answers at an address; the message says what is there, and what to do."""


@dataclass(frozen=True)
class Head:
    """Where a cluster is joined. `loopback`: its head listens on 127.0.0.1 alone."""

    address: str
    loopback: bool


def find_head(address: str) -> Head:
    """The head of a cluster that can be joined: it takes our token, has our version of Ray, and a node on this machine.

    Args:
        address: `auto` or `host:port`.

    Raises: Unreachable, within seconds.
    """
    if address == AUTO:
        try:
            address = services.get_ray_address_from_environment(AUTO, None)
        except ConnectionError as error:
            raise Unreachable("no Ray runs on this machine; is it a node of the cluster?") from error
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise Unreachable("expected auto, local or ip:port")
    host = host.strip("[]")
    # Ray takes loopback for the address of this machine, on which a head listens unless it is on loopback alone.
    hosts = [ray.util.get_node_ip_address(), LOOPBACK] if host in (LOOPBACK, "localhost") else [host]
    for candidate in hosts:
        try:
            socket.create_connection((candidate, int(port)), timeout=ANSWER_SECONDS).close()
        except OSError as error:
            refused = error
            continue
        head = Head(f"[{candidate}]:{port}" if ":" in candidate else f"{candidate}:{port}", candidate == LOOPBACK)
        _check_head(head.address)
        return head
    raise Unreachable(f"nothing answers there ({refused}); is the cluster up, and its port open?") from refused


def _check_head(address: str) -> None:
    """Raises: Unreachable unless the head of a cluster of this Ray answers there, takes our token, and has us."""
    if os.environ.get(AUTH_MODE) == "token" and not send_given_token():
        raise Unreachable(f"{AUTH_MODE}=token, and there is no token; {GET_TOKEN}")
    try:
        version = _head_version(address)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAUTHENTICATED:
            raise Unreachable(
                f"what answers there is not the head of a Ray cluster ({error.code().name}); give the port of its GCS "
                "server, 6379 unless it was started with another (8265 is the dashboard's, for archray submit)"
            ) from error
        if not send_given_token():
            raise Unreachable(f"it asks for a token, and none was given; {GET_TOKEN}") from error
        try:
            version = _head_version(address)
        except grpc.RpcError:
            raise Unreachable(f"it does not take the token in {token_source()}; {GET_TOKEN}") from error
    if version != ray.__version__:
        raise Unreachable(f"it runs Ray {version}, and this is Ray {ray.__version__}; install the same version")
    deadline = time.monotonic() + ANSWER_SECONDS  # a raylet that has just been started is not known yet
    while not services.find_node_ids() & _node_ids(address):
        if time.monotonic() > deadline:
            raise Unreachable(
                "this machine is no node of it, and a search runs on one; send the command there: "
                f"archray submit --address http://{address.rpartition(':')[0]}:8265 -- ..."
            )
        time.sleep(0.5)


def _head_version(address: str) -> str:
    """The version of Ray of a head. Raises: grpc.RpcError."""
    with gcs_utils.create_gcs_channel(address) as channel:
        nodes = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        return nodes.CheckAlive(MESSAGES.CheckAliveRequest(), timeout=ANSWER_SECONDS).ray_version


def _node_ids(address: str) -> set[str]:
    """The nodes of a cluster that are alive. Raises: grpc.RpcError."""
    with gcs_utils.create_gcs_channel(address) as channel:
        nodes = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        answer = nodes.GetAllNodeInfo(MESSAGES.GetAllNodeInfoRequest(), timeout=ANSWER_SECONDS)
    alive = NODES.GcsNodeInfo.GcsNodeState.ALIVE
    return {node.node_id.hex() for node in answer.node_info_list if node.state == alive}


def token_source() -> str:
    """Where Ray takes its token from: the first of its three places that is there."""
    if os.environ.get(TOKEN):
        return TOKEN
    if os.environ.get(TOKEN_FILE):
        return f"{TOKEN_FILE}={os.environ[TOKEN_FILE]}"
    return "~/.ray/auth_token"


def send_given_token() -> bool:
    """Has Ray send the token that there is on this machine, unless RAY_AUTH_MODE says not to; whether there is one.

    Raises: Unreachable if RAY_AUTH_TOKEN_PATH names no file with a token.
    """
    mode = os.environ.get(AUTH_MODE)
    if mode is not None and mode != "token":
        raise Unreachable(f"it asks for a token, and {AUTH_MODE}={mode} keeps Ray from sending one; leave that out")
    try:
        has_token = AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    except (AuthenticationError, RuntimeError) as error:
        raise Unreachable(f"{token_source()} is no file with a token; {GET_TOKEN}") from error
    if has_token and mode is None:
        os.environ[AUTH_MODE] = "token"
        Config.initialize("")  # which has the variable read again
    return has_token
