"""Weights of a supernet on storage that every node reads: one whole file each, named by a URI."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from archray.errors import InvalidInput
from archray.files import Folder
from archray.trainables.devices import out_of_memory
from archray.trainables.supernets.networks import Supernet


def write_weights(place: str, name: str, state: dict[str, Any]) -> str:
    """Writes `state` as the file `name` in the folder `place` and returns its URI.

    A reader meets the old file or the new one.

    Args:
        place: a local path, or a URI that pyarrow understands (`s3://bucket/weights`).
        state: tensors, numbers, strings, None, and lists and dicts of these.
    """
    folder = Folder(_uri(place))
    with folder.whole_file(name) as stream:
        torch.save(state, stream)
    return (folder / name).uri


def read_weights(uri: str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `write_weights` wrote, its tensors on `device`. Raises: FileNotFoundError."""
    place, _, name = _uri(uri).rpartition("/")
    content = io.BytesIO(Folder(place).read_bytes(name))
    state: dict[str, Any] = torch.load(content, map_location=device, weights_only=True)
    return state


def load_weights(supernet: Supernet, state: Mapping[str, Any], source: str, advice: str = "") -> None:
    """Gives `supernet` the weights in `state`: a supernet's state, alone or under the key `supernet`.

    source, advice: for the message: what the weights are, and what else to do.

    Raises: InvalidInput if they are another supernet's.
    """
    try:
        supernet.load_state_dict(state.get("supernet", state))
    except (RuntimeError, AttributeError, TypeError) as error:
        if out_of_memory(error) is not None:
            raise
        raise InvalidInput(
            f"expected {source} to be of a supernet with these settings' space, network and data, got others{advice}: "
            f"{error}"
        ) from error


def _uri(place: str) -> str:
    return place if "://" in place else Path(place).expanduser().absolute().as_uri()
