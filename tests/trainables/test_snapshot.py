"""Snapshot ensembles and MC-DropPath: cycles of the learning rate, the snapshots at their ends, and dropped paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from archray.errors import InvalidInput
from archray.trainables.checkpoint import write_state
from archray.trainables.data import load_images
from archray.trainables.data.settings import DataSettings
from archray.trainables.ensembles.prediction import DroppedPaths
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import get_space
from archray.trainables.training import Trainer
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.standalone_trainable import (
    SnapshotTrainable,
    StandaloneTrainable,
    load_trained,
    snapshot_states,
)

CELL = "|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|none~1|avg_pool_3x3~2|"


def config(**training: Any) -> dict[str, Any]:
    return {
        "settings": {
            "data": {"name": "digits", "limit": 60},
            "network": {"channels": 2, "cells": 1},
            "training": {"epochs": 5, "cycles": 2, "batch_size": 20, "threads": 1, **training},
        },
        "architecture": CELL,
        "seed": 3,
    }


def test_the_rate_falls_to_zero_in_each_cycle_and_restarts() -> None:
    dataset = load_images(DataSettings(name="digits", limit=60))
    network = build(
        "nasbench201", CELL, network=NetworkSettings(channels=2, cells=1), in_channels=1, num_classes=10, seed=0
    )
    settings = TrainingSettings(epochs=5, cycles=2, batch_size=20, lr=0.1)
    trainer = Trainer(network, dataset, settings, seed=0)
    per_epoch = trainer.steps_per_epoch
    expected = [  # Huang et al. 2017, Eq. 2, with cycles of two and of three epochs
        0.05 * (np.cos(np.pi * step / steps) + 1) for steps in (2 * per_epoch, 3 * per_epoch) for step in range(steps)
    ]
    assert [trainer._lr(step) for step in range(5 * per_epoch)] == pytest.approx(expected)
    assert trainer._lr(5 * per_epoch) == 0.0
    assert settings.cycle_ends == [2, 5]
    with pytest.raises(ValidationError, match="cycles of at most the number of epochs"):
        TrainingSettings(epochs=3, cycles=4)


def test_snapshots_are_the_networks_at_the_ends_of_cycles(tmp_path: Path) -> None:
    """The trial is also restored in the middle of a cycle. The training equals that of a trial without snapshots."""
    plain, keeping = StandaloneTrainable(config()), SnapshotTrainable(config())
    ends = []
    for epoch in range(1, 6):
        values = [trial.step() for trial in (plain, keeping)]
        assert values[0]["train_loss"] == values[1]["train_loss"]
        if epoch in (2, 5):
            ends.append({name: tensor.clone() for name, tensor in plain.trainer.network.state_dict().items()})
        if epoch == 3:
            keeping.save_checkpoint(str(tmp_path))
            keeping = SnapshotTrainable(config())
            keeping.load_checkpoint(str(tmp_path))
    keeping.save_checkpoint(str(tmp_path))
    last = load_trained(tmp_path).state_dict()
    assert all(torch.equal(tensor, ends[-1][name]) for name, tensor in last.items())
    states = snapshot_states(tmp_path)
    assert len(states) == 2
    for number, (state, end) in enumerate(zip(states, ends, strict=True)):
        (place := tmp_path / f"{number}").mkdir()
        write_state(place, state)
        network = load_trained(place)
        assert all(torch.equal(tensor, end[name]) for name, tensor in network.state_dict().items())


def test_a_reused_actor_keeps_no_snapshot_of_the_previous_trial(tmp_path: Path) -> None:
    trial = SnapshotTrainable(config(epochs=1, cycles=1))
    trial.step()
    trial.reset_config(config(epochs=2, cycles=1))
    trial.step()
    trial.save_checkpoint(str(tmp_path))
    with pytest.raises(InvalidInput, match="without snapshots"):
        snapshot_states(tmp_path)


def darts_network() -> torch.nn.Module:
    space = get_space("darts")
    architecture = space.sample(np.random.default_rng(0))
    settings = NetworkSettings(channels=4, cells=1, auxiliary=True)
    network = build(space, architecture, network=settings, in_channels=1, num_classes=10, seed=0)
    images = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    network(images)  # running statistics other than the first ones
    return network


def test_dropped_paths_differ_between_passes() -> None:
    """Only the edges of cells are random. Another seed gives other results, and `eval()` the same ones again."""
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    network = darts_network()
    before = torch.random.get_rng_state()
    with torch.no_grad():
        kept = network.eval()(images)
        dropped = DroppedPaths(network, 1e-9, seed=0)
        assert torch.equal(dropped(images), kept)  # without dropped paths the normalization is as in evaluation mode
        dropped = DroppedPaths(network, 0.3, seed=0)
        first, second = dropped(images), dropped(images)
        assert not torch.equal(first, second) and not torch.equal(first, kept)
        dropped.eval()
        assert torch.equal(dropped(images), first)
        assert not torch.equal(DroppedPaths(network, 0.3, seed=1)(images), first)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_only_networks_with_paths_can_drop_them() -> None:
    network = build("nasbench201", CELL, network=NetworkSettings(), in_channels=1, num_classes=10, seed=0)
    with pytest.raises(InvalidInput, match="paths to drop"):
        DroppedPaths(network, 0.3)
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        DroppedPaths(darts_network(), 0.0)
    with pytest.raises(InvalidInput, match="evaluation mode"):
        DroppedPaths(darts_network(), 0.3).train()
