"""Final stages that train one network and make an ensemble of it: its snapshots, or its draws of dropped paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from ray import tune
from ray.tune import Checkpoint

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, TuneRun, TuneStage
from archray.platform.methods.ensembles.baseline_config import DropPathConfig, OneArchitectureConfig, SnapshotConfig
from archray.platform.methods.ensembles.ensemble_tables import found_members
from archray.platform.methods.ensembles.final_ensemble import member_seeds, write_ensemble
from archray.platform.methods.training_stages import training_plan
from archray.trainables.checkpoint import STATE_FILE, read_state
from archray.trainables.ensembles.prediction import DROP_PATH
from archray.trainables.training import TrainingSettings
from archray.trainables.tune.snapshot_trainable import SnapshotTrainable, snapshot_states
from archray.trainables.tune.standalone_trainable import StandaloneTrainable

State = dict[str, Any]
Members = list[tuple[dict[str, Any], State]]  # what tells each from the others, and its checkpoint's state


def _trial(
    context: Context[OneArchitectureConfig], training: TrainingSettings, trainable: type[tune.Trainable]
) -> TrialPlan:
    """The one network."""
    keys = {"architecture": found_members(context.run)[0], "seed": member_seeds(context, 1)[0]}
    grid = {name: tune.grid_search([value]) for name, value in keys.items()}
    return training_plan(context, training, test=True, trainable=trainable, total=1, at_most=1, keys=grid)


def _write_members(
    context: Context[OneArchitectureConfig], folder: Folder, run: TuneRun, parts: Callable[[Path], Members]
) -> None:
    """Writes the parts of the one network as checkpoints of their own, of which the ensemble is made.

    parts: folder of the network's checkpoint -> its members.
    """
    architecture, seed = found_members(context.run)[0], member_seeds(context, 1)[0]
    [result] = run.ended
    checkpoint = run.checkpoint(result)
    if checkpoint is None:
        raise ArchrayError(f"the training of {architecture} failed: {run.failures}")
    with checkpoint.as_directory() as place:
        members = parts(Path(place))
    described = [{"architecture": architecture, "seed": seed, **own} for own, _ in members]
    kept = [_kept(folder / "members" / f"{number}", state) for number, (_, state) in enumerate(members)]
    write_ensemble(context, folder, described, kept)


def _kept(folder: Folder, state: State) -> Checkpoint:
    """A member's state as a checkpoint, in the folder of the stage."""
    with folder.whole_file(STATE_FILE) as stream:
        torch.save(state, stream)
    return Checkpoint(folder.uri)


# Snapshots


def _write_snapshots(context: Context[SnapshotConfig], folder: Folder, run: TuneRun) -> None:
    ends = context.config.snapshot_training.cycle_ends

    def snapshots(place: Path) -> Members:
        return [({"epoch": end}, state) for end, state in zip(ends, snapshot_states(place), strict=True)]

    _write_members(context, folder, run, snapshots)


SNAPSHOT_STAGE = TuneStage[SnapshotConfig](
    name="final",
    title="train one network in cycles, a member at each end",
    reads=("network", "snapshot_training"),
    depends=lambda context: {"members": found_members(context.run)},
    plan=lambda context, tuned: _trial(context, context.config.snapshot_training, SnapshotTrainable),
    finish=_write_snapshots,
)


# Dropped paths


def _write_draws(context: Context[DropPathConfig], folder: Folder, run: TuneRun) -> None:
    """The one network as often as the ensemble has members, each with paths dropped by a seed of its own."""
    config = context.config

    def draws(place: Path) -> Members:
        state = read_state(place)
        return [
            ({"drop_path_seed": seed}, {**state, DROP_PATH: {"probability": config.drop_path, "seed": seed}})
            for seed in member_seeds(context, config.ensemble_size)
        ]

    _write_members(context, folder, run, draws)


DROP_PATH_STAGE = TuneStage[DropPathConfig](
    name="final",
    title="train one network, and drop paths in prediction",
    reads=("network", "final", "drop_path"),
    depends=lambda context: {"members": found_members(context.run)},
    plan=lambda context, tuned: _trial(context, context.config.final, StandaloneTrainable),
    finish=_write_draws,
)
