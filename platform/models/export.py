"""What a run trained (a network, an ensemble, a feature map's classifier), as files that load without its folder."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from archray.errors import RunFolderError
from archray.files import Folder
from archray.platform.models.feature_map_model import DESCRIPTION, KIND, LOADER, export_classifier, load_written
from archray.platform.run.run import CODE, Run, refuse_existing
from archray.trainables.checkpoint import read_state
from archray.trainables.data import load_images
from archray.trainables.ensembles.saved import KIND as ENSEMBLE_KIND
from archray.trainables.ensembles.saved import load_ensemble
from archray.trainables.feature_maps.classifier import Classifier
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.tune.trained_network import load_trained

STATE_DICT, PROGRAM = "state_dict.pt", "program.pt2"

_LOADER = '''"""Loads the exported network; run as a script, prints it. Needs archray; program.pt2 needs only torch."""

import json
from pathlib import Path

import torch

from archray.trainables.nets import NetworkSettings, build

here = Path(__file__).resolve().parent


def load_model() -> torch.nn.Module:
    """The trained network on the CPU, in evaluation mode: images (n, C, H, W), normalised -> logits (n, classes)."""
    described = json.loads((here / "architecture.json").read_text())
    space = described["space"]
    if described["space_file"]:
        space = f"{here / described['space_file']}:{space.partition(':')[2]}"
    model = build(
        space,
        described["architecture"],
        network=NetworkSettings(**described["network"]),
        in_channels=described["in_channels"],
        num_classes=described["num_classes"],
        seed=0,
    )
    model.load_state_dict(torch.load(here / "state_dict.pt", weights_only=True))
    return model.eval()


if __name__ == "__main__":
    print(load_model())
    # without archray: torch.export.load("program.pt2").module()(images)
'''


_ENSEMBLE_LOADER = '''"""Loads the exported ensemble; run as a script, prints it. program.pt2 needs only torch."""

import json
from pathlib import Path

import torch

from archray.trainables.ensembles import load_ensemble

here = Path(__file__).resolve().parent


def load_model() -> torch.nn.Module:
    """The ensemble on the CPU, in evaluation mode: images (n, C, H, W), normalised -> probabilities (n, classes)."""
    described = json.loads((here / "architecture.json").read_text())
    space = None
    if described["space_file"]:
        space = f"{here / described['space_file']}:{described['members'][0]['space'].partition(':')[2]}"
    return load_ensemble(here, space)


if __name__ == "__main__":
    print(load_model())
    # without archray: torch.export.load("program.pt2").module()(images)
'''


def write_model(folder: Folder, checkpoint: Path, run: Run) -> None:
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
            "validation_accuracy": state["result"]["validation_accuracy"],
            "test_accuracy": state["result"]["test_accuracy"],
            "data": run.config.data.name,
        },
    )


def load_model(run: Run) -> torch.nn.Module | Classifier:
    """The trained network of a run, or its ensemble, on the CPU, in evaluation mode, or its feature map's classifier.

    Raises: RunFolderError if there is none yet.
    """
    folder = _model_folder(run)
    return load_written(folder) if _is_classifier(folder) else _load(folder, run)


def export_model(run: Run, to: Folder) -> list[str]:
    """Writes state_dict, description, a loader and a `torch.export` program; returns the names of the files.

    Of a feature map there is no program, and the state says all that its classifier needs.

    Raises: RunFolderError if the run has no trained network yet, or `to` is not empty.
    """
    source = _model_folder(run)
    refuse_existing(to)
    if _is_classifier(source):
        export_classifier(source, to)
        return to.files()
    described = source.read_json(DESCRIPTION)
    reference = run.manifest["references"].get("space")
    if reference is not None:
        described["space_file"] = reference["file"]
        to.copy_from(run.folder / CODE / "space", [reference["file"]])
    to.copy_from(source, [STATE_DICT])
    to.write_json(DESCRIPTION, described)
    to.write_bytes(LOADER, (_ENSEMBLE_LOADER if _is_ensemble(source) else _LOADER).encode())
    to.write_bytes(PROGRAM, _program(_load(source, run), described))
    return to.files()


def _model_folder(run: Run) -> Folder:
    folder = run.folder / "model"
    if not folder.exists(DESCRIPTION):
        raise RunFolderError(f"{run.folder} holds no trained network yet; finish it with 'archray resume {run.folder}'")
    return folder


def _is_classifier(folder: Folder) -> bool:
    return folder.read_json(DESCRIPTION).get("kind") == KIND


def _is_ensemble(folder: Folder) -> bool:
    return folder.read_json(DESCRIPTION).get("kind") == ENSEMBLE_KIND


def _load(folder: Folder, run: Run) -> torch.nn.Module:
    if _is_ensemble(folder):
        return load_ensemble(folder.read_bytes, run.space)
    described = folder.read_json(DESCRIPTION)
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


def _program(network: torch.nn.Module, described: dict[str, Any]) -> bytes:
    """The network, or the ensemble, as a `torch.export` program for any batch size."""
    size = described["image_size"]
    channels = described["members"][0]["in_channels"] if "members" in described else described["in_channels"]
    images = torch.zeros(2, channels, size, size)
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(network, (images,), dynamic_shapes=({0: batch},))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()
