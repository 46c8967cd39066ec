"""The last stage of a search for an ensemble: its networks trained from scratch, measures, one module. Shu 2022, 5.5.1.

A network for each member; or one network, whose snapshots or draws of dropped paths are the members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from ray import tune
from ray.tune import Checkpoint

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.ensembles.baseline_config import DropPathConfig, OneArchitectureConfig, SnapshotConfig
from archray.platform.methods.ensembles.ensemble_config import EnsembleConfig
from archray.platform.methods.ensembles.ensemble_tables import found_members
from archray.platform.methods.ensembles.written_ensemble import write_ensemble
from archray.platform.methods.training_stages import training_plan, trainings
from archray.plurals import count
from archray.seeds import first_seeds
from archray.trainables.checkpoint import STATE_FILE, read_state
from archray.trainables.ensembles.prediction import DROP_PATH
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.standalone_trainable import SnapshotTrainable, StandaloneTrainable, snapshot_states

# A network for each member


def _average(context: Context[Any]) -> str:
    return str((context.run.found or {}).get("average", "probabilities"))


def _trials(context: Context[EnsembleConfig], tuned: Folder) -> TrialPlan:
    """A network of each architecture. Repeated ones make networks that differ by their seed."""
    members = found_members(context.run)
    seeds = first_seeds(context.seed("final"), len(members))
    keys = {
        "member": tune.grid_search(list(range(len(members)))),
        "architecture": tune.sample_from(lambda spec: members[spec["config"]["member"]]),
        "seed": tune.sample_from(lambda spec: seeds[spec["config"]["member"]]),
    }
    return training_plan(context, context.config.final, test=True, total=len(members), keys=keys)


def _write_trained(context: Context[EnsembleConfig], folder: Folder, run: TuneRun) -> None:
    architectures = found_members(context.run)
    seeds = first_seeds(context.seed("final"), len(architectures))
    trained = {(result.config or {})["member"]: run.checkpoint(result) for result in run.ended}
    kept = {number: checkpoint for number, checkpoint in sorted(trained.items()) if checkpoint is not None}
    if not kept:
        raise ArchrayError(f"none of {count(len(architectures), 'network')} was trained: {run.failures}")
    if len(kept) < len(architectures):
        context.say(
            f"not trained: {len(architectures) - len(kept)} of {count(len(architectures), 'member')}, see "
            "final/trials.parquet; the ensemble is of the others"
        )
    members = [{"architecture": architectures[number], "seed": seeds[number]} for number in kept]
    write_ensemble(context, folder, members, list(kept.values()), _average(context))


FINAL_ENSEMBLE_STAGE = TuneStage[EnsembleConfig](
    name="final",
    title="train the members of the ensemble from scratch",
    reads=("network", "final"),
    depends=lambda context: {"members": found_members(context.run), "average": _average(context)},
    plan=_trials,
    finish=_write_trained,
    amount=lambda config: trainings(config.member_count, config.final),
)


# One network


def _one_trial(
    context: Context[OneArchitectureConfig], training: TrainingSettings, trainable: type[tune.Trainable]
) -> TrialPlan:
    keys = {
        "architecture": tune.grid_search(found_members(context.run)[:1]),
        "seed": tune.grid_search(first_seeds(context.seed("final"), 1)),
    }
    return training_plan(context, training, test=True, trainable=trainable, total=1, at_most=1, keys=keys)


def _write_parts(
    context: Context[Any],
    folder: Folder,
    run: TuneRun,
    apart: Sequence[dict[str, Any]],
    states: Callable[[Path], Sequence[dict[str, Any]]],
) -> None:
    """Writes the parts of the one network as checkpoints of their own, of which the ensemble is made.

    apart: what tells each part from the others. states: folder of the network's checkpoint -> those of the parts.
    """
    architecture, [seed] = found_members(context.run)[0], first_seeds(context.seed("final"), 1)
    [result] = run.ended
    checkpoint = run.checkpoint(result)
    if checkpoint is None:
        raise ArchrayError(f"the training of {architecture} failed: {run.failures}")
    members, kept = [], []
    with checkpoint.as_directory() as place:
        for number, (own, state) in enumerate(zip(apart, states(Path(place)), strict=True)):
            part = folder / "members" / f"{number}"
            with part.whole_file(STATE_FILE) as stream:
                torch.save(state, stream)
            members.append({"architecture": architecture, "seed": seed, **own})
            kept.append(Checkpoint(part.uri))
    write_ensemble(context, folder, members, kept)


def _write_snapshots(context: Context[SnapshotConfig], folder: Folder, run: TuneRun) -> None:
    epochs = [{"epoch": end} for end in context.config.snapshot_training.cycle_ends]
    _write_parts(context, folder, run, epochs, snapshot_states)


def _write_draws(context: Context[DropPathConfig], folder: Folder, run: TuneRun) -> None:
    """The one network as often as the ensemble has members, each with paths dropped by a seed of its own."""
    config = context.config
    seeds = first_seeds(context.seed("final"), config.ensemble_size)

    def draws(place: Path) -> list[dict[str, Any]]:
        state = read_state(place)
        return [{**state, DROP_PATH: {"probability": config.drop_path, "seed": seed}} for seed in seeds]

    _write_parts(context, folder, run, [{"drop_path_seed": seed} for seed in seeds], draws)


SNAPSHOT_STAGE = TuneStage[SnapshotConfig](
    name="final",
    title="train one network in cycles, a member at each end",
    reads=("network", "snapshot_training"),
    depends=lambda context: {"members": found_members(context.run)},
    plan=lambda context, tuned: _one_trial(context, context.config.snapshot_training, SnapshotTrainable),
    finish=_write_snapshots,
    amount=lambda config: trainings(1, config.final),
)
DROP_PATH_STAGE = TuneStage[DropPathConfig](
    name="final",
    title="train one network, and drop paths in prediction",
    reads=("network", "final", "drop_path"),
    depends=lambda context: {"members": found_members(context.run)},
    plan=lambda context, tuned: _one_trial(context, context.config.final, StandaloneTrainable),
    finish=_write_draws,
    amount=lambda config: trainings(1, config.final),
)
