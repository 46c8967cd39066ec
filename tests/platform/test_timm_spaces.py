"""Searches, exports and errors of the spaces of timm's families, as a user sees them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch
from archray_test_models import run_of_network
from archray_test_runs import ONE_AT_A_TIME

import archray
from archray.errors import InvalidInput, MissingExtra
from archray.platform.models.model_files import load_model
from archray.trainables.costs import costs_of
from archray.trainables.data import load_images
from archray.trainables.nets import NetworkSettings

SPACES = ["timm:resnet", "timm:convnext"]


@pytest.mark.parametrize("method", ["zero-cost-evolution", "nes-rs"])
def test_a_missing_timm_raises_before_the_folder_is_made(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)  # makes the import fail
    with pytest.raises(MissingExtra, match=r"pip install '\.\[timm\]'"):
        archray.search(method, space="timm:resnet", data="digits", preset="smoke", out=tmp_path / "run")
    with pytest.raises(MissingExtra, match=r"pip install '\.\[timm\]'"):
        archray.proxies("timm:convnext", "digits", tmp_path / "pool.parquet", size=2)
    assert not list(tmp_path.iterdir())


def test_they_have_no_supernet(tmp_path: Path) -> None:
    for method in ("darts", "nasi", "sliced-supernet"):
        with pytest.raises(InvalidInput, match=f"{method} cannot search timm:resnet: .*. Choose (the space vit|darts)"):
            archray.search(method, space="timm:resnet", data="digits", preset="smoke", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.extra("timm")
def test_a_search_under_a_constraint(space: str, tmp_path: Path) -> None:
    options = {"data": "digits", "preset": "smoke", "data__limit": 200, **ONE_AT_A_TIME}
    run = archray.search("hnas", space=space, constraint="flops <= 2M", out=tmp_path / "run", **options)
    small = NetworkSettings(channels=4, cells=1)
    costs = costs_of(space, [run.architecture], ["flops"], network=small, in_channels=1, image_size=8)
    assert 0 < costs["flops"].iloc[0] <= 2e6
    assert archray.load(tmp_path / "run").model().model.get_classifier().out_features == 10


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.extra("timm")
def test_exports(space: str, tmp_path: Path) -> None:
    run = run_of_network(tmp_path / "run", space, network={"channels": 2, "cells": 1})
    with pytest.raises(InvalidInput, match=r"modules belong to timm\. Choose another format"):
        archray.export(run.folder.uri, tmp_path / "source", formats="python")
    formats = ["torch-export", "state-dict", "safetensors"]
    archray.export(run.folder.uri, tmp_path / "out", formats=formats)
    loaders = runpy.run_path(str(tmp_path / "out" / "load_model.py"))
    own, images = load_model(run), load_images(run.data).test.images[:7]
    with torch.no_grad():
        for loader in ("load_torch_export", "load_safetensors", "build_model"):
            torch.testing.assert_close(loaders[loader]()(images), own(images))


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.extra("timm", "export")
def test_onnx(space: str, tmp_path: Path) -> None:
    run = run_of_network(tmp_path / "run", space, network={"channels": 2, "cells": 1})
    archray.export(run.folder.uri, tmp_path / "out", formats="onnx")
    load = runpy.run_path(str(tmp_path / "out" / "load_model.py"))["load_onnx"]
    own = load_model(run)
    for n in (1, 7):
        images = load_images(run.data).test.images[:n]
        with torch.no_grad():
            torch.testing.assert_close(torch.as_tensor(load()(images.numpy())), own(images), atol=1e-4, rtol=0)
