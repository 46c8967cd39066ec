"""What a format of an export is: the files that it writes, how they are loaded, and their model to predict with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.platform.models.network_source import ensemble_file, fourier_file, network_file
from archray.registry import CatalogueRegistry
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.feature_maps.fourier_network import FourierNetwork

CARD = "model.json"
STATE_DICT = "state_dict.pt"
SOURCE = "network.py"
NETWORK, FEATURE_MAP = "network", "feature map"
RANDOM = (
    "expected a model that gives the same of the same images, got one of mc-droppath, which drops paths at random in "
    "every pass; choose torch-export, state-dict or safetensors"
)

Predict = Callable[[Tensor], Tensor]  # images (n, C, H, W), normalised -> what the model gives, (n, classes)


@dataclass(frozen=True)
class Portable:
    """A trained model on its way out.

    Attributes:
        card: what `model.json` says of it so far.
        module: images (n, C, H, W), normalised, to outputs (n, classes); in evaluation mode, on the CPU. None: a
            classifier of texts, which is no module.
        space: resolves the space here.
        classifier: of texts, the content of the run's `state.pt`.
    """

    card: dict[str, Any]
    module: nn.Module | None
    space: str
    classifier: bytes | None = None

    @property
    def network(self) -> nn.Module:
        """Raises: InvalidInput for a classifier of texts."""
        if self.module is None:
            raise InvalidInput(
                "expected a model of images, got a feature map over texts: its tokens and hashes of strings are no "
                "graph of tensors; export it without --format, or as state-dict"
            )
        return self.module

    @property
    def image_shape(self) -> tuple[int, int, int]:
        form = self.card["input"]
        return form["channels"], form["size"], form["size"]

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers to predict."""
        return any(member["drop_path"] is not None for member in self.card.get("members", ()))

    def fixed(self) -> nn.Module:
        """The module. Raises: InvalidInput also if it draws random numbers."""
        if self.draws:
            raise InvalidInput(RANDOM)
        return self.network

    def source(self) -> bytes:
        """The content of `network.py`. Raises: InvalidInput for a space whose networks have no plain source."""
        card, title = self.card, _title(self.card)
        if self.draws:
            raise InvalidInput(RANDOM)
        if isinstance(self.network, FourierNetwork):
            return fourier_file(title, self.network).encode()
        if card["kind"] == ENSEMBLE:
            return ensemble_file(title, card["members"], card["average"], self.space).encode()
        return network_file(title, card, self.space).encode()


def _title(card: dict[str, Any]) -> str:
    """The docstring of `network.py`."""
    form = card["input"]
    shape = f"(n, {form['channels']}, {form['size']}, {form['size']})"
    lines = [f"The {card['kind']} that archray {card['archray']} found, as plain PyTorch.", ""]
    lines += [f"Images {shape} -> {card['output']} (n, {card['num_classes']})."]
    if form["mean"] is not None:
        mean, std = (", ".join(f"{value:.6g}" for value in form[name]) for name in ("mean", "std"))
        scale = "Images in 0..1" if form["unit"] else "Images on the scale of the data"
        lines += [f"{scale} less {mean}, divided by {std}, per channel."]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class ExportFormat:
    """A format.

    Attributes:
        check: raises MissingExtra where packages are missing; imports none of them.
        write: the contents of its files by name. Raises: InvalidInput for a model that it cannot hold.
        loader: the text of a function of `load_model.py`, and `function` its name.
        needs: what the function imports, for the README.
        holds: what its files are, for the README.
        open: the model of an exported folder, given the folder and its `model.json`.
        code: of its files, that which `open` executes.
    """

    check: Callable[[], None]
    write: Callable[[Portable], dict[str, bytes]]
    function: str
    loader: str
    needs: str
    holds: str
    open: Callable[[Path, dict[str, Any]], Predict]
    code: str | None = None


FORMATS: CatalogueRegistry[ExportFormat] = CatalogueRegistry("format")
for _name, _summary, _entry in (
    ("torch-export", "torch's exported program: runs with torch alone", "torch_export:TORCH_EXPORT"),
    ("state-dict", "the weights as torch saves them, for archray's own module", "state_dict:STATE_DICT_FORMAT"),
    ("onnx", "a graph for ONNX Runtime, on many devices", "onnx:ONNX"),
    ("safetensors", "the weights by name, without any code", "safetensors:SAFETENSORS"),
    ("python", "plain PyTorch source, one file, with its weights", "python:PYTHON"),
):
    FORMATS.declare(_name, _summary, f"archray.platform.models.formats.{_entry}")


def no_extra() -> None:
    """Of a format that needs torch alone."""


def prediction_of(module: nn.Module | Callable[[Tensor], Tensor]) -> Predict:
    """A module as a function of images, without gradients."""

    def predict(images: Tensor) -> Tensor:
        with torch.no_grad():
            return module(images)

    return predict
