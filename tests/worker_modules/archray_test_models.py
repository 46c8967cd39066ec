"""Runs with a model without a search, for tests of trained models that take a second and need no Ray."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from archray_test_command import PATIENCE

from archray.platform.methods.configure import make_config
from archray.platform.models.model_files import input_of, write_classifier
from archray.platform.run.layout import FOUND
from archray.platform.run.run import Run
from archray.trainables.checkpoint import write_state
from archray.trainables.data import load_images
from archray.trainables.ensembles.ensemble import Ensemble, Member, ensemble_files
from archray.trainables.ensembles.prediction import DroppedPaths
from archray.trainables.feature_maps.classifier import FourierClassifier
from archray.trainables.feature_maps.fourier_features import FourierBases, FourierFeatures, Statistics
from archray.trainables.feature_maps.linear import signs
from archray.trainables.feature_maps.ridge import solve_ridge
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import get_space

SMALL = {"channels": 4, "cells": 1}
DATA = {"data": "digits", "data__limit": 60}


def a_run(place: Path, space: str, method: str = "random", **options: Any) -> Run[Any]:
    """The folder of a run whose search has not started."""
    return Run.create(str(place), make_config(method, "smoke", None, {"space": space, **DATA, **options}))


def run_of_network(place: Path, space: str, seed: int = 0, network: dict[str, Any] = SMALL, **options: Any) -> Run[Any]:
    """A run with a network of `space`, sampled with `seed`, whose normalization has seen the data."""
    run = a_run(place, space, **options)
    described, module = _network(run, seed, network)
    folder = run.folder / "model"
    with folder.whole_file("state_dict.pt") as stream:
        torch.save(module.state_dict(), stream)
    folder.write_json("architecture.json", described)
    return run


def run_of_ensemble(place: Path, space: str, seeds: Sequence[int], **more: Any) -> Run[Any]:
    """A run with an ensemble of networks of `space`. more: `average`; `drop_path` of its members."""
    run = a_run(place, space, "nesbs")
    networks = [_network(run, seed, SMALL) for seed in seeds]
    keys = ("space", "architecture", "network", "in_channels", "num_classes")
    members = [
        Member(**{key: described[key] for key in keys}, drop_path=more.get("drop_path")) for described, _ in networks
    ]
    modules = [network for _, network in networks]
    if "drop_path" in more:
        modules = [DroppedPaths(network, **more["drop_path"]) for network in modules]
    ensemble = Ensemble(modules, average=more.get("average", "probabilities"))
    described = {**input_of(run.data), "test_accuracy": 0.5, "data": "digits", "space_file": None}
    for name, content in ensemble_files(ensemble, members, described).items():
        (run.folder / "model").write_bytes(name, content)
    return run


def run_of_members(place: Path) -> Run[Any]:
    """A run of nsga2 with four members: the first and the fourth were trained, and the third failed."""
    run = run_of_network(place / "run", "nasbench201", 0, method="nsga2", final_members=3)
    other = run_of_network(place / "other", "nasbench201", 1)
    first, last = ((each.folder / "model").read_json("architecture.json")["architecture"] for each in (run, other))
    names = [first, "b", "c", last]
    (run.folder / "members" / "model-009").copy_from(other.folder / "model")
    front = pd.DataFrame({"architecture": names, "number": [4, 2, 7, 9], "validation_accuracy": [0.9, 0.8, 0.7, 0.6]})
    (run.folder / "pareto").write_parquet("pareto.parquet", front.assign(parameters=[4e3, 3e3, 2e3, 1e3]))
    trained = pd.DataFrame({"number": [4, 9, 7], "architecture": [names[0], names[3], names[2]]})
    trained["test_accuracy"] = [0.85, 0.55, None]
    trained["failure"] = [None, None, "train_loss is NaN at epoch 3"]
    trained["model"] = ["model", "members/model-009", None]
    (run.folder / "members").write_parquet("members.parquet", trained.assign(settings="0"))
    return run


def run_of_map(place: Path, architecture: str) -> Run[Any]:
    """A run with the solved classifier of a feature map."""

    run = a_run(place, "fourier", "halving")
    data = load_images(run.data)
    each = get_space("fourier").configuration(architecture)
    inputs = data.train.images.flatten(1)
    bases, statistics = FourierBases(inputs.shape[1], 50, 0), Statistics.of(inputs)
    features = FourierFeatures(inputs, [each], np.zeros(len(inputs), dtype=np.int64), bases, statistics)
    solution = solve_ridge(features, signs(data.train.labels[features.order], data.num_classes), 1e-2)
    classifier = FourierClassifier(each, bases, statistics, solution.model)
    result = {"dimension": 50, "validation_accuracy": 0.5, "test_accuracy": 0.5}
    place = place / "checkpoint"
    place.mkdir()
    write_state(place, {"classifier": classifier.state(), "result": result})
    (run.folder / "search").write_json(FOUND, {"architecture": architecture, "value": 0.5})
    write_classifier(run.folder / "model", place, run)
    return run


def _network(run: Run[Any], seed: int, network: dict[str, Any]) -> tuple[dict[str, Any], torch.nn.Module]:
    space = get_space(run.space)
    data = load_images(run.data)
    settings = NetworkSettings(**network)
    described: dict[str, Any] = {
        "architecture": space.encode(space.sample(np.random.default_rng(seed))),
        "space": run.space,
        "space_file": None,
        "network": settings.model_dump(mode="json"),
        "in_channels": data.in_channels,
        **input_of(run.data),
        "final_accuracy": 0.5,
        "test_accuracy": 0.5,
        "data": "digits",
    }
    sizes = {"in_channels": data.in_channels, "num_classes": data.num_classes}
    module = build(run.space, described["architecture"], network=settings, **sizes, seed=seed)
    with torch.no_grad():
        module(data.train.images)
    return described, module.eval()


# Environments with few packages


def bare_python(place: Path, *distributions: str) -> dict[str, str]:
    """Returns the environment of a Python process with the standard library, these distributions and their
    dependencies.

    Run it as `[sys.executable, "-S", ...]`: without `site` no other package is on its path.
    """
    target = place / "packages"
    target.mkdir()
    for name in _closure(distributions):
        for file in importlib.metadata.distribution(name).files or []:
            top = file.parts[0]
            if top in ("..", "__pycache__") or top.endswith(".pth") or (target / top).exists():
                continue
            (target / top).symlink_to(
                Path(str(file.locate())).parents[len(file.parts) - 2]
                if len(file.parts) > 1
                else Path(str(file.locate()))
            )
    return {"PYTHONPATH": str(target), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}


def _closure(names: Sequence[str]) -> set[str]:
    """Returns the distributions and their dependencies, as far as they are installed."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform
        found.add(name)
        waiting += [re.match(r"[\w.-]+", each).group() for each in needed if "extra ==" not in each]  # type: ignore[union-attr]
    return found


def run_bare(code: str, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
