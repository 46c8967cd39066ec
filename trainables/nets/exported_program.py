"""A network as a graph without Python, in torch's format or as ONNX, for any number of images at once."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from archray.errors import InvalidInput, MissingExtra, install_command

IMAGES, BATCH = "images", "batch"  # names of the graph's input, and of the axis with a dynamic length
LEAST = 2  # images that are traced; with a single one torch would treat the length as a constant
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def exported_program(network: nn.Module, image_shape: tuple[int, int, int]) -> torch.export.ExportedProgram:
    """Exports the network's forward pass as a torch program, in the network's mode, for any number of images.

    Args:
        image_shape: (C, H, W).

    Raises: InvalidInput if torch cannot trace it, because its forward reads values of tensors.
    """
    images = torch.zeros(LEAST, *image_shape)
    try:
        return torch.export.export(network, (images,), dynamic_shapes=({0: torch.export.Dim(BATCH, min=1)},))
    except Exception as error:  # torch's tracer raises many classes
        raise _untraceable(network, error) from error


def onnx_graph(network: nn.Module, image_shape: tuple[int, int, int], output: str = "logits") -> bytes:
    """Exports the network's forward pass as the content of an `.onnx` file. The network is on the CPU.

    Args:
        image_shape: (C, H, W); the graph's input `images` is (batch, C, H, W) float32, with any batch from 1.
        output: Name of the graph's output, (batch, classes).

    Raises: MissingExtra without onnx and onnxscript; InvalidInput if torch cannot trace the network.
    """
    check_onnx()
    images = torch.zeros(LEAST, *image_shape)
    try:
        names: Any = {"input_names": [IMAGES], "output_names": [output], "dynamic_shapes": ({0: BATCH},)}
        program = torch.onnx.export(network, (images,), dynamo=True, verbose=False, **names)
    except Exception as error:  # as above
        raise _untraceable(network, error) from error
    assert program is not None  # only torch's old exporter returns None
    graph = program.model_proto
    for node in graph.graph.node:  # remove the origin in classes and files of this machine, half of a small graph
        node.ClearField("metadata_props")
    content: bytes = graph.SerializeToString()
    return content


def check_onnx() -> None:
    """Raises: MissingExtra, with the install command, without a package of ONNX. It imports none of them."""
    missing = [package for package in ONNX_PACKAGES if find_spec(package) is None]
    if missing:
        raise MissingExtra(
            f"expected {', '.join(ONNX_PACKAGES)} for ONNX, and Python cannot import {', '.join(missing)}. "
            f"Run {install_command('export')}"
        )


def _untraceable(network: nn.Module, error: Exception) -> InvalidInput:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InvalidInput(
        f"torch cannot trace {type(network).__name__} ({reason}); change its forward so that it reads neither the "
        "values of tensors nor the number of images"
    )
