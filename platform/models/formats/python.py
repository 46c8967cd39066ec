"""Plain PyTorch source of the found model: `network.py`, and its weights in `state_dict.pt`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from archray.platform.models.export_format import (
    SOURCE,
    STATE_DICT,
    ExportFormat,
    Portable,
    Predict,
    no_extra,
    prediction_of,
)
from archray.platform.models.formats.state_dict import write as write_weights
from archray.trainables.checkpoint import load_trained_weights

LOADER = '''
def load_python():
    """A torch.nn.Module of the classes in network.py, in evaluation mode. Needs torch."""
    import runpy

    import torch

    model = runpy.run_path(str(here / "network.py"))["build"]()
    model.load_state_dict(torch.load(here / "state_dict.pt", weights_only=True))
    return model
'''


def write(model: Portable) -> dict[str, bytes]:
    """`network.py` and `state_dict.pt`. Raises: InvalidInput for a space whose networks have no plain source."""
    return {SOURCE: model.source(), **write_weights(model)}


def read(folder: Path, card: dict[str, Any]) -> Predict:
    """It runs the file, which may be the user's."""
    model = runpy.run_path(str(folder / SOURCE))["build"]()
    model.load_state_dict(load_trained_weights(folder / STATE_DICT, str(folder / STATE_DICT)))
    return prediction_of(model)


PYTHON = ExportFormat(
    check=no_extra,
    write=write,
    function="load_python",
    loader=LOADER,
    needs="torch",
    holds="the model's source, one file of plain PyTorch, and its weights",
    open=read,
    code=SOURCE,
)
