"""Trained models rebuilt from archray's layers. `load_model.py` of an export imports this file."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from archray.file_modules import check_copy
from archray.files import Folder
from archray.trainables.checkpoint import load_fitting, load_trained_weights
from archray.trainables.ensembles.ensemble import DESCRIPTION, load_ensemble
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.feature_maps.classifier import Classifier, load_classifier
from archray.trainables.feature_maps.fourier_features import FourierNetwork
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import Space
from archray.trainables.spaces.feature_map import Fourier

MODEL_CARD, STATE_DICT = "model.json", "state_dict.pt"
SPACE = "space"  # folder of an export with the file of a custom space; exports of older versions have it next to others
NETWORK, FEATURE_MAP = "network", "feature map"  # kinds of models, in addition to ensembles


def rebuilt_network(space: Space | str, card: dict[str, Any], state: dict[str, Tensor], place: str) -> nn.Module:
    """Builds the network of a description with the weights `state` of the file `place`, in evaluation mode."""
    shape: dict[str, Any] = {name: card[name] for name in ("in_channels", "num_classes")}
    network = build(
        space, card["architecture"], network=NetworkSettings(**card["network"] | {"weights": None}), **shape, seed=0
    )
    load_fitting(network, state, f"{place} to hold the weights of {card['architecture']}")
    return network.eval()


def build_exported(folder: str | Path, state: dict[str, Tensor] | None = None) -> nn.Module | Classifier:
    """Builds the model of an exported folder on the CPU in evaluation mode, or the classifier of a feature map.

    Args:
        state: weights to use instead of `state_dict.pt`.

    Raises: FileNotFoundError if the file is missing.
    """
    here = Path(folder)
    card = json.loads((here / MODEL_CARD).read_text(encoding="utf-8"))
    if card["kind"] == FEATURE_MAP and card["input"] is None:
        return load_classifier(here)
    space: str = card["members"][0]["space"] if card["kind"] == ENSEMBLE else card["space"]
    if card["space_file"]:
        for name in space_files(card):
            Folder(here).local_path(name)  # raises an error for a name that leads out of the export
        file = here / card["space_file"]
        check_copy(file, [file.name, *card.get("space_modules", ())])
        space = f"{file}:{space.rpartition(':')[2]}"
    if card["kind"] == ENSEMBLE:
        weights = (here / STATE_DICT).read_bytes() if state is None else saved(state)
        files = {DESCRIPTION: json.dumps(card).encode(), STATE_DICT: weights}
        return load_ensemble(files.__getitem__, space if card["space_file"] else None)
    place = str(here / STATE_DICT)
    if state is None:
        classes = [] if card["kind"] == FEATURE_MAP else [card["num_classes"]]
        state = load_trained_weights(here / STATE_DICT, place, classes, str(here / MODEL_CARD))
    if card["kind"] != FEATURE_MAP:
        return rebuilt_network(space, card, state, place)
    unit_length = Fourier().configuration(card["architecture"])["preprocess"] == "normalize"
    inputs, dimension = state["basis"].shape
    model = FourierNetwork(inputs, dimension, len(state["intercept"]), unit_length=unit_length)
    load_fitting(model, state, f"{place} to hold the weights of {card['architecture']}")
    return model.eval()


def space_files(card: Mapping[str, Any]) -> list[str]:
    """Returns the names in an export of the file of a custom space and of its modules; empty for archray's spaces."""
    file = card["space_file"]
    return [] if file is None else [file, *(f"{SPACE}/{name}" for name in card.get("space_modules", ()))]


def saved(state: dict[str, Any]) -> bytes:
    """Returns the content of a file by `torch.save`."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
