"""References to objects of a Python session, and the files from which other processes load them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from archray import Choice, Width
from archray.errors import InvalidInput
from archray.objects import reference_of, source_in
from archray.platform.methods.configure import check_config, make_config
from archray.platform.run.run import Run
from archray.references import reference_file
from archray.trainables.costs import cost, get_cost
from archray.trainables.data import DataSettings, load_images
from archray.trainables.proxies import ProxySettings, get_proxy, proxy
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
assert reference_of(network, "space") == "object:space:network"
shutil.copy(reference_file("object:space:network"), sys.argv[1])
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
    for value, name, line in (
        (networks.make(size), "closure", f"layer=1|layer=3|layer=5|{networks.__name__}:make.<locals>.closure"),
        (lambda in_channels, num_classes: networks.make(size)(in_channels, num_classes), "space", ""),
        (networks.bounded, "space", "layer=1|layer=3|bounded"),
    ):
        reference = f"object:space:{name}"
        assert reference_of(value, "space") == reference
        file = reference_file(reference)
        assert file is not None and get_space(reference).size >= 2
        lines[f"{file}:{name}"] = line
    subprocess.run([sys.executable, "-c", NETWORKS + CELL, str(notebook)], check=True)
    done = subprocess.run([sys.executable, "-c", READ, *lines], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line, expected in zip(done.stdout.splitlines(), lines.values(), strict=True):
        assert line.startswith("layer=1|layer=3|") and line.endswith(expected)


def test_the_file_contains_the_source_of_a_function(networks: Any) -> None:
    reference_of(networks.make(2), "space")
    file = reference_file("object:space:closure")
    assert file is not None
    source = source_in(file.read_bytes()).decode()
    assert "def closure(in_channels, num_classes):" in source and "pickle.loads" not in source


def a_model() -> nn.Sequential:
    width = Width([4, 8], name="width")
    layer = Choice({"same": nn.Identity(), "conv": nn.Conv2d(width, width, 1)}, name="layer")
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)
    return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), layer, *head)


def test_options_take_functions_and_a_model(tmp_path: Path) -> None:
    dataset = load_images(DataSettings(name="digits", limit=50))
    model, size = a_model(), 4

    def digits(settings: DataSettings) -> Any:
        return load_images(DataSettings(name="digits", limit=50))

    def score(network: Any, images: Any, labels: Any) -> float:
        return size + 1.0

    @proxy(direction="min")
    def shared(shared_pass: Any) -> float:
        return size + 2.0

    @cost(unit="W")
    def watts(network: Any, image_shape: Any) -> float:
        return size + 3.0

    options = {"space": model, "data": digits, "proxies": ["snip", score, shared], "cost": watts}
    config: Any = make_config("pareto-pool", "smoke", None, {**options, "objectives": "validation_accuracy, -watts"})
    bounded: Any = make_config("random", "smoke", {"costs": {"names": [watts]}}, {"constraint": "watts<=5"})
    assert bounded.constraints == ("object:cost:watts<=5",)
    assert config.objectives == ("validation_accuracy", "-object:cost:watts")
    assert config.columns == ("snip", "score", "-shared")
    run = Run.create(str(tmp_path / "run"), config)
    resolved = {role: run.resolved(role, name) for role, name in config.references().items()}
    assert set(run.manifest["references"]) == {"space", "data", "proxy-score", "proxy-shared", "cost-watts"}
    assert load_images(DataSettings(name=resolved["data"])).checksum() == dataset.checksum()
    assert get_proxy(resolved["proxy-score"]).function(None, None, None) == 5
    assert get_proxy(resolved["proxy-shared"]).function(None) == 6
    assert get_cost(resolved["cost-watts"]).function(nn.Identity(), (1, 8, 8)) == 7
    assert ProxySettings(metrics=("snip", score)).metrics == ("snip", "object:metric:score")
    network = get_space(run.space).build(("4", "same"), in_channels=1, num_classes=10)
    assert isinstance(network, nn.Sequential) and torch.equal(network[0].weight, model[0].weight[:4])


def test_functions_that_an_option_cannot_take_raise_an_error() -> None:
    lock = threading.Lock()
    for options, message in (
        ({"data": lambda settings: lock}, r"data.name: Expected a dataset that can be pickled.*lock.*path\.py:NAME"),
        ({"data": lambda settings: 3}, "to return an archray.trainables.data.Dataset .* got int"),
        ({"proxies": [lambda network: 1.0]}, "a function of network, images and labels, got metric"),
        ({"proxies": [lambda a, b, c: 1.0, lambda a, b, c: 2.0]}, "expected distinct metrics"),
        ({"cost": lambda network: 1.0}, r"a function of a network and the shape \(C, H, W\) of an image, got cost"),
        ({"cost": [lambda a, b: 1.0, lambda a, b: 2.0]}, "expected costs with distinct names"),
        ({"cost": ["one.py:watts", "two.py:watts"]}, "expected costs with distinct names"),
    ):
        with pytest.raises(InvalidInput, match=message):
            check_config(make_config("rank-surrogate", "smoke", None, options))


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
