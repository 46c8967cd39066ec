"""A trained ensemble, as files that load without the run's folder."""

from __future__ import annotations

from typing import Any

import torch

from archray.files import Folder
from archray.platform.models.program import LOADER, PROGRAM, STATE_DICT, network_program
from archray.platform.run.run import Run
from archray.trainables.ensembles.saved import load_ensemble

_LOADER = '''"""Loads the exported ensemble; run as a script, prints it. program.pt2 needs only torch."""

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


def load_members(folder: Folder, run: Run[Any]) -> torch.nn.Module:
    """The ensemble of the trained members, on the CPU, in evaluation mode."""
    return load_ensemble(folder.read_bytes, run.space)


def export_ensemble(source: Folder, to: Folder, run: Run[Any], described: dict[str, Any]) -> None:
    """Writes state_dict, a loader and a `torch.export` program. described: what `architecture.json` says."""
    to.copy_from(source, [STATE_DICT])
    to.write_bytes(LOADER, _LOADER.encode())
    channels = described["members"][0]["in_channels"]
    to.write_bytes(PROGRAM, network_program(load_members(source, run), channels, described["image_size"]))
