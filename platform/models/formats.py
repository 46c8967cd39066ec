"""Formats of an export: their files, their loaders, and their predictions."""

import io
import runpy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput, MissingExtra, install_command
from archray.platform.models.network_source import ensemble_file, fourier_file, network_file
from archray.platform.models.rebuilt_model import STATE_DICT, build_exported, saved
from archray.registry import Registry
from archray.trainables.checkpoint import STATE_FILE, load_trained_weights
from archray.trainables.ensembles.ensemble import KIND as ENSEMBLE
from archray.trainables.feature_maps.classifier import Classifier
from archray.trainables.feature_maps.fourier_features import FourierNetwork
from archray.trainables.nets.exported_program import IMAGES, check_onnx, exported_program, onnx_graph

SOURCE = "network.py"
PROGRAM_FILE, ONNX_FILE, SAFETENSORS_FILE = "model.pt2", "model.onnx", "model.safetensors"

Predict = Callable[[Tensor], Tensor]  # normalized images (n, C, H, W) -> outputs (n, classes)


@dataclass(frozen=True)
class Portable:
    """A trained model to export.

    Attributes:
        card: entries of `model.json`, without the entries of formats.
        module: module from normalized images (n, C, H, W) to outputs (n, classes), in evaluation mode, on the CPU. None
            for a classifier of texts.
        space: name or reference of the space.
        classifier: content of the run's `state.pt`, for a classifier of texts.
    """

    card: dict[str, Any]
    module: nn.Module | None
    space: str
    classifier: bytes | None = None

    @property
    def network(self) -> nn.Module:
        """The network. Raises: InvalidInput for a classifier of texts."""
        if self.module is None:
            raise InvalidInput(
                "expected a model of images, got a feature map of texts, whose tokenization is not a graph of tensors. "
                "Export it without --format, or as state-dict"
            )
        return self.module

    @property
    def image_shape(self) -> tuple[int, int, int]:
        form = self.card["input"]
        return form["channels"], form["size"], form["size"]

    def fixed(self) -> nn.Module:
        """The network. Raises: InvalidInput also if it draws random numbers for predictions."""
        if any(member["drop_path"] is not None for member in self.card.get("members", ())):
            raise InvalidInput(
                "expected a deterministic model, got a model of mc-droppath, which drops random paths in every forward "
                "pass. Choose torch-export, state-dict or safetensors"
            )
        return self.network

    def source(self) -> bytes:
        """Returns the content of `network.py`. Raises: InvalidInput for a space whose networks have no plain source."""
        network, card, title = self.fixed(), self.card, _title(self.card)
        if isinstance(network, FourierNetwork):
            return fourier_file(title, network).encode()
        if card["kind"] == ENSEMBLE:
            return ensemble_file(title, card["members"], card["average"], self.space).encode()
        return network_file(title, card, self.space).encode()


def _title(card: dict[str, Any]) -> str:
    """Returns the docstring of `network.py`."""
    form = card["input"]
    shape = f"(n, {form['channels']}, {form['size']}, {form['size']})"
    lines = [f"The {card['kind']} that archray {card['archray']} found, as plain PyTorch.", ""]
    lines += [f"Images {shape} -> {card['output']} (n, {card['num_classes']})."]
    if form["mean"] is not None:
        mean, std = (", ".join(f"{value:.6g}" for value in form[name]) for name in ("mean", "std"))
        scale = "Images in 0..1" if form["unit"] else "Images on the scale of the data"
        lines += [f"{scale} minus {mean}, divided by {std}, per channel."]
    return "\n".join(lines) + "\n"


class ExportFormat(ABC):
    """An export format.

    Attributes:
        function, loader: name and text of a function in `load_model.py`.
        needs: packages that the function imports, for the README.
        holds: description of the files, for the README.
        code: file that `open` executes.
    """

    function: ClassVar[str]
    loader: ClassVar[str]
    needs: ClassVar[str]
    holds: ClassVar[str]
    code: ClassVar[str | None] = None

    def check(self) -> None:  # noqa: B027  # most formats need only torch
        """Checks packages without importing them. Raises: MissingExtra if packages are missing."""

    @abstractmethod
    def write(self, model: Portable) -> dict[str, bytes]:
        """Returns the contents of its files by name. Raises: InvalidInput for a model that it cannot represent."""

    @abstractmethod
    def open(self, folder: Path, card: dict[str, Any]) -> Predict:
        """Opens the model of an exported folder.

        Args:
            card: its `model.json`.
        """


FORMATS: Registry[ExportFormat] = Registry("format")


def prediction_of(module: nn.Module | Callable[[Tensor], Tensor]) -> Predict:
    """Converts a module to a function of images, without gradients."""

    def predict(images: Tensor) -> Tensor:
        with torch.no_grad():
            return module(images)

    return predict


class TorchExport(ExportFormat):
    """torch's exported program, which runs with torch only, without the model's classes."""

    function = "load_torch_export"
    loader = '''
def load_torch_export():
    """Load a torch.nn.Module on the CPU: normalized images (n, C, H, W) -> outputs (n, classes). Requires torch.

    The module is a program in evaluation mode; its layers do not have the names of archray's layers.
    """
    import torch

    model = torch.export.load(here / "model.pt2").module()
    model.eval = lambda: model  # it is already in evaluation mode; torch's method raises an error
    return model
'''
    needs = "torch"
    holds = "the forward pass as torch's exported program, with its weights"
    code = PROGRAM_FILE  # torch unpickles objects in it, and evaluates expressions of sizes

    def write(self, model: Portable) -> dict[str, bytes]:
        """Returns `model.pt2`. Dropped paths use torch's global generator."""
        buffer = io.BytesIO()
        torch.export.save(exported_program(model.network, model.image_shape), buffer)
        return {PROGRAM_FILE: buffer.getvalue()}

    def open(self, folder: Path, card: dict[str, Any]) -> Predict:
        return prediction_of(torch.export.load(folder / PROGRAM_FILE).module())


class StateDict(ExportFormat):
    """The weights as torch saves them, for archray's module, or the whole classifier of a feature map of texts."""

    function = "build_model"
    loader = '''
def build_model():
    """Build archray's module in evaluation mode, for further training or inspection. Requires archray."""
    from archray.platform.models.rebuilt_model import build_exported

    return build_exported(here)
'''
    needs = "archray"
    holds = "the weights by the names of archray's layers, as torch saves them"

    def write(self, model: Portable) -> dict[str, bytes]:
        """Returns `state_dict.pt`, or `state.pt` for a classifier of texts."""
        if model.classifier is not None:
            return {STATE_FILE: model.classifier}
        return {STATE_DICT: saved(model.network.state_dict())}

    def open(self, folder: Path, card: dict[str, Any]) -> Predict:
        """Opens the model. Raises: InvalidInput for a classifier of texts."""
        model = build_exported(folder)
        if isinstance(model, Classifier):
            raise InvalidInput(
                f"expected a model of images, got a model of texts in {folder}. Call its load_model() with texts"
            )
        return prediction_of(model)


class ONNX(ExportFormat):
    """A graph for ONNX Runtime, which does not need torch."""

    function = "load_onnx"
    loader = '''
def load_onnx(file="model.onnx"):
    """Load a function from normalized images (n, C, H, W), an array, to outputs (n, classes).

    Requires onnxruntime and numpy.
    """
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(str(here / file), providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"images": np.asarray(images, dtype=np.float32)})[0]
'''
    needs = "onnxruntime and numpy"
    holds = "the forward pass as an ONNX graph with its weights, for any number of images"

    def check(self) -> None:
        check_onnx()

    def write(self, model: Portable) -> dict[str, bytes]:
        """Returns `model.onnx`. Raises: InvalidInput for a model that draws random numbers."""
        return {ONNX_FILE: onnx_graph(model.fixed(), model.image_shape, model.card["output"].replace(" ", "_"))}

    def open(self, folder: Path, card: dict[str, Any]) -> Predict:
        return onnx_prediction((folder / ONNX_FILE).read_bytes())


def onnx_prediction(graph: bytes) -> Predict:
    """Returns a function that runs the graph by ONNX Runtime on the CPU. Raises: MissingExtra without the package."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(
            f"an .onnx file requires onnxruntime, which cannot be imported. Run {install_command('export')}"
        ) from error
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])

    def predict(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {IMAGES: images.numpy()})[0])

    return predict


class Safetensors(ExportFormat):
    """The weights by name in a file without code, and `network.py` if the model has a plain source."""

    function = "load_safetensors"
    loader = '''
def load_safetensors():
    """Load a torch.nn.Module in evaluation mode.

    Requires torch and safetensors, and also archray if there is no network.py.
    """
    import runpy

    from safetensors.torch import load_file

    weights = load_file(here / "model.safetensors")
    if not (here / "network.py").exists():
        from archray.platform.models.rebuilt_model import build_exported

        return build_exported(here, weights)
    model = runpy.run_path(str(here / "network.py"))["build"]()
    model.load_state_dict(weights)
    return model
'''
    needs = "torch and safetensors"
    holds = "the weights by name, without code"

    def check(self) -> None:
        if find_spec("safetensors") is None:
            raise MissingExtra(
                "the format safetensors requires safetensors, which cannot be imported. "
                f"Run {install_command('export')}"
            )

    def write(self, model: Portable) -> dict[str, bytes]:
        from safetensors.torch import save  # an optional dependency

        weights = {name: tensor.detach().contiguous().clone() for name, tensor in model.network.state_dict().items()}
        files = {SAFETENSORS_FILE: save(weights, metadata={"format": "pt"})}
        try:
            return files | {SOURCE: model.source()}
        except InvalidInput:  # archray builds the network
            return files

    def open(self, folder: Path, card: dict[str, Any]) -> Predict:
        self.check()
        from safetensors.torch import load_file  # an optional dependency

        model: Any = build_exported(folder, load_file(folder / SAFETENSORS_FILE))
        return prediction_of(model)


class PythonSource(ExportFormat):
    """Plain PyTorch source, one file, with its weights."""

    function = "load_python"
    loader = '''
def load_python():
    """Load a torch.nn.Module of the classes in network.py, in evaluation mode. Requires torch."""
    import runpy

    import torch

    model = runpy.run_path(str(here / "network.py"))["build"]()
    model.load_state_dict(torch.load(here / "state_dict.pt", weights_only=True))
    return model
'''
    needs = "torch"
    holds = "the model's source in one file of plain PyTorch, and its weights"
    code = SOURCE

    def write(self, model: Portable) -> dict[str, bytes]:
        """Returns `network.py` and `state_dict.pt`. Raises: InvalidInput for networks without a plain source."""
        return {SOURCE: model.source(), **FORMATS.get("state-dict").write(model)}

    def open(self, folder: Path, card: dict[str, Any]) -> Predict:
        model = runpy.run_path(str(folder / SOURCE))["build"]()
        model.load_state_dict(load_trained_weights(folder / STATE_DICT, str(folder / STATE_DICT)))
        return prediction_of(model)


FORMATS.register("torch-export", TorchExport())
FORMATS.register("state-dict", StateDict())
FORMATS.register("onnx", ONNX())
FORMATS.register("safetensors", Safetensors())
FORMATS.register("python", PythonSource())
