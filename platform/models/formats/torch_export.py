"""torch's exported program: runs with torch alone, without the model's classes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from archray.platform.models.export_format import ExportFormat, Portable, Predict, no_extra, prediction_of
from archray.trainables.nets.exported_program import exported_program

FILE = "model.pt2"

LOADER = '''
def load_torch_export():
    """A torch.nn.Module on the CPU: images (n, C, H, W), normalised -> outputs (n, classes). Needs torch.

    It is a program, as in evaluation mode; its layers have no names of archray's.
    """
    import torch

    model = torch.export.load(here / "model.pt2").module()
    model.eval = lambda: model  # which it is in; torch's own raises
    return model
'''


def write(model: Portable) -> dict[str, bytes]:
    """`model.pt2`. One that drops paths draws them from torch's global generator."""
    buffer = io.BytesIO()
    torch.export.save(exported_program(model.network, model.image_shape), buffer)
    return {FILE: buffer.getvalue()}


def read(folder: Path, card: dict[str, Any]) -> Predict:
    return prediction_of(torch.export.load(folder / FILE).module())


TORCH_EXPORT = ExportFormat(
    check=no_extra,
    write=write,
    function="load_torch_export",
    loader=LOADER,
    needs="torch",
    holds="the forward pass as torch's exported program, with its weights",
    open=read,
    code=FILE,  # torch unpickles objects in it, and evaluates expressions of sizes
)
