"""The module of an exported folder, built again by archray, of its own layers: to be trained on, or taken apart.

`load_model.py` of an export imports this file by its name.
"""

import io
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from archray.files import plain_name
from archray.trainables.checkpoint import load_fitting, load_trained_weights
from archray.trainables.ensembles.ensemble import DESCRIPTION, load_ensemble
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.feature_maps.classifier import Classifier, load_classifier
from archray.trainables.feature_maps.fourier_features import FourierNetwork
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces.feature_map import Fourier

CARD, STATE_DICT = "model.json", "state_dict.pt"
NETWORK, FEATURE_MAP = "network", "feature map"  # kinds of models, beside ensembles


def build_exported(folder: str | Path, state: dict[str, Tensor] | None = None) -> nn.Module | Classifier:
    """The model of an exported folder, on the CPU, in evaluation mode; of a feature map over texts its classifier.

    state: the weights, instead of those in `state_dict.pt`. Raises: FileNotFoundError if there are none.
    """
    here = Path(folder)
    card = json.loads((here / CARD).read_text(encoding="utf-8"))
    if card["kind"] == FEATURE_MAP and card["input"] is None:
        return load_classifier(here)
    space = _space(here, card)
    if card["kind"] == ENSEMBLE:
        weights = (here / STATE_DICT).read_bytes() if state is None else _saved(state)
        files = {DESCRIPTION: json.dumps(card).encode(), STATE_DICT: weights}
        return load_ensemble(files.__getitem__, space if card["space_file"] else None)
    if state is None:
        classes = [] if card["kind"] == FEATURE_MAP else [card["num_classes"]]
        state = load_trained_weights(here / STATE_DICT, str(here / STATE_DICT), classes, str(here / CARD))
    model: nn.Module
    if card["kind"] == FEATURE_MAP:
        unit_length = Fourier().configuration(card["architecture"])["preprocess"] == "normalise"
        inputs, dimension = state["basis"].shape
        model = FourierNetwork(inputs, dimension, len(state["intercept"]), unit_length=unit_length)
    else:
        model = build(
            space,
            card["architecture"],
            network=NetworkSettings(**card["network"]),
            in_channels=card["in_channels"],
            num_classes=card["num_classes"],
            seed=0,
        )
    load_fitting(model, state, f"{here / STATE_DICT} to hold the weights of {card['architecture']}")
    return model.eval()


def _space(here: Path, card: dict[str, Any]) -> str:
    """The space, a user's own from the copy of its file; of a reference without one, a module."""
    space: str = card["members"][0]["space"] if card["kind"] == ENSEMBLE else card["space"]
    return f"{here / plain_name(card['space_file'])}:{space.rpartition(':')[2]}" if card["space_file"] else space


def _saved(state: dict[str, Tensor]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
