"""References to objects of a Python session, and the files from which other processes load them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from archray.errors import InvalidInput
from archray.objects import reference_of, source_in
from archray.references import reference_file
from archray.trainables.spaces import NASBench201, get_space, space_name

NETWORKS = """
from torch import nn
from archray import Choice, ModelSpace

def head(channels, num_classes):
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)

def network(in_channels, num_classes):
    layer = Choice({"1": nn.Conv2d(in_channels, 4, 1), "3": nn.Conv2d(in_channels, 4, 3, padding=1)}, name="layer")
    return nn.Sequential(layer, *head(4, num_classes))

def make(channels):
    def closure(in_channels, num_classes):
        kernels = {str(k): nn.Conv2d(in_channels, channels, k, padding=k // 2) for k in (1, 3, 5)}
        return nn.Sequential(Choice(kernels, name="layer"), *head(channels, num_classes))
    return closure

bounded = ModelSpace(make(2), constraint=lambda chosen: chosen["layer"] != "5", name="bounded")
"""
# Prints a line per space: its architectures and its name.
READ = """
import sys
from archray.trainables.spaces import get_space
for reference in sys.argv[1:]:
    space = get_space(reference)
    print(*map(space.encode, space.enumerate()), space.name, sep="|")
"""
# The end of a notebook, which defines objects in the module `__main__`, without a file.
CELL = """
import shutil, sys
from archray.objects import reference_of
from archray.references import reference_file
assert reference_of(network, "space") == "object:network"
shutil.copy(reference_file("object:network"), sys.argv[1])
"""


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user, which another process cannot import."""
    name = f"networks_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module(name)


def test_a_function_of_a_module_is_named(networks: Any) -> None:
    assert reference_of(networks.network, "space") == f"{networks.__file__}:network"
    assert reference_of(get_space, "space") == "archray.trainables.spaces:get_space"
    assert [space_name(space) for space in ("darts", NASBench201, NASBench201())] == ["darts", *["nasbench201"] * 2]


def test_other_objects_are_files_that_another_process_loads(networks: Any) -> None:
    size, notebook = 3, Path(networks.__file__).with_name("notebook.py")
    lines = {f"{notebook}:network": "layer=1|layer=3|__main__:network"}
    for value, reference, line in (
        (networks.make(size), "object:closure", f"layer=1|layer=3|layer=5|{networks.__name__}:make.<locals>.closure"),
        (lambda in_channels, num_classes: networks.make(size)(in_channels, num_classes), "object:space", ""),
        (networks.bounded, "object:space", "layer=1|layer=3|bounded"),
    ):
        assert reference_of(value, "space") == reference
        file = reference_file(reference)
        assert file is not None and get_space(reference).size >= 2
        lines[f"{file}:{reference.partition(':')[2]}"] = line
    subprocess.run([sys.executable, "-c", NETWORKS + CELL, str(notebook)], check=True)
    done = subprocess.run([sys.executable, "-c", READ, *lines], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line, expected in zip(done.stdout.splitlines(), lines.values(), strict=True):
        assert line.startswith("layer=1|layer=3|") and line.endswith(expected)


def test_the_file_contains_the_source_of_a_function(networks: Any) -> None:
    reference_of(networks.make(2), "space")
    file = reference_file("object:closure")
    assert file is not None
    source = source_in(file.read_bytes()).decode()
    assert "def closure(in_channels, num_classes):" in source and "pickle.loads" not in source


def test_the_latest_object_of_a_name_counts(networks: Any) -> None:
    for size, make in ((3, networks.make), (2, lambda _: networks.bounded)):
        assert get_space(space_name(make(1))).size == size


def test_an_object_that_cannot_be_stored_raises_an_error() -> None:
    lock, large = threading.Lock(), bytes(11 * 2**20)
    with pytest.raises(InvalidInput, match=r"a space that can be pickled, got .*lock.*path\.py:NAME"):
        reference_of(lambda: lock, "space")
    with pytest.raises(InvalidInput, match=r"at most 10 MiB, got 11 MiB"):
        reference_of(lambda: large, "space")
    with pytest.raises(InvalidInput, match=r"expected space to be a name .*, got 3"):
        space_name(3)
    with pytest.raises(InvalidInput, match="function of a model with choices"):
        space_name([])
