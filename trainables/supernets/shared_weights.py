"""Weights of a supernet on storage that every node reads: one whole file each, named by a URI."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch
from pyarrow import fs


def write_weights(place: str, name: str, state: dict[str, Any]) -> str:
    """Writes `state` as the file `name` in the folder `place` and returns its URI.

    A reader meets the old file or the new one: on a disk it is renamed when it is whole, and object stores show whole
    files only.

    Args:
        place: a local path, or a URI that pyarrow understands (`s3://bucket/weights`).
        state: tensors, numbers, strings, None, and lists and dicts of these.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    uri = f"{_uri(place).rstrip('/')}/{name}"
    store, path = fs.FileSystem.from_uri(uri)
    store.create_dir(str(Path(path).parent), recursive=True)
    local = isinstance(store, fs.LocalFileSystem)
    target = f"{Path(path).parent}/.tmp-{os.getpid()}-{name}" if local else path
    with store.open_output_stream(target) as stream:
        stream.write(buffer.getbuffer())
    if local:
        store.move(target, path)
    return uri


def read_weights(uri: str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `write_weights` wrote, its tensors on `device`. Raises: FileNotFoundError."""
    store, path = fs.FileSystem.from_uri(_uri(uri))
    with store.open_input_stream(path) as stream:
        state: dict[str, Any] = torch.load(io.BytesIO(stream.read()), map_location=device, weights_only=True)
    return state


def _uri(place: str) -> str:
    return place if "://" in place else Path(place).expanduser().absolute().as_uri()
