"""What a run trained, a network, an ensemble or a feature map's classifier: as files, read back, and exported.

The description beside the files says what kind it is.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import torch

from archray.errors import RunFolderError
from archray.files import Folder
from archray.platform.models.exported_loader import CLASSIFIER_LOADER, ENSEMBLE_LOADER, NETWORK_LOADER
from archray.platform.run.layout import CODE, MODEL
from archray.platform.run.run import Run, refuse_existing
from archray.trainables.checkpoint import STATE_FILE, read_state
from archray.trainables.data import load_images
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.ensembles.ensemble import load_ensemble
from archray.trainables.feature_maps.classifier import Classifier, load_classifier
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.spaces.table_space import PREFIX
from archray.trainables.tune.standalone_trainable import load_trained

STATE_DICT, DESCRIPTION = "state_dict.pt", "architecture.json"
FEATURE_MAP = "feature map"
LOADERS = {None: NETWORK_LOADER, ENSEMBLE: ENSEMBLE_LOADER, FEATURE_MAP: CLASSIFIER_LOADER}  # by kind


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
            "num_classes": state["num_classes"],
            "image_size": load_images(run.data).image_size,
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
            "data": run.config.data.name,
        },
    )


def load_model(run: Run[Any]) -> torch.nn.Module | Classifier:
    """The trained network of a run, or its ensemble, on the CPU, in evaluation mode, or its feature map's classifier.

    Of several repeats that of the best on validation.

    Raises: RunFolderError if there is none yet.
    """
    run, described = _trained(run)
    folder = run.folder / MODEL
    if described.get("kind") == FEATURE_MAP:
        with tempfile.TemporaryDirectory() as scratch:
            Folder(scratch).copy_from(folder, [STATE_FILE])
            return load_classifier(scratch)
    if described.get("kind") == ENSEMBLE:
        return load_ensemble(folder.read_bytes, run.space)
    network = build(
        run.space,
        described["architecture"],
        network=NetworkSettings(**described["network"]),
        in_channels=described["in_channels"],
        num_classes=described["num_classes"],
        seed=0,
    )
    network.load_state_dict(torch.load(io.BytesIO(folder.read_bytes(STATE_DICT)), weights_only=True))
    return network.eval()


def export_model(run: Run[Any], to: Folder) -> list[str]:
    """Writes state_dict, description, a loader and a `torch.export` program; returns the names of the files.

    Of a feature map there is no program, and the state says all that its classifier needs. Of several repeats the best
    on validation is exported. A program that drops paths draws them from torch's global generator.

    Raises: RunFolderError if the run has no trained network yet, or `to` is not empty.
    """
    run, described = _trained(run)
    refuse_existing(to, "--to")
    reference = run.manifest["references"].get("space")
    if reference is not None:
        described["space_file"] = reference["file"]
        to.copy_from(run.folder / CODE / "space", [reference["file"]])
    to.write_json(DESCRIPTION, described)
    kind = described.get("kind")
    to.copy_from(run.folder / MODEL, [STATE_FILE if kind == FEATURE_MAP else STATE_DICT])
    to.write_bytes("load_model.py", LOADERS[kind].encode())
    model = load_model(run)
    if isinstance(model, torch.nn.Module):
        channels = (described["members"][0] if kind == ENSEMBLE else described)["in_channels"]
        images = torch.zeros(2, channels, described["image_size"], described["image_size"])  # 2: n may be any number
        batch = torch.export.Dim("batch", min=1)
        program = torch.export.export(model, (images,), dynamic_shapes=({0: batch},))
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        to.write_bytes("program.pt2", buffer.getvalue())
    return to.files()


def _trained(run: Run[Any]) -> tuple[Run[Any], dict[str, Any]]:
    """The run itself, or of several repeats the best, and what its model is."""
    best = run.best
    if not (best.folder / MODEL).exists(DESCRIPTION) and best.config.data.name.startswith(PREFIX):
        raise RunFolderError(
            f"{run.folder} holds no network: it searched a table of trained architectures, and trained none itself; "
            "search the space that they are of for one that can be written"
        )
    if not (best.folder / MODEL).exists(DESCRIPTION):
        raise RunFolderError(f"{run.folder} holds no trained network yet; finish it with 'archray resume {run.folder}'")
    return best, (best.folder / MODEL).read_json(DESCRIPTION)
