"""Make Ray listen only on 127.0.0.1: its servers, workers, agents and metrics, not only its dashboard."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import ray

from archray.cluster.ray_compat import CLUSTER_SWITCH, CLUSTER_VARIABLE, process_wide, switched
from archray.errors import IncompatibleRay, tested_versions

LOOPBACK = "127.0.0.1"
LISTENS = "0A"  # the state of a socket in /proc/net/tcp


@process_wide
@contextmanager
def loopback_only() -> Iterator[None]:
    """Gives a Ray that `ray.init` starts or joins inside the block the address 127.0.0.1; it listens nowhere else.

    Ray (2.55 to 2.60) uses the address of the machine, and listens on all interfaces, unless its switch for macOS and
    Windows is set. Ray's processes inherit the switch, so a submitted job finds this Ray.

    Raises: IncompatibleRay if Ray uses another address.
    """
    variable = CLUSTER_VARIABLE.find()
    inherited = os.environ.get(variable)
    os.environ[variable] = "0"
    try:
        with switched(CLUSTER_SWITCH, False):
            address = LOOPBACK if ray.is_initialized() else ray.util.get_node_ip_address()
            if address != LOOPBACK:
                CLUSTER_SWITCH.changed(f"the address {address}")
            yield
    finally:
        if inherited is None:
            del os.environ[variable]
        else:
            os.environ[variable] = inherited


@contextmanager
def checked_loopback(announce: Callable[[str], None]) -> Iterator[None]:
    """Applies `loopback_only`, and at the end of the block checks the Ray that was started in it.

    The check reads the address of Ray's node and, from /proc, the TCP sockets that this process and its descendants
    opened in the block.

    Args:
        announce: called with a line for the user if the sockets cannot be read.

    Raises: IncompatibleRay if other machines can reach Ray. The caller shuts Ray down.
    """
    before = reachable_sockets()
    with loopback_only():
        yield
    problem = "Expected Ray to listen only on 127.0.0.1, got"
    advice = "archray does not start a Ray that other machines can reach"
    addresses = [node["NodeManagerAddress"] for node in ray.nodes()]
    if any(address != LOOPBACK for address in addresses):
        raise IncompatibleRay(tested_versions(f"{problem} a node at {', '.join(addresses)}. {advice}"))
    after = reachable_sockets()
    if before is None or after is None:
        announce("archray did not check the sockets of Ray, since this system has no /proc/net/tcp.")
        return
    opened = {inode: place for inode, place in after.items() if inode not in before}
    listeners = sorted(_owners(opened)) if opened else []
    if listeners:
        raise IncompatibleRay(tested_versions(f"{problem} {', '.join(listeners)}. {advice}"))


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
    for process in _descendants():
        with suppress(OSError):  # the process has ended
            name = (process / "comm").read_text().strip()
            for file in (process / "fd").iterdir():
                with suppress(OSError):
                    inode = os.readlink(file).removeprefix("socket:[").removesuffix("]")
                    if inode in sockets:
                        yield f"{name} at {sockets[inode]}"


def _descendants() -> list[Path]:
    children: dict[str, list[str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(parent, []).append(folder.name)
    processes = [str(os.getpid())]
    for process in processes:  # grows as it is read
        processes += children.get(process, [])
    return [Path("/proc", process) for process in processes]
