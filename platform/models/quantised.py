"""An int8 ONNX graph by ONNX Runtime's static quantisation, and the accuracy that it costs."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from archray.errors import MissingExtra
from archray.platform.models.formats import onnx_prediction
from archray.trainables.data.dataset import Dataset, Split
from archray.trainables.nets.exported_program import IMAGES

FILE = "model-int8.onnx"
CALIBRATION = 512  # training images from which the ranges of activations are taken
BATCH = 64
# What is quantised: a normalisation that no convolution absorbs, and what follows the logits, stay float32.
QUANTISED = ("Conv", "Gemm", "MatMul", "Add", "Concat", "Relu", "MaxPool", "AveragePool", "GlobalAveragePool")

Predict = Callable[[torch.Tensor], torch.Tensor]


def quantise(graph: bytes, train: Split) -> bytes:
    """The graph with 8-bit weights, per channel, and activations; calibrated on at most CALIBRATION training images.

    Inputs and outputs stay float32. Raises: MissingExtra without onnxruntime's tools.
    """
    try:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise MissingExtra(
            f"int8 needs onnxruntime and onnx, which cannot be imported ({error}); pip install 'archray[export]'"
        ) from error
    batches = train.in_order(BATCH, slice(CALIBRATION))

    class Batches(CalibrationDataReader):
        def get_next(self) -> dict[str, Any] | None:
            batch = next(batches, None)
            return None if batch is None else {IMAGES: batch[0].cpu().numpy()}

    with tempfile.TemporaryDirectory() as scratch:
        given, prepared, quantised = (str(Path(scratch) / name) for name in ("a.onnx", "b.onnx", "c.onnx"))
        Path(given).write_bytes(graph)
        quant_pre_process(given, prepared, skip_symbolic_shape=True)  # folds normalisation into convolutions
        quantize_static(
            prepared,
            quantised,
            Batches(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=list(QUANTISED),
        )
        return Path(quantised).read_bytes()


def accuracy_of(predict: Predict, split: Split) -> float:
    """The fraction of the images whose class is predicted."""
    hits = total = 0
    for images, labels in split.in_order(BATCH):
        hits += int((predict(images.cpu()).argmax(1) == labels.cpu()).sum())
        total += len(labels)
    return hits / total


def int8_entry(graph: bytes, quantised: bytes, dataset: Dataset) -> dict[str, Any]:
    """What `model.json` says of the int8 graph; accuracies are fractions, of the same test images."""
    exact, rough = (accuracy_of(onnx_prediction(each), dataset.test) for each in (graph, quantised))
    return {
        "file": FILE,
        "test_accuracy": rough,
        "float_test_accuracy": exact,
        "accuracy_cost": exact - rough,
        "test_images": len(dataset.test),
        "calibration_images": min(CALIBRATION, len(dataset.train)),
        "bytes": len(quantised),
        "float_bytes": len(graph),
    }
