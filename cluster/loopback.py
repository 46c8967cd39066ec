"""Make Ray listen only on 127.0.0.1: its servers, workers, agents and metrics, not only its dashboard."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import ray

from archray.cluster import CLUSTER_VARIABLE
from archray.cluster.processes import own_processes
from archray.cluster.ray_compat import CLUSTER_SWITCH, process_wide, switched
from archray.errors import ArchrayError

LOOPBACK = "127.0.0.1"
REMEDY = f"Set {CLUSTER_VARIABLE}=0 before Python starts, or join a running Ray with --address"
LISTENS = "0A"  # the state of a socket in /proc/net/tcp


class ReachableRay(ArchrayError):
    """Other machines can reach a Ray that archray has started or would start."""


def _reachable(got: str) -> ReachableRay:
    return ReachableRay(
        f"Expected Ray to listen only on {LOOPBACK}, got {got}. archray does not start a Ray that other machines can "
        f"reach. {REMEDY}"
    )


@process_wide
@contextmanager
def loopback_only() -> Iterator[None]:
    """Gives a Ray that `ray.init` starts or joins inside the block the address 127.0.0.1; it listens nowhere else.

    Ray (2.55 to 2.60) uses the address of the machine, and listens on all interfaces, unless its switch for macOS and
    Windows is set. Ray's processes inherit the switch, so a submitted job finds this Ray.

    Raises: ReachableRay if Ray uses another address.
    """
    inherited = os.environ.get(CLUSTER_VARIABLE)
    os.environ[CLUSTER_VARIABLE] = "0"
    try:
        with switched(CLUSTER_SWITCH, False):
            address = LOOPBACK if ray.is_initialized() else ray.util.get_node_ip_address()
            if address != LOOPBACK:
                raise _reachable(f"the address {address}")
            yield
    finally:
        if inherited is None:
            del os.environ[CLUSTER_VARIABLE]
        else:
            os.environ[CLUSTER_VARIABLE] = inherited


@contextmanager
def checked_loopback(announce: Callable[[str], None]) -> Iterator[None]:
    """Applies `loopback_only`, and at the end of the block checks the Ray that was started in it.

    The check reads the address of Ray's node and, from /proc, the TCP sockets that this process and its descendants
    opened in the block.

    Args:
        announce: called with a line for the user if the sockets cannot be read.

    Raises: ReachableRay if other machines can reach Ray. The caller shuts Ray down.
    """
    before = reachable_sockets()
    with loopback_only():
        yield
    addresses = [node["NodeManagerAddress"] for node in ray.nodes()]
    if any(address != LOOPBACK for address in addresses):
        raise _reachable(f"a node at {', '.join(addresses)}")
    after = reachable_sockets()
    if before is None or after is None:
        announce("archray did not check the sockets of Ray, since this system has no /proc/net/tcp.")
        return
    opened = {inode: place for inode, place in after.items() if inode not in before}
    listeners = sorted(_owners(opened)) if opened else []
    if listeners:
        raise _reachable(", ".join(listeners))


def reachable_sockets() -> dict[str, str] | None:
    """Returns the TCP sockets of this machine that listen beyond loopback, by inode; None without /proc/net/tcp."""
    sockets: dict[str, str] = {}
    for family in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{family}").read_text().splitlines()[1:]
        except OSError:
            if family == "tcp":
                return None
            continue  # a kernel without IPv6
        for fields in map(str.split, lines):
            digits, _, port = fields[1].partition(":")
            # Words of four bytes in the byte order of this machine.
            words = [int(digits[start : start + 8], 16) for start in range(0, len(digits), 8)]
            address = ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
            if isinstance(address, IPv6Address):
                address = address.ipv4_mapped or address
            if fields[3] == LISTENS and not address.is_loopback:
                sockets[fields[9]] = f"{address} port {int(port, 16)}"
    return sockets


def _owners(sockets: dict[str, str]) -> Iterator[str]:
    """Yields the `sockets` of this process and its descendants, with the name of the process."""
    for process in own_processes():
        with suppress(OSError):  # the process has ended
            for file in (process.folder / "fd").iterdir():
                with suppress(OSError):
                    inode = os.readlink(file).removeprefix("socket:[").removesuffix("]")
                    if inode in sockets:
                        yield f"{process.name} at {sockets[inode]}"
