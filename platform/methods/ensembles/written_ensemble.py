"""A trained ensemble in the run folder: the predictions of its members, its measures, and all of it as one module."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ray.tune import Checkpoint

from archray.cluster.actor_pool import actor_map
from archray.cluster.settings import actor_count
from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.pool_scoring import device_of
from archray.platform.engine.stage import Context
from archray.platform.methods.ensembles.ensemble_config import EnsembleConfig
from archray.platform.methods.ensembles.ensemble_tables import ENSEMBLE
from archray.platform.models.model_files import input_of
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import MODEL
from archray.trainables.data import load_images
from archray.trainables.ensembles import Ensemble, measure_ensemble, member_of
from archray.trainables.ensembles.ensemble import ensemble_files
from archray.trainables.tune.standalone_trainable import TrainedPredictor


def _predictions(context: Context[EnsembleConfig], checkpoints: Sequence[Checkpoint]) -> list[npt.NDArray[np.float32]]:
    """The probabilities of trained networks on the test images, (images, classes) each, by actors over the cluster.

    Raises: ArchrayError if one cannot be computed.
    """
    run, resources = context.run, context.config.resources
    answers = actor_map(
        TrainedPredictor,
        list(checkpoints),
        worker_kwargs={
            "data": run.data.model_dump(mode="json"),
            "space": run.space,
            "amp": run.config.final.amp,
            "device": device_of(resources),
        },
        num_actors=min(len(checkpoints), actor_count(resources)),
        chunk_size=1,
        num_cpus=resources.cpus_per_trial,
        num_gpus=resources.gpus(),
        title=context.labels("final").title,
    )
    predictions = {}
    with closing(answers):
        for outcomes in answers:
            for outcome in outcomes:
                if outcome.error is not None:
                    raise ArchrayError(f"the predictions of a trained network failed: {outcome.error}")
                predictions[outcome.index] = np.asarray(outcome.value, dtype=np.float32)
    return [predictions[number] for number in range(len(checkpoints))]


def write_ensemble(
    context: Context[EnsembleConfig],
    folder: Folder,
    members: Sequence[dict[str, Any]],
    checkpoints: Sequence[Checkpoint],
    average: str = "probabilities",
) -> None:
    """Predicts with trained networks, and writes their measures and, as `model/`, all of them as one module.

    `predictions-I.npy` are probabilities on the test images. `ensemble.json` holds, as fractions, `test_accuracy`,
    `test_nll` (nats), `ece` of the averaged predictions, `members_test_accuracy` (the mean of each alone), `ppd`
    (pairwise predictive disagreement, None of a single member), `average`, `images`, and `members` with
    `test_accuracy`, `test_nll`, `ece`, `predictions` (the file) each.

    Args:
        members: what each member is: `architecture`, `seed`, or what else tells it from the others.
        checkpoints: of each member's `StandaloneTrainable`.
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
    more = {
        **input_of(context.run.data),
        "test_accuracy": measures["test_accuracy"],
        "data": context.config.data.name,
    }
    ensemble = Ensemble(networks, average=average)  # type: ignore[arg-type]
    for name, content in ensemble_files(ensemble, described, more | {"space_file": None}).items():
        (folder / MODEL).write_bytes(name, content)
    context.say("; ".join(quantity_of(key).told(measures[key]) for key in ("test_accuracy", "members_test_accuracy")))
