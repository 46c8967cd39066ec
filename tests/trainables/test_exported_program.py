"""Networks as graphs: torch's exported program, and ONNX with the same outputs in ONNX Runtime."""

import numpy as np
import pytest
import torch
from torch import nn

from archray.errors import InvalidInput
from archray.trainables.nets.exported_program import exported_program, onnx_graph

SHAPE = (1, 8, 8)


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    return nn.Sequential(*layers).eval()


class BranchesOnValues(nn.Module):
    def forward(self, images):
        return images.mean((2, 3)) if images.sum() > 0 else images.amax((2, 3))


def test_a_program_accepts_any_number_of_images():
    program = exported_program(network(), SHAPE).module()
    for n in (1, 7):
        images = torch.randn(n, *SHAPE)
        torch.testing.assert_close(program(images), network()(images))


@pytest.mark.extra("export")
def test_an_onnx_graph_accepts_any_number_of_images():
    import onnxruntime as runtime  # an optional dependency

    session = runtime.InferenceSession(onnx_graph(network(), SHAPE, "scores"))
    assert [(each.name, each.shape) for each in session.get_inputs()] == [("images", ["batch", *SHAPE])]
    assert [(each.name, each.shape) for each in session.get_outputs()] == [("scores", ["batch", 3])]
    for n in (1, 7):
        images = torch.randn(n, *SHAPE)
        [scores] = session.run(None, {"images": images.numpy()})
        np.testing.assert_allclose(scores, network()(images).detach(), atol=1e-6)


def test_code_that_torch_cannot_trace_raises_an_error():
    with pytest.raises(InvalidInput, match="torch cannot trace BranchesOnValues"):
        exported_program(BranchesOnValues(), SHAPE)
