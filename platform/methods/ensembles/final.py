"""The final stage of an ensemble method: training from scratch, measures, and one module. Shu 2022, 5.5.1.

Either each member is a network, or the members are snapshots or random path drops of one network.
"""

import itertools
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray import tune
from ray.tune import Checkpoint

from archray.cluster.actor_pool import Outcome, actor_map
from archray.cluster.settings import ResourceSettings, actor_count
from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.pool_scoring import device_of
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.ensembles import config as configs
from archray.platform.methods.ensembles.tables import ENSEMBLE, found_members
from archray.platform.methods.stages import training_amount, training_plan
from archray.platform.models.model_files import input_of
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import MODEL
from archray.plurals import count
from archray.seeds import first_seeds
from archray.trainables.checkpoint import STATE_FILE, read_state
from archray.trainables.data import load_images
from archray.trainables.devices import limited_worker
from archray.trainables.ensembles.ensemble import Ensemble, ensemble_files, member_of
from archray.trainables.ensembles.measures import measure_ensemble
from archray.trainables.ensembles.prediction import DROP_PATH
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune import standalone_trainable as standalone


def map_over_cluster(
    worker: type[Any], items: Sequence[Any], worker_kwargs: dict[str, Any], resources: ResourceSettings, **options: Any
) -> Generator[list[Outcome], None, None]:
    """Calls `actor_map` with one item at a time, on as many actors as the resources allow. Actors receive `device`."""
    return actor_map(
        limited_worker(worker, resources.gpus()),
        items,
        worker_kwargs={**worker_kwargs, "device": device_of(resources)},
        num_actors=min(len(items), actor_count(resources)),
        chunk_size=1,
        num_cpus=resources.cpus_per_trial,
        num_gpus=resources.gpus(),
        **options,
    )


def _predictions(context: Context[configs.EnsembleConfig], checkpoints: Sequence[Checkpoint]) -> list[np.ndarray]:
    """The probabilities of trained networks on the test images, (images, classes) each, by actors over the cluster.

    Raises: ArchrayError if a prediction fails.
    """
    run, config = context.run, context.config
    kwargs = {"data": run.data.model_dump(mode="json"), "space": run.space, "amp": config.final.amp}
    title, predictions = context.labels("final").title, {}
    with closing(
        map_over_cluster(standalone.TrainedPredictor, list(checkpoints), kwargs, config.resources, title=title)
    ) as answers:
        for outcome in itertools.chain.from_iterable(answers):
            if outcome.error is not None:
                raise ArchrayError(f"prediction with a trained network failed: {outcome.error}")
            predictions[outcome.index] = np.asarray(outcome.value, dtype=np.float32)
    return [predictions[number] for number in range(len(checkpoints))]


def write_ensemble(
    context: Context[configs.EnsembleConfig],
    folder: Folder,
    members: Sequence[dict[str, Any]],
    checkpoints: Sequence[Checkpoint],
    average: str = "probabilities",
) -> None:
    """Predicts with trained networks, and writes their measures and one module with all networks in `model/`.

    `predictions-I.npy` contains probabilities on the test images. `ensemble.json` contains `test_accuracy` (fraction),
    `test_nll` (nats) and `ece` of the averaged predictions, `members_test_accuracy` (mean of the single members), `ppd`
    (pairwise predictive disagreement, None for a single member), `average`, `images`, and `members` with
    `test_accuracy`, `test_nll`, `ece` and `predictions` (the file) each.

    Args:
        context: context of the stage.
        folder: folder of the stage.
        members: description of each member: `architecture`, `seed`, or other keys that distinguish it.
        checkpoints: checkpoint of each member's `StandaloneTrainable`.
        average: outputs that are averaged, `probabilities` or `logits`.
    """
    dataset = load_images(context.run.data)
    predictions, labels = _predictions(context, checkpoints), dataset.test.labels.cpu().numpy()
    files = [f"predictions-{number}.npy" for number in range(len(predictions))]
    for name, probabilities in zip(files, predictions, strict=True):
        with folder.whole_file(name) as stream:
            np.save(stream, probabilities, allow_pickle=False)
    measured = measure_ensemble(np.stack(predictions), labels, average)  # type: ignore[arg-type]
    measures: dict[str, Any] = {
        "test_accuracy": measured["accuracy"],
        "test_nll": measured["loss"],
        "ece": measured["calibration_error"],
        "members_test_accuracy": measured["average_accuracy"],
        "ppd": measured["disagreement"],
        "average": average,
        "images": len(labels),
        "members": [
            {
                **member,
                "test_accuracy": measured["member_accuracies"][number],
                "test_nll": measured["member_losses"][number],
                "ece": measured["member_calibration_errors"][number],
                "predictions": files[number],
            }
            for number, member in enumerate(members)
        ],
    }
    folder.write_json(ENSEMBLE, measures)
    networks, described = [], []
    for checkpoint in checkpoints:
        with checkpoint.as_directory() as place:
            member, network = member_of(Path(place), context.run.space)
        networks.append(network)
        described.append(member)
    ensemble = Ensemble(networks, average=average)  # type: ignore[arg-type]
    more = {"test_accuracy": measures["test_accuracy"], "data": context.config.data.name, "space_file": None}
    for name, content in ensemble_files(ensemble, described, input_of(context.run.data) | more).items():
        (folder / MODEL).write_bytes(name, content)
    context.say("; ".join(quantity_of(key).text(measures[key]) for key in ("test_accuracy", "members_test_accuracy")))


def _average(context: Context[Any]) -> str:
    return str((context.run.found or {}).get("average", "probabilities"))


def _trials(context: Context[configs.EnsembleConfig], tuned: Folder) -> TrialPlan:
    """The plan of one network per architecture. Networks of the same architecture have different seeds."""
    members = found_members(context.run)
    seeds = first_seeds(context.seed("final"), len(members))
    keys = {
        "member": tune.grid_search(list(range(len(members)))),
        "architecture": tune.sample_from(lambda spec: members[spec["config"]["member"]]),
        "seed": tune.sample_from(lambda spec: seeds[spec["config"]["member"]]),
    }
    total = len(members)
    return training_plan(context, context.config.final, test=True, total=total, keys=keys, reads_checkpoints=True)


def _write_trained(context: Context[configs.EnsembleConfig], folder: Folder, run: TuneRun) -> None:
    architectures = found_members(context.run)
    seeds = first_seeds(context.seed("final"), len(architectures))
    trained = {(result.config or {})["member"]: run.checkpoint(result) for result in run.ended}
    kept = {number: checkpoint for number, checkpoint in sorted(trained.items()) if checkpoint is not None}
    if not kept:
        raise ArchrayError(f"training failed for all of {count(len(architectures), 'network')}: {run.failures}")
    if len(kept) < len(architectures):
        context.say(
            f"training failed for {len(architectures) - len(kept)} of {count(len(architectures), 'member')} (see "
            "final/trials.parquet); the ensemble consists of the others"
        )
    members = [{"architecture": architectures[number], "seed": seeds[number]} for number in kept]
    write_ensemble(context, folder, members, list(kept.values()), _average(context))


FINAL_ENSEMBLE_STAGE = TuneStage[configs.EnsembleConfig](
    name="final",
    title="train the members of the ensemble in full",
    reads=("network", "final"),
    depends=lambda context: {"members": found_members(context.run), "average": _average(context)},
    plan=_trials,
    finish=_write_trained,
    amount=lambda config: training_amount(config.member_count, config.final),
)


def _one_trial(
    context: Context[configs.OneArchitectureConfig], training: TrainingSettings, trainable: type[tune.Trainable]
) -> TrialPlan:
    keys = {
        "architecture": tune.grid_search(found_members(context.run)[:1]),
        "seed": tune.grid_search(first_seeds(context.seed("final"), 1)),
    }
    plan: dict[str, Any] = {"trainable": trainable, "total": 1, "at_most": 1, "keys": keys}
    return training_plan(context, training, test=True, reads_checkpoints=True, **plan)


def _write_parts(
    context: Context[Any],
    folder: Folder,
    run: TuneRun,
    labels: Sequence[dict[str, Any]],
    states: Callable[[Path], Sequence[dict[str, Any]]],
) -> None:
    """Writes each part of a single network as a checkpoint, and the ensemble of all parts.

    Args:
        context: context of the stage.
        folder: folder of the stage.
        run: the trial of the network.
        labels: keys that distinguish each part.
        states: function from the folder of the network's checkpoint to the states of the parts.
    """
    architecture, [seed] = found_members(context.run)[0], first_seeds(context.seed("final"), 1)
    [result] = run.ended
    checkpoint = run.checkpoint(result)
    if checkpoint is None:
        raise ArchrayError(f"training {architecture} failed: {run.failures}")
    members, kept = [], []
    with checkpoint.as_directory() as place:
        for number, (label, state) in enumerate(zip(labels, states(Path(place)), strict=True)):
            part = folder / "members" / f"{number}"
            with part.whole_file(STATE_FILE) as stream:
                torch.save(state, stream)
            members.append({"architecture": architecture, "seed": seed, **label})
            kept.append(Checkpoint(part.uri))
    write_ensemble(context, folder, members, kept)


def _write_snapshots(context: Context[configs.SnapshotConfig], folder: Folder, run: TuneRun) -> None:
    epochs = [{"epoch": end} for end in context.config.snapshot_training.cycle_ends]
    _write_parts(context, folder, run, epochs, standalone.snapshot_states)


def _write_draws(context: Context[configs.DropPathConfig], folder: Folder, run: TuneRun) -> None:
    """Writes one member per seed of dropped paths, all with the same network."""
    seeds = first_seeds(context.seed("final"), context.config.ensemble_size)
    drops = [{"probability": context.config.drop_path, "seed": seed} for seed in seeds]

    def draws(place: Path) -> list[dict[str, Any]]:
        state = read_state(place)
        return [{**state, DROP_PATH: drop} for drop in drops]

    _write_parts(context, folder, run, [{"drop_path_seed": seed} for seed in seeds], draws)


SNAPSHOT_STAGE = TuneStage[configs.SnapshotConfig](
    name="final",
    title="train one network in cycles, with a member at the end of each",
    reads=("network", "snapshot_training"),
    depends=lambda context: {"members": found_members(context.run)},
    plan=lambda context, tuned: _one_trial(context, context.config.snapshot_training, standalone.SnapshotTrainable),
    finish=_write_snapshots,
    amount=lambda config: training_amount(1, config.final),
)
DROP_PATH_STAGE = TuneStage[configs.DropPathConfig](
    name="final",
    title="train one network, and drop paths at prediction",
    reads=("network", "final", "drop_path"),
    depends=lambda context: {"members": found_members(context.run)},
    plan=lambda context, tuned: _one_trial(context, context.config.final, standalone.StandaloneTrainable),
    finish=_write_draws,
    amount=lambda config: training_amount(1, config.final),
)
