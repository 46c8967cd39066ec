"""Files of a run's trained model: a network, an ensemble, or the classifier of a feature map."""

import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, BaseModel, Field

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.models.rebuilt_model import FEATURE_MAP, STATE_DICT, rebuilt_network
from archray.platform.run.heartbeat import is_locked_elsewhere
from archray.platform.run.layout import DESCRIPTION, DONE, MODEL, command
from archray.platform.run.run import Run
from archray.platform.run.run_summary import RunSummary, check_files, front_of
from archray.trainables.checkpoint import STATE_FILE, load_trained_weights, read_state
from archray.trainables.data import DataSettings, load_data
from archray.trainables.data.image_form import ImageForm
from archray.trainables.data.raw import TextDataset
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.ensembles.ensemble import Member, Output, load_ensemble
from archray.trainables.ensembles.measures import Averaged
from archray.trainables.feature_maps.classifier import Classifier, load_classifier
from archray.trainables.nets import NetworkSettings, count_parameters
from archray.trainables.spaces.table_space import PREFIX
from archray.trainables.tune.standalone_trainable import load_trained


def _image_form(document: dict[str, Any] | None) -> dict[str, Any] | None:
    """Validates an ImageForm: an export writes its numbers into source code, and must not write other text."""
    if document is not None:
        ImageForm.model_validate(document)
    return document


class Described(BaseModel):
    """Schema of the description of a model: `architecture.json`, or `model.json` of an export."""

    data: str
    test_accuracy: float | None
    input: Annotated[dict[str, Any] | None, AfterValidator(_image_form)] = None
    classes: list[str] = []


class DescribedNetwork(Described):
    """Schema of the description of a network."""

    kind: Literal["network"] = "network"
    architecture: str
    space: str
    network: NetworkSettings
    in_channels: int = Field(ge=1)
    num_classes: int = Field(ge=1)


class DescribedEnsemble(Described):
    """Schema of the description of an ensemble."""

    kind: Literal["ensemble"]
    members: list[Member] = Field(min_length=1)
    average: Averaged
    output: Output


class DescribedMap(Described):
    """Schema of the description of a feature map."""

    kind: Literal["feature map"]
    architecture: str


_KINDS = {FEATURE_MAP: DescribedMap, ENSEMBLE: DescribedEnsemble}


def read_described(folder: Folder, name: str) -> dict[str, Any]:
    """Reads and validates the description of a model. Raises: DamagedFile."""
    kind = folder.read_json(name).get("kind")
    return dict(folder.read_json(name, _KINDS.get(str(kind), DescribedNetwork)))


def input_of(data: DataSettings) -> dict[str, Any]:
    """Returns entries of a description: `input` (an ImageForm; None: texts), `classes`, `num_classes`, `image_size`."""
    dataset = load_data(data)
    form = None
    if not isinstance(dataset, TextDataset):
        form = dataset.form or ImageForm(channels=dataset.in_channels, size=dataset.image_size)
    return {
        "input": None if form is None else form.model_dump(mode="json"),
        "classes": list(dataset.classes),
        "num_classes": dataset.num_classes,
        "image_size": None if form is None else form.size,
    }


def write_network(folder: Folder, checkpoint: Path, run: Run) -> None:
    """Writes the network of a trial's checkpoint: state_dict and description."""
    state = read_state(checkpoint)
    network = load_trained(checkpoint, space=run.space)
    with folder.whole_file(STATE_DICT) as stream:
        torch.save(network.state_dict(), stream)
    folder.write_json(
        DESCRIPTION,
        {
            "architecture": state["architecture"],
            "space": run.space,
            "space_file": None,
            "network": state["settings"]["network"],
            "in_channels": state["in_channels"],
            **input_of(run.data),
            "parameters": count_parameters(network),
            "final_accuracy": state["result"]["validation_accuracy"],
            "test_accuracy": state["result"]["test_accuracy"],
            "data": run.config.data.name,
        },
    )


def write_classifier(folder: Folder, checkpoint: Path, run: Run) -> None:
    """Writes the classifier of a trial's checkpoint and its description."""
    result = read_state(checkpoint)["result"]
    folder.write_bytes(STATE_FILE, (checkpoint / STATE_FILE).read_bytes())
    folder.write_json(
        DESCRIPTION,
        {
            "kind": FEATURE_MAP,
            "architecture": (run.found or {})["architecture"],
            "space": run.space,
            "dimension": result["dimension"],
            "final_accuracy": result["validation_accuracy"],
            "test_accuracy": result["test_accuracy"],
            **input_of(run.data),
            "data": run.config.data.name,
        },
    )


def load_model(run: Run[Any], member: int | None = None) -> torch.nn.Module | Classifier:
    """Loads the trained network or ensemble of a run on the CPU in evaluation mode, or the classifier of a feature map.

    With several repeats, the function loads the best repeat by validation accuracy.

    Args:
        member: number, from 1, of a member of the Pareto set.

    Raises: RunFolderError if there is no model (yet); DamagedFile for files that differ from their checksums in the
    run; InvalidInput for an unknown member, or weights that do not fit.
    """
    run, folder, described = trained(run, member)
    _check_unchanged(run.folder, folder)
    if described.get("kind") == FEATURE_MAP:
        with tempfile.TemporaryDirectory() as scratch:
            Folder(scratch).copy_from(folder, [STATE_FILE])
            return load_classifier(scratch)
    if described.get("kind") == ENSEMBLE:
        return load_ensemble(folder.read_bytes, run.space)
    place, classes = str(folder / STATE_DICT), described["num_classes"]
    state = load_trained_weights(folder.read_bytes(STATE_DICT), place, [classes], str(folder / DESCRIPTION))
    return rebuilt_network(run.space, described, state, place)


def _check_unchanged(run: Folder, model: Folder) -> None:
    """Compares the files of a model with the checksums of the stage that wrote them, unless the stage runs again.

    Raises: DamagedFile.
    """
    place = model.path.removeprefix(f"{run.path}/")
    stage = "report" if place == MODEL else model.parent.name
    if (run / stage).exists(DONE):
        check_files(run, stage, lambda file: file.startswith(f"{place}/"))


def trained(run: Run[Any], member: int | None = None) -> tuple[Run[Any], Folder, dict[str, Any]]:
    """Returns the run itself or its best repeat, the folder of the model, and the description.

    Raises: RunFolderError if there is no trained model (yet); InvalidInput for an unknown member.
    """
    best = run.best
    if member is not None:
        member_row(run, member)
    folder = best.folder / MODEL
    if not folder.exists(DESCRIPTION):
        raise RunFolderError(_no_model(run, best))
    if member is not None:
        folder = member_folder(run, member)
    described = read_described(folder, DESCRIPTION)
    if "input" not in described:  # a run of an earlier version
        described |= input_of(best.data)
    return best, folder, described


def _no_model(run: Run[Any], best: Run[Any]) -> str:
    if best.config.data.name.startswith(PREFIX):
        return (
            f"{run.folder} contains no network, since it searched a table of trained architectures without training. "
            "Search the space of these architectures to train a network"
        )
    if run.ended:
        if reason := RunSummary.read(best.folder).reason:
            return f"{run.folder} contains no trained network: {reason}"
        return (
            f"{run.folder} contains no trained network, since {run.config.method} keeps none. Pass the run of a search "
            "that trains a network"
        )
    if is_locked_elsewhere(run.folder):
        advice = f"It is running; follow it with: {command('watch', run.folder)}"
    else:
        advice = f"Finish it with: {command('resume', run.folder)}"
    return f"{run.folder} contains no trained network yet. {advice}"


def member_folder(run: Run[Any], member: int) -> Folder:
    """Returns the folder of the model of a fully trained member; with several repeats, in the set of the best repeat.

    Args:
        member: number, from 1, of the member in `run.pareto`.

    Raises: InvalidInput for an unknown member; RunFolderError if the member was not trained.
    """
    row = member_row(run, member)
    if (place := row.get("model")) is not None:
        folder = run.best.folder
        for name in place.split("/"):
            folder = folder / name
        return folder
    if (reason := row.get("failure")) is not None:
        raise RunFolderError(
            f"the final training of member {member} of {run.folder} failed: {reason}. Choose another member"
        )
    raise RunFolderError(
        f"member {member} of {run.folder} has no final training yet. Train all members first, with: "
        f"{command('resume', run.folder, '--final-members', 'all')}"
    )


def member_row(run: Run[Any], member: int) -> dict[str, Any]:
    """Returns the row of a member in `run.pareto`, without missing values.

    Raises: InvalidInput for an unknown member; RunFolderError if the set is not written yet.
    """
    if getattr(run.config, "final_members", None) is None:
        raise InvalidInput(
            f"expected a run with a Pareto set for member {member}, got {run.folder} with one objective and one model. "
            "Leave the member out"
        )
    front = front_of(run.best.folder)
    if front.empty:
        raise RunFolderError(f"{run.folder} has no Pareto set yet. Finish it with: {command('resume', run.folder)}")
    if not 1 <= member <= len(front):
        raise InvalidInput(
            f"expected a member from 1 to {len(front)} of {run.folder}, got {member}. List the members with: "
            f"{command('show', run.folder)}"
        )
    return {str(name): value for name, value in front.iloc[member - 1].dropna().items()}
