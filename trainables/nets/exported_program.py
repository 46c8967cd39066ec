"""A network as a graph without Python, of torch's or as ONNX, that takes any number of images at once."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from archray.errors import InvalidInput, MissingExtra

IMAGES, BATCH = "images", "batch"  # what the graph calls its input, and the axis whose length is left open
LEAST = 2  # images that are traced; with a single one torch would take the length for a constant
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def exported_program(network: nn.Module, image_shape: tuple[int, int, int]) -> torch.export.ExportedProgram:
    """The network's forward pass as torch's exported program, in the network's mode, for any number of images.

    image_shape: (C, H, W). Raises: InvalidInput if torch cannot trace it, as its forward asks for values of tensors.
    """
    images = torch.zeros(LEAST, *image_shape)
    try:
        return torch.export.export(network, (images,), dynamic_shapes=({0: torch.export.Dim(BATCH, min=1)},))
    except Exception as error:  # torch's tracer raises many classes
        raise _untraceable(network, error) from error


def onnx_graph(network: nn.Module, image_shape: tuple[int, int, int], output: str = "logits") -> bytes:
    """The network's forward pass as the content of an `.onnx` file, by torch's exporter. The network is on the CPU.

    Args:
        image_shape: (C, H, W); the graph's input `images` is (batch, C, H, W) float32, with any batch from 1.
        output: the name of the graph's output, (batch, classes).

    Raises: MissingExtra without onnx and onnxscript; InvalidInput if torch cannot trace the network.
    """
    check_onnx()
    images = torch.zeros(LEAST, *image_shape)
    try:
        names: Any = {"input_names": [IMAGES], "output_names": [output], "dynamic_shapes": ({0: BATCH},)}
        program = torch.onnx.export(network, (images,), dynamo=True, verbose=False, **names)
    except Exception as error:  # as above
        raise _untraceable(network, error) from error
    assert program is not None  # which it is of the exporter that is not dynamo's
    graph = program.model_proto
    for node in graph.graph.node:  # the origin in classes and files of this machine, half of a small graph
        node.ClearField("metadata_props")
    content: bytes = graph.SerializeToString()
    return content


def check_onnx() -> None:
    """Raises: MissingExtra, with the install command, without a package of ONNX. It imports none."""
    missing = [package for package in ONNX_PACKAGES if find_spec(package) is None]
    if missing:
        raise MissingExtra(
            f"ONNX needs {', '.join(ONNX_PACKAGES)}, and {', '.join(missing)} cannot be imported; "
            "install them with: pip install 'archray[export]'"
        )


def _untraceable(network: nn.Module, error: Exception) -> InvalidInput:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InvalidInput(
        f"torch cannot make a graph of {type(network).__name__} ({reason}); its forward must not ask for the values of "
        "tensors, nor for the number of images"
    )
