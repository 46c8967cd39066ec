"""Simulated changes of Ray: a private name is missing or has another form, or archray may not use it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from archray.cluster import PLAIN_RAY, ray_compat
from archray.cluster.ray_compat import PrivateName, hidden_lines, replaced, switched

NAMES = [name for name in vars(ray_compat).values() if isinstance(name, PrivateName)]
METHOD = PrivateName("ray.tune.experiment.trial", "Trial.is_finished", "do something")


@pytest.fixture(autouse=True)
def no_earlier_warning(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process warns once. `make test-plain-ray` sets the variable."""
    monkeypatch.delenv(PLAIN_RAY, raising=False)
    ray_compat._warn.cache_clear()
    yield
    ray_compat._warn.cache_clear()


def remove(name: PrivateName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(name.owner(), name.attribute)


def forbid(name: PrivateName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLAIN_RAY, "1")


def test_removed_names_have_one_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert None not in [name.find() for name in NAMES]
    assert not caplog.records
    for name in NAMES:
        remove(name, monkeypatch)
    removed_module = PrivateName("ray.moved", "function", "do something")
    assert {name.find() for name in (*NAMES, removed_module) * 2} == {None}
    [record] = caplog.records
    assert "2.55 to 2.60" in record.message and "docs/limits.md" in record.message


def test_a_plain_ray_has_no_private_names(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(PLAIN_RAY, "1")
    assert {name.find() for name in NAMES} == {None}
    assert not caplog.records


@pytest.mark.parametrize(("ray_version", "lines"), [("2.60.9", 0), ("2.61.0", 1), ("3.0.0.dev0", 1)])
def test_an_unknown_ray_has_one_line(
    ray_version: str, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray_compat, "version", lambda package: ray_version)
    for _ in range(2):
        ray_compat.warn_of_new_ray()
    remove(METHOD, monkeypatch)
    METHOD.find()
    assert [ray_version in record.message for record in caplog.records] == [True] * max(lines, 1)


@pytest.mark.parametrize("lose", [remove, forbid])
def test_without_a_name_nothing_is_replaced(lose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = vars(ray_compat.CLUSTER_SWITCH.owner()).copy(), vars(METHOD.owner()).copy()
    lose(METHOD, monkeypatch)
    lose(ray_compat.CLUSTER_SWITCH, monkeypatch)
    with replaced(METHOD, lambda plain: lambda trial: True), switched(ray_compat.CLUSTER_SWITCH, False):
        now = vars(ray_compat.CLUSTER_SWITCH.owner()).copy(), vars(METHOD.owner()).copy()
    for names, earlier, name in zip(now, before, (ray_compat.CLUSTER_SWITCH, METHOD), strict=True):
        assert names == {key: value for key, value in earlier.items() if lose is forbid or key != name.attribute}


def test_messages_in_another_form_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[Any] = []
    monkeypatch.setattr(ray_compat.PRINT_LINES.owner(), ray_compat.PRINT_LINES.attribute, printed.append)
    with hidden_lines(lambda line: True):
        for data in ({"lines": ["hidden"]}, {"text": "a"}, ["b"], None):
            ray_compat.PRINT_LINES.find()(data)
    assert printed == [{"text": "a"}, ["b"], None]


def test_objects_in_another_form_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A controller of a later Ray has other attributes."""
    assert ray_compat.no_states(SimpleNamespace()) == {}
    assert len(caplog.records) == 1


@pytest.mark.parametrize("lose", [remove, forbid])
def test_a_head_that_cannot_be_asked_is_unknown(lose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(ray_compat.GCS_STUB, monkeypatch)
    assert head_answers() == [None] * 3


@pytest.mark.parametrize("methods", [{}, {"GetAllNodeInfo": lambda request, timeout: SimpleNamespace()}])
def test_a_head_in_another_form_is_unknown(methods: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    stub = SimpleNamespace(**methods)
    monkeypatch.setattr(ray_compat.GCS_STUB.owner(), ray_compat.GCS_STUB.attribute, lambda channel: stub)
    assert head_answers() == [None] * 3


def test_functions_with_other_arguments_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ray_compat.HEAD_ADDRESS, ray_compat.GCS_CHANNEL, ray_compat.RAY_CONFIG):
        monkeypatch.setattr(name.owner(), name.attribute, lambda *, text: text)
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    ray_compat.read_settings_again()
    assert not ray_compat.starts_ray()
    assert [ray_compat.head_of_this_machine(), ray_compat.head_version("127.0.0.1:1", 1.0)] == [None] * 2


def head_answers() -> list[Any]:
    questions = (ray_compat.head_version, ray_compat.has_node_here, ray_compat.requires_token)
    return [question("127.0.0.1:1", 1.0) for question in questions]


LIGHT = """
import sys
import archray.cluster.ray_compat
assert "ray" not in sys.modules
import archray.cluster.connect, archray.cluster.jobs
from archray.cluster.ray_compat import CLUSTER_SWITCH, PRINT_LINES
for name in (CLUSTER_SWITCH, PRINT_LINES):
    name.find()
print([name for name in ("grpc", "ray.tune", "ray.core.generated.gcs_service_pb2_grpc") if name in sys.modules])
"""


def test_a_local_ray_needs_neither_grpc_nor_tune() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
