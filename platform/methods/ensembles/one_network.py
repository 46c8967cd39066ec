"""Final stages that train one network and make an ensemble of it: its snapshots, or its draws of dropped paths."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from ray import tune
from ray.tune import Checkpoint

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import listed, run_trials
from archray.platform.methods.ensembles.baseline_config import one_architecture_config
from archray.platform.methods.ensembles.final_ensemble import found_members, write_ensemble
from archray.platform.methods.ensembles.members import member_seeds
from archray.platform.methods.training_stages import failure_reasons, training_inputs, trial_plan, write_tables
from archray.platform.run.run import digest
from archray.trainables.checkpoint import STATE_FILE, read_state
from archray.trainables.ensembles.dropped_paths import DROP_PATH
from archray.trainables.training import TrainingSettings
from archray.trainables.tune.snapshot_trainable import SnapshotTrainable, snapshot_states
from archray.trainables.tune.standalone_trainable import StandaloneTrainable

State = dict[str, Any]


def snapshot_training(context: Context) -> TrainingSettings:
    """The final training, with a cycle for each member."""
    config = one_architecture_config(context.run)
    return config.final.model_copy(update={"cycles": config.ensemble_size})


def _final_training(context: Context) -> TrainingSettings:
    return one_architecture_config(context.run).final


def _snapshots(context: Context, place: Path) -> list[State]:
    return snapshot_states(place)


def _draws(context: Context, place: Path) -> list[State]:
    """The one network as often as the ensemble has members, each with paths dropped by a seed of its own."""
    config, state = one_architecture_config(context.run), read_state(place)
    seeds = member_seeds(context, config.ensemble_size)
    return [{**state, DROP_PATH: {"probability": config.drop_path, "seed": seed}} for seed in seeds]


def _train_one(
    context: Context, folder: Folder, trainable: type[tune.Trainable], training: TrainingSettings, inputs: State
) -> Checkpoint:
    """The last checkpoint of the one network. Raises: ArchrayError if its training failed."""
    keys = {"architecture": found_members(context)[0], "seed": member_seeds(context, 1)[0]}
    plan = trial_plan(
        context,
        training,
        total=1,
        test=True,
        concurrency=1,
        keys={name: tune.grid_search([value]) for name, value in keys.items()},
    )
    tuned = folder / f"tune-{digest(inputs)}"
    results = run_trials(tuned, replace(plan, trainable=trainable), context)
    context.grids["final"] = results
    trials = write_tables(folder, tuned, results)
    [result] = listed(results)
    if result.error is not None or (result.metrics or {}).get("failure") is not None or result.checkpoint is None:
        raise ArchrayError(f"the training of {keys['architecture']} failed: {failure_reasons(trials)}")
    return result.checkpoint


def _stage(
    title: str,
    trainable: type[tune.Trainable],
    training: Callable[[Context], TrainingSettings],
    parts: Callable[[Context, Path], list[State]],
    told: Callable[[Context, int], dict[str, Any]],
) -> Stage:
    """Trains one network, and writes its parts as checkpoints of their own, of which the ensemble is made.

    Args:
        parts: the states of the members, out of the checkpoint of the network.
        told: what tells a member from the others, by its number.
    """

    def inputs(context: Context) -> dict[str, Any]:
        config = one_architecture_config(context.run)
        return {
            **training_inputs(context, training(context)),
            "members": found_members(context),
            "drop_path": config.drop_path if config.method == "mc-droppath" else None,
        }

    def execute(context: Context, folder: Folder) -> None:
        architecture, seed = found_members(context)[0], member_seeds(context, 1)[0]
        checkpoint = _train_one(context, folder, trainable, training(context), inputs(context))
        with checkpoint.as_directory() as place:
            states = parts(context, Path(place))
        members = [{"architecture": architecture, "seed": seed, **told(context, n)} for n in range(len(states))]
        kept = [_kept(folder / "members" / f"{number}", state) for number, state in enumerate(states)]
        ensemble = write_ensemble(context, folder, members, kept)
        context.console.print(
            f"    test error {ensemble['test_error']:.4f}; its members' {ensemble['ate']:.4f} on average",
            soft_wrap=True,
        )

    return Stage("final", title, inputs, execute)


def _kept(folder: Folder, state: State) -> Checkpoint:
    """A member's state as a checkpoint, in the folder of the stage."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    folder.write_bytes(STATE_FILE, buffer.getvalue())
    return Checkpoint(folder.uri)


def snapshot_stage() -> Stage:
    return _stage(
        "train one network in cycles, a member at each end",
        SnapshotTrainable,
        snapshot_training,
        _snapshots,
        lambda context, number: {"epoch": snapshot_training(context).cycle_ends[number]},
    )


def drop_path_stage() -> Stage:
    return _stage(
        "train one network, and drop paths in prediction",
        StandaloneTrainable,
        _final_training,
        _draws,
        lambda context, number: {"drop_path_seed": member_seeds(context, number + 1)[number]},
    )
