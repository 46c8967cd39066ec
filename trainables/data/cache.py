"""What is made once per machine and kept as JSON: `$XDG_CACHE_HOME/archray`, or `~/.cache/archray`."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    file = cache_folder() / name
    try:
        return json.loads(file.read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read and is made again (%s)", file, error)
    made = make()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps(made, ensure_ascii=True).encode())
    except OSError as error:
        logger.warning("%s cannot be written, so it is made again in each process (%s)", file, error)
    return made
