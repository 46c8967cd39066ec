"""What data sets compute once on a machine, kept in files of the user's cache folder."""

import json
import logging
import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from archray.files import write_file

logger = logging.getLogger(__name__)


def cache_folder() -> Path:
    """As the XDG base directory specification says: a relative `XDG_CACHE_HOME` counts as none."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()
    return root / "archray"


def cached_json(name: str, make: Callable[[], Any]) -> Any:
    """What `make` returned, from the file `name` in the cache folder; made and written if it is not there.

    The file is complete or absent, whoever else writes it. A cache that cannot be read or written costs time and a
    warning, nothing else.
    """
    return _cached(name, make, json.loads, lambda made: json.dumps(made, ensure_ascii=True).encode())


def cached_array(name: str, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """`cached_json` for an array."""
    return _cached(name, make, _array, _array_bytes)


def _array(content: bytes) -> npt.NDArray[Any]:
    return np.load(BytesIO(content), allow_pickle=False)


def _array_bytes(array: npt.NDArray[Any]) -> bytes:
    stream = BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def _cached(
    name: str, make: Callable[[], Any], decoded: Callable[[bytes], Any], encoded: Callable[[Any], bytes]
) -> Any:
    file = cache_folder() / name
    try:
        return decoded(file.read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, ValueError, EOFError) as error:
        logger.warning("%s cannot be read and is made again (%s)", file, error)
    made = make()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, encoded(made))
    except OSError as error:
        logger.warning("%s cannot be written, so it is made again in each process (%s)", file, error)
    return made
