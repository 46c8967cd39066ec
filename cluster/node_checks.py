"""Checks of every cluster node before its first trial: its versions, the run's folder, and the data."""

import importlib.metadata
import os
import platform
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import archray
from archray.cluster.connect import ClusterError
from archray.cluster.settings import ResourceSettings
from archray.errors import ArchrayError, InvalidInput
from archray.files import Folder

ANSWER_SECONDS = 120.0  # limit for the first worker of a node, which unpacks archray and reads a store; usually 2 s


@dataclass(frozen=True)
class NodeReport:
    """A report about a node, or about the driver.

    Attributes:
        node: its address and id, for error messages.
        versions: the versions of python, ray, torch and archray.
        marker: the content of the marker in the run's folder, or the reason why it cannot be read.
        places: for each path of the data a description of its content, or the reason why it cannot be read.
    """

    node: str
    versions: Mapping[str, str]
    marker: str
    places: Mapping[str, str]


def check_nodes(
    folder: Folder,
    paths: Sequence[str] = (),
    announce: Callable[[str], None] = print,
    resources: ResourceSettings | None = None,
    checked: set[str] | None = None,
) -> list[NodeReport]:
    """Runs a small task on every node that can hold a trial, and compares the nodes' reports with the driver's.

    Args:
        folder: the run's folder; during the check it contains a file with random content.
        paths: folders and files of the data.
        announce: called with a line for the user.
        resources: resources of a trial; None: check all nodes.
        checked: ids of nodes to skip; the function adds the others.

    Returns: the reports of the nodes.

    Raises: ClusterError for a node with other versions or without an answer; InvalidInput for a node that cannot read
    the run's folder or the data. The message names the node.

    Example:
        ```python
        with connect(ClusterSettings(address="auto")):
            check_nodes(Folder("/shared/run"), ["/shared/data"])
        ```
    """
    checked = set() if checked is None else checked
    nodes = [
        node
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] not in checked and (resources is None or resources.fit(node["Resources"]))
    ]
    if not nodes:
        return []
    name, content = f"node-check-{uuid.uuid4().hex}", uuid.uuid4().hex
    folder.write_bytes(name, content.encode())
    try:
        ours = look("the driver", str(folder), name, paths)
        task = ray.remote(num_cpus=0, max_retries=0)(look)
        calls = []
        for node in nodes:
            title = f"{node['NodeManagerAddress']} (id {node['NodeID'][:8]})"
            options = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            calls.append((node["NodeID"], title, options.remote(title, str(folder), name, list(paths))))
        reports = [report for call in calls if (report := _answer(*call)) is not None]
    finally:
        folder.delete(name)
    compare(ours, reports)
    checked.update(node["NodeID"] for node in nodes)
    if len(reports) > 1:
        announce(f"Checked {len(reports)} nodes: same versions, and access to the run's folder and the data.")
    return reports


_CHECK_NEW: ContextVar[Callable[[], object]] = ContextVar("_CHECK_NEW")  # the check of this thread's run


@contextmanager
def checked_nodes(
    folder: Folder,
    paths: Sequence[str] = (),
    announce: Callable[[str], None] = print,
    resources: ResourceSettings | None = None,
) -> Iterator[None]:
    """Calls `check_nodes` at the start of the block, and for nodes that join later when `check_new_nodes` is called.

    Args:
        folder, paths, announce, resources: as for `check_nodes`.

    Raises: as `check_nodes`.
    """
    checked: set[str] = set()
    check_nodes(folder, paths, announce, resources, checked)

    def check_new() -> None:
        try:
            check_nodes(folder, paths, announce, resources, checked)
        except ArchrayError as error:
            reason = str(error).rstrip(".")
            raise type(error)(
                f"a node that joined during the run: {reason}. Then repeat the search with --or-resume."
            ) from error

    token = _CHECK_NEW.set(check_new)
    try:
        yield
    finally:
        _CHECK_NEW.reset(token)


def check_new_nodes() -> None:
    """Checks the nodes that joined since the last check, if this thread is in a block of `checked_nodes`.

    The driver calls it when an actor has started, or has failed to start, and before it uses a result of the actor.

    Raises: as `check_nodes`.
    """
    _CHECK_NEW.get(lambda: None)()


def look(node: str, folder: str, marker: str, paths: Iterable[str]) -> NodeReport:
    """Returns the report of this node. It never raises; the report contains the reason why a path cannot be read."""
    try:
        content = Folder(folder).read_bytes(marker).decode()
    except FileNotFoundError:
        content = f"there is no {folder}/{marker}"
    except Exception as error:  # of a local disk, of pyarrow, of an object store
        content = f"{type(error).__name__}: {error}"
    versions = {"python": platform.python_version(), "archray": archray.__version__}
    for package in ("ray", "torch"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "none"
    return NodeReport(node, versions, content, {path: _description(path) for path in paths})


def compare(ours: NodeReport, reports: Iterable[NodeReport]) -> None:
    """Raises: as `check_nodes` if a node differs from the driver in its versions, the run's folder or the data."""
    versions, folders, places = [], [], []
    for report in reports:
        node = f"node {report.node}"
        for package, version in ours.versions.items():
            if _compared(package, report.versions[package]) != _compared(package, version):
                versions.append(f"{node} has {package} {report.versions[package]}, the driver has {version}")
        if report.marker != ours.marker:
            folders.append(f"{node} cannot read the run's folder: {report.marker}")
        for path, description in ours.places.items():
            if report.places[path] != description:
                places.append(f"{node} has {report.places[path]} at {path}, the driver has {description}")
    if versions:
        raise ClusterError(f"{'; '.join(versions)}. Install the same versions on every node.")
    if folders:
        raise InvalidInput(
            f"{'; '.join(folders)}. Mount the same folder at the same path on every node, or choose an object store: "
            "--out s3://bucket/run"
        )
    if places:
        raise InvalidInput(f"{'; '.join(places)}. Mount the data at the same path on every node, or copy it there.")


def _compared(package: str, version: str) -> str:
    """Returns the part of a version that must be equal: 3.11 of Python, and 2.9.0 of torch 2.9.0+cpu."""
    return version.rpartition(".")[0] if package == "python" else version.partition("+")[0]


def _description(path: str) -> str:
    """Returns a short description of a path's content, which is different for an empty mount."""
    try:
        if os.path.isdir(path):
            names = sorted(os.listdir(path))
            return f"a folder with {len(names)} entries" + (f" ({names[0]} to {names[-1]})" if names else "")
        return f"a file of {os.stat(path).st_size} bytes"
    except OSError as error:
        return f"nothing that can be read ({error.strerror})"


def _answer(node_id: str, title: str, reference: Any) -> NodeReport | None:
    """Returns the report of a node; None if it has left. Raises: ClusterError if a live node does not answer."""
    try:
        return ray.get(reference, timeout=ANSWER_SECONDS)
    except ray.exceptions.RayError as error:
        if node_id not in {node["NodeID"] for node in ray.nodes() if node["Alive"]}:
            return None
        late = isinstance(error, ray.exceptions.GetTimeoutError)
        reason = f"did not answer within {ANSWER_SECONDS:.0f} s" if late else f"could not be checked: {error}"
        raise ClusterError(f"node {title} {reason}") from error
