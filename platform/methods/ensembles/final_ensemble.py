"""The last stage of a search for an ensemble: members trained from scratch, measures, one module. Shu 2022, 5.5.1."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ray import tune
from ray.tune import Checkpoint

from archray.cluster.actors import actor_map
from archray.cluster.resources import actor_count
from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.shards import device_of
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, TuneRun, TuneStage
from archray.platform.methods.ensembles.ensemble_config import EnsembleConfig
from archray.platform.methods.ensembles.ensemble_tables import ENSEMBLE, found_members
from archray.platform.methods.training_stages import training_plan
from archray.platform.run.layout import MODEL
from archray.seeds import first_seeds
from archray.trainables.data import load_images
from archray.trainables.ensembles import Ensemble, measure_ensemble, member_of
from archray.trainables.ensembles.ensemble import ensemble_files
from archray.trainables.tune.trained_network import TrainedPredictor

Probabilities = npt.NDArray[np.float32]  # (images, classes)


def member_seeds(context: Context[Any], count: int) -> list[int]:
    """The seeds of `count` networks; those of fewer are the first of them."""
    return first_seeds(context.seed("final"), count)


def member_trials(context: Context[EnsembleConfig], architectures: Sequence[str]) -> TrialPlan:
    """A network of each architecture. Repeated ones make networks that differ by their seed."""
    members, seeds = list(architectures), member_seeds(context, len(architectures))
    return training_plan(
        context,
        context.config.final,
        test=True,
        total=len(members),
        keys={
            "member": tune.grid_search(list(range(len(members)))),
            "architecture": _of_member(members),
            "seed": _of_member(seeds),
        },
    )


def trained_members(run: TuneRun) -> list[Checkpoint | None]:
    """The last checkpoint of each member, in their order; None of one whose training failed.

    Raises: ArchrayError if all failed.
    """
    trained: list[Checkpoint | None] = [None] * run.plan.total
    for result in run.ended:
        trained[(result.config or {})["member"]] = run.checkpoint(result)
    if not any(trained):
        raise ArchrayError(f"no network of {len(trained)} was trained: {run.failures}")
    return trained


def _of_member(values: Sequence[Any]) -> Any:
    """A value of a trial's config that the number of its member decides."""

    def choose(spec: Any) -> Any:
        return values[spec.config.member]

    return tune.sample_from(choose)


def predict_trained(
    context: Context[EnsembleConfig], checkpoints: Sequence[Checkpoint], split: str = "test"
) -> list[Probabilities]:
    """The probabilities of trained networks on a split, (images, classes) each, by actors over the cluster.

    Raises: ArchrayError if one cannot be computed.
    """
    run, config = context.run, context.config
    resources = config.resources
    kwargs = {
        "data": run.data.model_dump(mode="json"),
        "split": split,
        "space": run.space,
        "amp": config.final.amp,
        "device": device_of(resources),
    }
    found: dict[int, Probabilities] = {}
    answers = actor_map(
        TrainedPredictor,
        list(checkpoints),
        worker_kwargs=kwargs,
        num_actors=min(len(checkpoints), actor_count(resources)),
        chunk_size=1,
        num_cpus=resources.cpus_per_trial,
        num_gpus=resources.gpus(),
    )
    with closing(answers):
        for outcomes in answers:
            for outcome in outcomes:
                if outcome.error is not None:
                    raise ArchrayError(f"the predictions of a trained network failed: {outcome.error}")
                found[outcome.index] = outcome.value
    return [found[number] for number in range(len(checkpoints))]


def split_labels(context: Context[Any], split: str = "test") -> npt.NDArray[np.int64]:
    """The labels of a split, (images,), in the order of `predict_trained`."""
    labels: npt.NDArray[np.int64] = getattr(load_images(context.run.data), split).labels.cpu().numpy()
    return labels


def write_measures(
    folder: Folder,
    members: Sequence[dict[str, Any]],
    predictions: Sequence[Probabilities],
    labels: npt.NDArray[np.int64],
    average: str = "probabilities",
) -> dict[str, Any]:
    """Writes the test predictions, `predictions-I.npy`, and the measures of the ensemble and its members.

    Args:
        members: what each member is: `architecture`, `seed`, or what else tells it from the others.
        predictions: of each member on the test images.

    Returns: what `ensemble.json` holds: `test_error`, `test_nll` (nats), `ece` of the averaged predictions, `ate` (the
    members' average test error), `ppd` (pairwise predictive disagreement, None of a single member), `average`,
    `images`, and `members` with `test_error`, `test_nll`, `ece`, `predictions` (the file) each. Fractions.
    """
    for number, each in enumerate(predictions):
        with folder.whole_file(f"predictions-{number}.npy") as stream:
            np.save(stream, np.asarray(each, dtype=np.float32), allow_pickle=False)
    measured = measure_ensemble(np.stack(list(predictions)), labels, average)  # type: ignore[arg-type]
    told: dict[str, Any] = {
        "test_error": measured["error"],
        "test_nll": measured["loss"],
        "ece": measured["calibration_error"],
        "ate": measured["average_error"],
        "ppd": measured["disagreement"],
        "average": average,
        "images": len(labels),
        "members": [
            {
                **member,
                "test_error": measured["member_errors"][number],
                "test_nll": measured["member_losses"][number],
                "ece": measured["member_calibration_errors"][number],
                "predictions": f"predictions-{number}.npy",
            }
            for number, member in enumerate(members)
        ],
    }
    folder.write_json(ENSEMBLE, told)
    return told


def write_ensemble(
    context: Context[EnsembleConfig],
    folder: Folder,
    members: Sequence[dict[str, Any]],
    checkpoints: Sequence[Checkpoint],
    average: str = "probabilities",
) -> None:
    """Predicts with trained networks, writes their measures and, as `model/`, all of them as one module.

    Args: as `write_measures`; checkpoints: of each member's `StandaloneTrainable`.
    """
    told = write_measures(folder, members, predict_trained(context, checkpoints), split_labels(context), average)
    networks, described = [], []
    for checkpoint in checkpoints:
        with checkpoint.as_directory() as place:
            member, network = member_of(Path(place), context.run.space)
        networks.append(network)
        described.append(member)
    more = {
        "image_size": load_images(context.run.data).image_size,
        "test_error": told["test_error"],
        "data": context.run.config.data.name,
        "space_file": None,
    }
    files = ensemble_files(Ensemble(networks, average=average), described, more)  # type: ignore[arg-type]
    for name, content in files.items():
        (folder / MODEL).write_bytes(name, content)
    context.say(f"test error {told['test_error']:.4f}; its members' {told['ate']:.4f} on average")


def _average(context: Context[Any]) -> str:
    average: str = (context.run.found or {}).get("average", "probabilities")
    return average


def _write_trained(context: Context[EnsembleConfig], folder: Folder, run: TuneRun) -> None:
    architectures, trained = found_members(context.run), trained_members(run)
    seeds = member_seeds(context, len(architectures))
    kept = {number: checkpoint for number, checkpoint in enumerate(trained) if checkpoint is not None}
    if len(kept) < len(trained):
        context.say(
            f"{len(trained) - len(kept)} of {len(trained)} members were not trained, see final/trials.parquet; the "
            "ensemble is of the others"
        )
    members = [{"architecture": architectures[number], "seed": seeds[number]} for number in kept]
    write_ensemble(context, folder, members, list(kept.values()), _average(context))


FINAL_ENSEMBLE_STAGE = TuneStage[EnsembleConfig](
    name="final",
    title="train the members of the ensemble from scratch",
    reads=("network", "final"),
    depends=lambda context: {"members": found_members(context.run), "average": _average(context)},
    plan=lambda context, tuned: member_trials(context, found_members(context.run)),
    finish=_write_trained,
)
