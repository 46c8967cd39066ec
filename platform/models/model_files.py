"""What a run trained, a network, an ensemble or a feature map's classifier: as files, and read back.

The description beside the files says what kind it is.
"""

import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, BaseModel, Field

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.models.rebuilt_model import FEATURE_MAP, STATE_DICT
from archray.platform.run.heartbeat import is_locked_elsewhere
from archray.platform.run.layout import MODEL, command
from archray.platform.run.run import Run
from archray.platform.run.run_summary import RunSummary, front_of
from archray.plurals import count
from archray.trainables.checkpoint import STATE_FILE, load_fitting, load_trained_weights, read_state
from archray.trainables.data import DataSettings, load_data
from archray.trainables.data.image_form import ImageForm
from archray.trainables.data.raw import TextDataset
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.ensembles.ensemble import Member, Output, load_ensemble
from archray.trainables.ensembles.measures import Averaged
from archray.trainables.feature_maps.classifier import Classifier, load_classifier
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.spaces.table_space import PREFIX
from archray.trainables.tune.standalone_trainable import load_trained

DESCRIPTION = "architecture.json"


def _image_form(document: dict[str, Any] | None) -> dict[str, Any] | None:
    """Checks an ImageForm: an export writes its numbers into source, and must not write other text."""
    if document is not None:
        ImageForm.model_validate(document)
    return document


class Described(BaseModel):
    """What the description of a model says, of any kind: `architecture.json` beside it, `model.json` of an export."""

    data: str
    test_accuracy: float | None
    input: Annotated[dict[str, Any] | None, AfterValidator(_image_form)] = None
    classes: list[str] = []


class DescribedNetwork(Described):
    """Of a network."""

    kind: Literal["network"] = "network"
    architecture: str
    space: str
    network: NetworkSettings
    in_channels: int = Field(ge=1)
    num_classes: int = Field(ge=1)


class DescribedEnsemble(Described):
    """Of an ensemble."""

    kind: Literal["ensemble"]
    members: list[Member] = Field(min_length=1)
    average: Averaged
    output: Output


class DescribedMap(Described):
    """Of a feature map."""

    kind: Literal["feature map"]
    architecture: str


_KINDS = {FEATURE_MAP: DescribedMap, ENSEMBLE: DescribedEnsemble}


def read_described(folder: Folder, name: str) -> dict[str, Any]:
    """What the description of a model says, checked by its kind. Raises: DamagedFile."""
    kind = folder.read_json(name).get("kind")
    return dict(folder.read_json(name, _KINDS.get(str(kind), DescribedNetwork)))


def input_of(data: DataSettings) -> dict[str, Any]:
    """What a description says of the images that a model takes, `input` (an ImageForm; None: texts), and of `classes`.

    `image_size` and `num_classes` as well.
    """
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
    """Writes the network of a trial's checkpoint: its state_dict, and what is needed to build it again."""
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
    """Writes the classifier of a trial's checkpoint, and what it is."""
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
    """The trained network of a run, or its ensemble, on the CPU, in evaluation mode, or its feature map's classifier.

    Of several repeats that of the best on validation. member: of a run that ends with a set, its number from 1.

    Raises: RunFolderError if there is none (yet); InvalidInput if there is no such member, or the weights are others.
    """
    run, folder, described = trained(run, member)
    if described.get("kind") == FEATURE_MAP:
        with tempfile.TemporaryDirectory() as scratch:
            Folder(scratch).copy_from(folder, [STATE_FILE])
            return load_classifier(scratch)
    if described.get("kind") == ENSEMBLE:
        return load_ensemble(folder.read_bytes, run.space)
    place, classes = str(folder / STATE_DICT), described["num_classes"]
    state = load_trained_weights(folder.read_bytes(STATE_DICT), place, [classes], str(folder / DESCRIPTION))
    network = build(
        run.space,
        described["architecture"],
        network=NetworkSettings(**described["network"]),
        in_channels=described["in_channels"],
        num_classes=classes,
        seed=0,
    )
    load_fitting(network, state, f"{place} to hold the weights of {described['architecture']}")
    return network.eval()


def trained(run: Run[Any], member: int | None = None) -> tuple[Run[Any], Folder, dict[str, Any]]:
    """The run itself, or of several repeats the best, where its model lies, and what that is.

    Raises: RunFolderError if there is no trained model (yet); InvalidInput if there is no such member.
    """
    best = run.best
    if member is not None:
        member_row(run, member)
    if not (best.folder / MODEL).exists(DESCRIPTION) and best.config.data.name.startswith(PREFIX):
        raise RunFolderError(
            f"{run.folder} holds no network: it searched a table of trained architectures, and trained none itself; "
            "search the space that they are of for one that can be written"
        )
    if not (best.folder / MODEL).exists(DESCRIPTION) and run.ended:
        if reason := RunSummary.read(best.folder).reason:
            raise RunFolderError(f"{run.folder} holds no trained network: {reason}")
        raise RunFolderError(
            f"{run.folder} has ended and holds no trained network: {run.config.method} trains none to keep; name the "
            "run of a search that does"
        )
    if not (best.folder / MODEL).exists(DESCRIPTION):
        running = is_locked_elsewhere(run.folder)
        what = "it is running; follow it" if running else "finish it"
        raise RunFolderError(
            f"{run.folder} holds no trained network yet; {what} with: "
            f"{command('watch' if running else 'resume', run.folder)}"
        )
    folder = best.folder / MODEL if member is None else member_folder(run, member)
    described = read_described(folder, DESCRIPTION)
    if "input" not in described:  # of a version before
        described |= input_of(best.data)
    return best, folder, described


def member_folder(run: Run[Any], member: int) -> Folder:
    """The folder of the model of a member that was trained in full; of several repeats, of the best one's set.

    member: its number, from 1, as in `run.pareto`.
    Raises: InvalidInput if the run has no such member; RunFolderError if that was not trained.
    """
    row = member_row(run, member)
    if (place := row.get("model")) is not None:
        folder = run.best.folder
        for name in place.split("/"):
            folder = folder / name
        return folder
    if (reason := row.get("failure")) is not None:
        raise RunFolderError(f"the final training of member {member} of {run.folder} failed: {reason}; choose another")
    raise RunFolderError(
        f"member {member} of {run.folder} has not had the final training; train all members, then export it: "
        f"{command('resume', run.folder, '--final-members', 'all')}"
    )


def member_row(run: Run[Any], member: int) -> dict[str, Any]:
    """What `run.pareto` says of a member, without what is missing.

    Raises: InvalidInput if there is none; RunFolderError if the set is not written yet.
    """
    if getattr(run.config, "final_members", None) is None:
        raise InvalidInput(
            f"expected a run that ends with a set, for member {member}, got {run.folder}, which searched for one "
            "objective and has one model; leave the member out"
        )
    front = front_of(run.best.folder)
    if front.empty:
        raise RunFolderError(f"{run.folder} has no set yet; finish it with: {command('resume', run.folder)}")
    if not 1 <= member <= len(front):
        raise InvalidInput(
            f"expected a member from 1 to {len(front)}, as {run.folder} ended with {count(len(front), 'member')}, got "
            f"{member}; list them with: {command('show', run.folder)}"
        )
    return {str(name): value for name, value in front.iloc[member - 1].dropna().items()}
