"""`--format python` writes plain PyTorch files with the weights and the outputs of archray's networks."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archray_test_models import run_of_ensemble, run_of_map, run_of_network

import archray
from archray.errors import InvalidInput
from archray.platform.models.network_source import network_file
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.nets.registry import NETWORKS, SpaceNetwork
from archray.trainables.spaces import get_space

SPACES = [name for name in NETWORKS if isinstance(NETWORKS.get(name), SpaceNetwork)]
SIZES = {"in_channels": 2, "num_classes": 3}


def source_of(space: str, architecture: str, network: dict[str, Any]) -> str:
    return network_file("A network.", {"architecture": architecture, "network": network, **SIZES}, space)


def load_source(text: str, place: Path, network: torch.nn.Module) -> torch.nn.Module:
    """Returns the model of a source file with the weights of a network."""
    place.write_text(text)
    model = runpy.run_path(str(place))["build"]()
    model.load_state_dict(network.state_dict())
    return model


def network_with_statistics(network: torch.nn.Module, size: int = 8) -> torch.nn.Module:
    """Returns a network whose running statistics differ from those of a new network."""
    with torch.no_grad():
        network(torch.randn(6, 2, size, size, generator=torch.Generator().manual_seed(1)))
    return network.eval()


@pytest.mark.parametrize("space", SPACES)
def test_a_source_computes_the_outputs_of_the_network(space: str, tmp_path: Path) -> None:
    images = torch.randn(3, 2, 9, 9)  # odd: reductions round up
    for seed in range(3):
        encoded = get_space(space).encode(get_space(space).sample(np.random.default_rng(seed)))
        network = {"channels": 4 + seed % 3, "cells": 1 + seed % 2}
        built = network_with_statistics(build(space, encoded, network=NetworkSettings(**network), **SIZES, seed=0))
        model = load_source(source_of(space, encoded, network), tmp_path / "network.py", built)
        assert not model.training
        names = re.findall(r"^(?:class |def )?(\w+).*[(=:]", (tmp_path / "network.py").read_text(), re.MULTILINE)
        assert len(names) == len(set(names))  # copied from several modules whose names do not clash
        torch.testing.assert_close(model(images), built(images), rtol=0, atol=1e-6)


def test_every_network_of_archray_has_a_source() -> None:
    assert set(SPACES) >= {name for name in NETWORKS if get_space(name).package is None}


@pytest.mark.parametrize(
    "network", [{"auxiliary": True}, {"stem": "imagenet"}, {"stem": "imagenet", "auxiliary": True}]
)
def test_the_darts_source_has_its_stem_and_auxiliary_classifier(network: dict[str, Any], tmp_path: Path) -> None:
    encoded = get_space("darts").encode(get_space("darts").sample(np.random.default_rng(0)))
    small = {"channels": 4, "cells": 1, **network}
    built = network_with_statistics(build("darts", encoded, network=NetworkSettings(**small), **SIZES, seed=0), 32)
    model = load_source(source_of("darts", encoded, small), tmp_path / "network.py", built)
    images = torch.randn(2, 2, 32, 32)
    torch.testing.assert_close(model(images), built(images))
    if "auxiliary" in network:
        torch.testing.assert_close(model.train()(images), built.train()(images))


def test_a_source_has_only_used_code_and_needs_only_torch() -> None:
    text = source_of("nasbench201", "|skip_connect~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|", {})
    assert "functional" not in text and "SepConv" not in text
    assert [line for line in text.splitlines() if line.startswith(("import", "from"))] == [
        "from __future__ import annotations",
        "from collections.abc import Callable, Sequence",
        "from typing import Literal",
        "import torch",
        "from torch import nn",
    ]
    assert max(map(len, text.splitlines())) <= 120


def test_a_cell_without_a_path_returns_zeros(tmp_path: Path) -> None:
    encoded = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"
    built = network_with_statistics(
        build("nasbench201", encoded, network=NetworkSettings(channels=4, cells=1), **SIZES, seed=0)
    )
    model = load_source(source_of("nasbench201", encoded, {"channels": 4, "cells": 1}), tmp_path / "network.py", built)
    torch.testing.assert_close(model(torch.ones(1, 2, 8, 8)), built(torch.ones(1, 2, 8, 8)))


@pytest.mark.parametrize("average", ["probabilities", "logits"])
def test_an_ensemble_defines_the_class_of_its_networks_once(average: str, tmp_path: Path) -> None:
    run_of_ensemble(tmp_path / "run", "nasbench201", [0, 1, 0], average=average)
    archray.export(tmp_path / "run", tmp_path / "out", formats="python")
    text = (tmp_path / "out" / "network.py").read_text()
    assert text.count("class NASBench201Network(") == 1 and text.count(" NASBench201Network(") == 1 + 3
    images = torch.randn(5, 1, 8, 8)
    exported = runpy.run_path(str(tmp_path / "out" / "load_model.py"))["load_model"]()
    # The folder has state_dict.pt and archray's module
    expected = runpy.run_path(str(tmp_path / "out" / "load_model.py"))
    assert "build_model" not in expected
    from archray.platform.models.rebuilt_model import build_exported

    torch.testing.assert_close(exported(images), build_exported(tmp_path / "out")(images))
    torch.testing.assert_close(exported(images).sum(1), torch.ones(5))


def test_a_feature_map_has_a_source(tmp_path: Path) -> None:
    run = run_of_map(tmp_path / "run", "kernel=laplace|preprocess=standard|gamma=0.05")
    archray.export(tmp_path / "run", tmp_path / "out", formats="python")
    images = torch.randn(5, 1, 8, 8)
    model = runpy.run_path(str(tmp_path / "out" / "load_model.py"))["load_model"]()
    from archray.platform.models.model_files import load_model

    torch.testing.assert_close(model(images), load_model(run)(images), rtol=0, atol=1e-5)


USER_SPACE = """
from torch import nn
from archray.trainables.spaces import Decision, Space

class Own(Space):
    name = "own"
    decisions = (Decision("width", ("4", "8")),)

    def build(self, architecture, *, in_channels, num_classes):
        width = int(architecture[0])
        layers = nn.Conv2d(in_channels, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        return nn.Sequential(*layers, nn.Linear(width, num_classes))
"""


def test_an_unsupported_model_raises_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "own_space.py").write_text(USER_SPACE)
    run_of_network(tmp_path / "own", f"{tmp_path / 'own_space.py'}:Own", network={})
    run_of_network(tmp_path / "scoring", "nasbench201", network={"normalization": "scoring", "channels": 4, "cells": 1})
    run_of_ensemble(tmp_path / "dropped", "darts", [0], drop_path={"probability": 0.1, "seed": 0})
    for name, message in (
        ("own", "got a network of own"),
        ("scoring", "got scoring"),
        ("dropped", "of mc-droppath"),
    ):
        with pytest.raises(InvalidInput, match=message):
            archray.export(tmp_path / name, tmp_path / "out", formats="python")
        assert not (tmp_path / "out").exists()
    archray.export(tmp_path / "own", tmp_path / "out", formats=["safetensors", "state-dict"])
    loaders = runpy.run_path(str(tmp_path / "out" / "load_model.py"))
    images = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(loaders["load_model"]()(images), loaders["build_model"]()(images))
    assert not (tmp_path / "out" / "network.py").exists() and (tmp_path / "out" / "space" / "own_space.py").exists()
