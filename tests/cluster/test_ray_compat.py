"""Simulated changes of Ray: a private name is missing, has another form, or is no longer called."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from archray.cluster import loopback, ray_compat
from archray.cluster.ray_compat import PrivateName, check_called, hidden_lines, replaced
from archray.errors import IncompatibleRay

INSTANCE_ATTRIBUTES = (ray_compat.DEFAULT_RESULT, ray_compat.CHECKPOINT_CONFIG)  # a class does not have them
NAMES = [name for name in vars(ray_compat).values() if isinstance(name, PrivateName)]
CLASS_NAMES = [name for name in NAMES if name not in INSTANCE_ATTRIBUTES]
TESTED = r"2\.55 to 2\.60"


@pytest.fixture(autouse=True)
def no_earlier_warning() -> Iterator[None]:
    """A process warns once of each change."""
    ray_compat._warn.cache_clear()
    yield
    ray_compat._warn.cache_clear()


@pytest.mark.parametrize("name", CLASS_NAMES, ids=str)
def test_a_removed_name_is_an_error_or_a_warning(
    name: PrivateName, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name.find()
    assert not caplog.records
    monkeypatch.delattr(name.owner(), name.attribute)
    if name.needed:
        with pytest.raises(IncompatibleRay, match=f"{name.attribute}.*{TESTED}"):
            name.find()
        return
    assert name.find() is name.find() is None
    [record] = caplog.records
    assert str(name) in record.message and "2.55 to 2.60" in record.message


def test_a_removed_module_is_an_error() -> None:
    with pytest.raises(IncompatibleRay, match=f"ray.moved.function.*{TESTED}"):
        PrivateName("ray.moved", "function", "do something").find()


def method(needed: bool) -> PrivateName:
    return PrivateName("ray.tune.experiment.trial", "Trial.is_finished", "do something", needed)


@pytest.mark.parametrize("needed", [True, False])
def test_a_replacement_of_a_removed_method(
    needed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = method(needed)
    monkeypatch.delattr(name.owner(), name.attribute)
    block = replaced(name, lambda plain: lambda trial: True)
    if needed:
        with pytest.raises(IncompatibleRay, match=TESTED):
            block.__enter__()
        return
    with block:
        assert not hasattr(name.owner(), name.attribute)
        check_called(name)
    assert len(caplog.records) == 1, "the missing name is the only warning"


@pytest.mark.parametrize("needed", [True, False])
def test_a_replacement_without_a_call(needed: bool, caplog: pytest.LogCaptureFixture) -> None:
    name = method(needed)
    check_called(name)  # there is no block
    with replaced(name, lambda plain: lambda trial: True):
        name.find()(None)
        check_called(name)
    assert not caplog.records
    with replaced(name, lambda plain: lambda trial: True):
        if needed:
            with pytest.raises(IncompatibleRay, match=f"is_finished.*got no call.*{TESTED}"):
                check_called(name)
        else:
            check_called(name)
            check_called(name)
            assert len(caplog.records) == 1 and "got no call" in caplog.text


def test_an_interrupted_block_is_not_checked() -> None:
    with pytest.raises(KeyboardInterrupt), replaced(method(True), lambda plain: lambda trial: True):
        raise KeyboardInterrupt


def test_an_ignored_switch_is_an_error_before_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray keeps the address of the machine. The switch and its variable are restored."""
    util = SimpleNamespace(get_node_ip_address=lambda: "192.0.2.7")
    monkeypatch.setattr(loopback, "ray", SimpleNamespace(is_initialized=lambda: False, util=util))
    variable = ray_compat.CLUSTER_VARIABLE.find()
    before = ray_compat.CLUSTER_SWITCH.find(), os.environ.get(variable)
    with pytest.raises(IncompatibleRay, match=f"ENABLE_RAY_CLUSTER.*192.0.2.7.*{TESTED}"):
        loopback.loopback_only().__enter__()
    assert (ray_compat.CLUSTER_SWITCH.find(), os.environ.get(variable)) == before


def test_messages_in_another_form_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[Any] = []
    monkeypatch.setattr(ray_compat.PRINT_LINES.owner(), ray_compat.PRINT_LINES.attribute, printed.append)
    with hidden_lines(lambda line: True):
        for data in ({"lines": ["hidden"]}, {"text": "a"}, ["b"], None):
            ray_compat.PRINT_LINES.find()(data)
    assert printed == [{"text": "a"}, ["b"], None]


@pytest.mark.parametrize(
    ("prefixes", "missing"),
    [
        (("experiment_state-", "basic-variant-state-"), None),
        (("experiment_state-", "search_gen_state-", "searcher-state-"), None),
        (("trial_states-", "basic-variant-state-"), "experiment_state-"),
        (("experiment_state-", "grid-"), "search_gen_state-"),
        (("experiment_state-", "generator-", "searcher-state-"), "search_gen_state-"),
        (("experiment_state-", "search_gen_state-", "searcher_state-"), "searcher-state-"),
    ],
)
def test_a_renamed_state_file_is_missing(prefixes: tuple[str, ...], missing: str | None) -> None:
    assert ray_compat.missing_state([f"{prefix}2026-01-01.json" for prefix in prefixes]) == missing


class OtherAnalysis:
    _trial_dataframes: Any = None
    trial_dataframes: dict[str, Any] = {}  # noqa: RUF012  # a property that ignores the attribute


@pytest.mark.parametrize(
    "results", [SimpleNamespace(), SimpleNamespace(_experiment_analysis=OtherAnalysis())], ids=["renamed", "ignored"]
)
def test_tables_that_a_grid_ignores_are_an_error(results: Any) -> None:
    with pytest.raises(IncompatibleRay, match=TESTED):
        ray_compat.set_trial_frames(results, {})


class OtherManager:
    checkpoint_config: dict[str, Any] = {}  # noqa: RUF012


def test_memory_that_cannot_be_released_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A trial, a checkpoint manager and a controller of a later Ray have other attributes."""
    for _ in range(2):
        ray_compat.release_default_result(SimpleNamespace())
        ray_compat.share_checkpoint_config(OtherManager(), {})
        assert ray_compat.idle_actors_of(SimpleNamespace(), "cpu") is None
        assert ray_compat.cached_actors(SimpleNamespace()) == {}
        assert not ray_compat.has_actors(SimpleNamespace())
        assert ray_compat.node_processes(SimpleNamespace()) == []
    actors = (ray_compat.REUSED_ACTOR, ray_compat.ACTOR_CACHE, ray_compat.QUEUE_UPDATE)
    for name in (*INSTANCE_ATTRIBUTES, *actors, ray_compat.THIS_NODE):
        assert [str(name) in record.message for record in caplog.records].count(True) == 1
    assert len(caplog.records) == 6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (ray_compat.GCS_STUB, lambda channel: SimpleNamespace()),
        (ray_compat.NODE_INFO, SimpleNamespace()),
    ],
    ids=["method renamed", "state renamed"],
)
def test_a_head_that_cannot_be_asked_is_an_error(
    name: PrivateName, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = SimpleNamespace(GetAllNodeInfo=lambda request, timeout: SimpleNamespace(node_info_list=[]))
    monkeypatch.setattr(ray_compat.GCS_STUB.owner(), ray_compat.GCS_STUB.attribute, lambda channel: stub)
    monkeypatch.setattr(name.owner(), name.attribute, value)
    with pytest.raises(IncompatibleRay, match=TESTED):
        ray_compat.living_nodes("127.0.0.1:1", 1.0)


LIGHT = """
import sys
import archray.cluster.ray_compat
assert "ray" not in sys.modules
import archray.cluster.connect, archray.cluster.jobs
from archray.cluster.ray_compat import CLUSTER_SWITCH, JOB_VARIABLE, START_GCS, THIS_NODE
for name in (CLUSTER_SWITCH, JOB_VARIABLE, START_GCS, THIS_NODE):
    name.find()
print([name for name in ("grpc", "ray.tune", "ray.core.generated.gcs_service_pb2_grpc") if name in sys.modules])
"""


def test_a_local_ray_needs_neither_grpc_nor_tune() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


# Ray no longer calls the method with which archray gets the node before `ray.init` returns.
RENAMED_START = """
from ray._private.node import Node
from archray.cluster.settings import ClusterSettings
from archray.cluster.connect import connect

Node.start_it = Node.start_gcs_server
plain = Node.start_head_processes

def start_head_processes(node):
    node.start_gcs_server = node.start_it  # hides the method of the class
    plain(node)

Node.start_head_processes = start_head_processes
with connect(ClusterSettings(num_cpus=1, num_gpus=0, dashboard=False), announce=lambda line: None):
    print("connected")
"""


@pytest.mark.slow
def test_a_start_that_cannot_be_watched_is_a_warning() -> None:
    done = subprocess.run([sys.executable, "-c", RENAMED_START], capture_output=True, text=True)
    assert done.stdout == "connected\n", done.stderr
    assert done.stderr.count("Node.start_gcs_server") == 1 and "2.55 to 2.60" in done.stderr, done.stderr
