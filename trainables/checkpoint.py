"""Checkpoints: one file of tensors and plain data, written whole or not at all, read without running any code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from archray.files import whole_file

STATE_FILE = "state.pt"


def write_state(folder: str | Path, state: dict[str, Any]) -> Path:
    """Writes `state` to `folder/state.pt`, whole: a kill leaves the old one or none.

    state: tensors, numbers, strings, None, and lists and dicts of these; nothing else could be read back.
    """
    path = Path(folder) / STATE_FILE
    with whole_file(path) as stream:
        torch.save(state, stream)
    return path


def read_state(folder: str | Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """What `write_state` wrote, its tensors on `device`. Raises: FileNotFoundError if `folder` holds no state."""
    state: dict[str, Any] = torch.load(Path(folder) / STATE_FILE, map_location=device, weights_only=True)
    return state
