"""ONNX: a graph that ONNX Runtime runs, on many devices, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from archray.errors import MissingExtra
from archray.platform.models.export_format import ExportFormat, Portable, Predict
from archray.trainables.nets.exported_program import IMAGES, check_onnx, onnx_graph

FILE = "model.onnx"

LOADER = '''
def load_onnx(file="model.onnx"):
    """A function from images (n, C, H, W), an array, normalised, to outputs (n, classes). Needs onnxruntime, numpy."""
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(str(here / file), providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"images": np.asarray(images, dtype=np.float32)})[0]
'''


def write(model: Portable) -> dict[str, bytes]:
    """`model.onnx`. Raises: InvalidInput for a model that draws random numbers: they could not be repeated."""
    return {FILE: onnx_graph(model.fixed(), model.image_shape, model.card["output"].replace(" ", "_"))}


def read(folder: Path, card: dict[str, Any]) -> Predict:
    return onnx_prediction((folder / FILE).read_bytes())


def onnx_prediction(graph: bytes) -> Predict:
    """The graph run by ONNX Runtime on the CPU. Raises: MissingExtra without it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(
            "an .onnx file is run by onnxruntime, which cannot be imported; pip install 'archray[export]'"
        ) from error
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])

    def predict(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {IMAGES: images.numpy()})[0])

    return predict


ONNX = ExportFormat(
    check=check_onnx,
    write=write,
    function="load_onnx",
    loader=LOADER,
    needs="onnxruntime and numpy",
    holds="the forward pass as an ONNX graph with its weights, for any number of images",
    open=read,
)
