"""Trained networks, one or an ensemble, as files that load without the run's folder."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from archray.files import Folder
from archray.platform.run.run import Run
from archray.trainables.checkpoint import read_state
from archray.trainables.data import load_images
from archray.trainables.ensembles.ensemble import load_ensemble
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.tune.standalone_trainable import load_trained

STATE_DICT, PROGRAM = "state_dict.pt", "program.pt2"
DESCRIPTION, LOADER = "architecture.json", "load_model.py"

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
            "validation_accuracy": state["result"]["validation_accuracy"],
            "test_accuracy": state["result"]["test_accuracy"],
            "data": run.config.data.name,
        },
    )


def load_network(folder: Folder, run: Run[Any]) -> torch.nn.Module:
    """The network that `write_network` wrote, on the CPU, in evaluation mode."""
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


def export_network(source: Folder, to: Folder, run: Run[Any], described: dict[str, Any]) -> None:
    """Writes state_dict, a loader and a `torch.export` program. described: what `architecture.json` says."""
    to.copy_from(source, [STATE_DICT])
    to.write_bytes(LOADER, _LOADER.encode())
    program = _network_program(load_network(source, run), described["in_channels"], described["image_size"])
    to.write_bytes(PROGRAM, program)


def load_members(folder: Folder, run: Run[Any]) -> torch.nn.Module:
    """The ensemble of the trained members, on the CPU, in evaluation mode."""
    return load_ensemble(folder.read_bytes, run.space)


def export_ensemble(source: Folder, to: Folder, run: Run[Any], described: dict[str, Any]) -> None:
    """Writes state_dict, a loader and a `torch.export` program. described: what `architecture.json` says."""
    to.copy_from(source, [STATE_DICT])
    to.write_bytes(LOADER, _ENSEMBLE_LOADER.encode())
    channels = described["members"][0]["in_channels"]
    to.write_bytes(PROGRAM, _network_program(load_members(source, run), channels, described["image_size"]))


def _network_program(network: torch.nn.Module, channels: int, size: int) -> bytes:
    """A network of images (n, channels, size, size), for any n, as a `torch.export` program."""
    images = torch.zeros(2, channels, size, size)
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(network, (images,), dynamic_shapes=({0: batch},))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()
