"""The weights as torch saves them, for archray's own module; of a feature map over texts, all of its classifier."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from archray.errors import InvalidInput
from archray.platform.models.export_format import (
    STATE_DICT,
    ExportFormat,
    Portable,
    Predict,
    no_extra,
    prediction_of,
)
from archray.platform.models.rebuilt_model import build_exported
from archray.trainables.checkpoint import STATE_FILE
from archray.trainables.feature_maps.classifier import Classifier

LOADER = '''
def build_model():
    """archray's own module, in evaluation mode: to be trained on, or taken apart. Needs archray."""
    from archray.platform.models.rebuilt_model import build_exported

    return build_exported(here)
'''


def write(model: Portable) -> dict[str, bytes]:
    """`state_dict.pt`, or, of a classifier of texts, `state.pt`."""
    if model.classifier is not None:
        return {STATE_FILE: model.classifier}
    buffer = io.BytesIO()
    torch.save(model.network.state_dict(), buffer)
    return {STATE_DICT: buffer.getvalue()}


def read(folder: Path, card: dict[str, Any]) -> Predict:
    """archray's module. Raises: InvalidInput for a classifier of texts."""
    model = build_exported(folder)
    if isinstance(model, Classifier):
        raise InvalidInput(f"expected a model of images, got one of texts in {folder}; give its load_model() texts")
    return prediction_of(model)


STATE_DICT_FORMAT = ExportFormat(
    check=no_extra,
    write=write,
    function="build_model",
    loader=LOADER,
    needs="archray",
    holds="the weights by the names of archray's layers, as torch saves them",
    open=read,
)
