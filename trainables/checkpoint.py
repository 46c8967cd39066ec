"""Tensors and plain data in files that are written atomically and read without running any code."""

import io
import pickle
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from archray.errors import DamagedFile, InvalidInput
from archray.files import Folder, whole_file
from archray.trainables.devices import out_of_memory

STATE_FILE = "state.pt"


def write_state(folder: str | Path, state: dict[str, Any]) -> None:
    """Writes `state` to `folder/state.pt` atomically: a kill leaves the old file or none.

    state: tensors, numbers, strings, None, and lists and dicts of these. Other objects could not be read back.
    """
    with whole_file(Path(folder) / STATE_FILE) as stream:
        torch.save(state, stream)


def read_state(folder: str | Path, device: str | torch.device = "cpu") -> dict[str, Any]:
    """Reads the state that `write_state` wrote, with tensors on `device`. Raises: FileNotFoundError; DamagedFile."""
    return load_tensors(Path(folder) / STATE_FILE, f"{folder}/{STATE_FILE}", device)


def load_tensors(source: Path | bytes, place: str, device: str | torch.device = "cpu") -> dict[str, Any]:
    """Reads the state in a file without running any code, with tensors on `device`.

    Args:
        source: The local file, or its content.
        place: Location of the file, for the message.

    Raises: DamagedFile, FileNotFoundError.
    """
    try:
        state = torch.load(
            io.BytesIO(source) if isinstance(source, bytes) else source, map_location=device, weights_only=True
        )
    except FileNotFoundError:
        raise
    except pickle.UnpicklingError as error:  # its text recommends to load the file without this protection
        raise DamagedFile.at(
            place,
            "it contains objects other than tensors and plain data, which may execute code; do not load it in another "
            "way",
        ) from error
    except Exception as error:  # from zip files, pickle, torch
        if out_of_memory(error) is not None:
            raise
        raise DamagedFile.at(place, "it is not a complete file of torch.save") from error
    if not isinstance(state, dict):
        raise DamagedFile.at(place, f"it contains a {type(state).__name__} instead of a state")
    return state


def load_trained_weights(
    source: Path | bytes, place: str, classes: Iterable[int] = (), described: str = ""
) -> dict[str, Tensor]:
    """Reads the weights of a trained network, like `load_tensors`.

    Args:
        classes: Numbers of classes of the networks with these weights.
        described: File with these numbers.

    Raises: DamagedFile also for entries that are not finite tensors, and for a number of classes that no tensor has,
        whose network may need all memory.
    """
    state = load_tensors(source, place)
    for name, weights in state.items():
        if not isinstance(weights, Tensor):
            raise DamagedFile.at(place, f"its entry {name} is a {type(weights).__name__} instead of a tensor")
        if not weights.isfinite().all():
            raise DamagedFile.at(place, f"its weights {name} contain infinity or NaN")
    sizes = {size for weights in state.values() for size in weights.shape}
    if lacking := [number for number in classes if number not in sizes]:
        raise DamagedFile.at(described, f"num_classes: no weights have {lacking[0]} classes")
    return state


def write_weights(place: str, name: str, state: dict[str, Any]) -> str:
    """Writes `state` atomically as the file `name` in the folder `place`, and returns its URI.

    Args:
        place: A local path, or a URI that pyarrow supports (`s3://bucket/weights`).
        state: As in `write_state`.
    """
    folder = Folder(_uri(place))
    with folder.whole_file(name) as stream:
        torch.save(state, stream)
    return (folder / name).uri


def read_weights(uri: str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Reads the state that `write_weights` wrote, with tensors on `device`. Raises: FileNotFoundError; DamagedFile."""
    file = Folder(_uri(uri))
    return load_tensors(file.parent.read_bytes(file.name), uri, device)


def load_weights(supernet: nn.Module, state: Mapping[str, Any], source: str, advice: str = "") -> None:
    """Loads weights into `supernet` from `state`: a supernet's state, alone or under the key `supernet`.

    source, advice: for the message: the origin of the weights, and advice. Raises: InvalidInput if they do not fit.
    """
    expected = f"{source} to belong to a supernet with these settings' space, network and data"
    load_fitting(supernet, state.get("supernet", state), expected, advice)


def load_fitting(network: nn.Module, state: Mapping[str, Any], expected: str, advice: str = "") -> None:
    """Loads the weights in `state` into `network`.

    Args:
        expected, advice: For the message: the expected weights, and advice.

    Raises: InvalidInput if they do not fit, with torch's first reason.
    """
    try:
        network.load_state_dict(state)
    except (RuntimeError, AttributeError, TypeError) as error:
        if out_of_memory(error) is not None:
            raise
        reasons = [line.strip() for line in str(error).splitlines()]
        first = textwrap.shorten(reasons[min(1, len(reasons) - 1)], 200)  # the first of several lines names the class
        raise InvalidInput(f"expected {expected}, got others{advice}: {first}") from error


def _uri(place: str) -> str:
    return place if "://" in place else Path(place).expanduser().absolute().as_uri()
