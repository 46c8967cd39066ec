"""The names of a model's files, and a network as a program that needs only torch."""

from __future__ import annotations

import io

import torch

STATE_DICT, PROGRAM = "state_dict.pt", "program.pt2"
DESCRIPTION, LOADER = "architecture.json", "load_model.py"


def network_program(network: torch.nn.Module, channels: int, size: int) -> bytes:
    """A network of images (n, channels, size, size), for any n, as a `torch.export` program."""
    images = torch.zeros(2, channels, size, size)
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(network, (images,), dynamic_shapes=({0: batch},))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()
