"""What the tests of the house run in a Ray worker."""

from __future__ import annotations

import importlib
import os
import platform
from pathlib import Path
from typing import Any


def what_platform_is() -> dict[str, Any]:
    """Where the worker's `platform` module comes from, and whether it is the standard library's; who started it."""
    return {
        "file": platform.__file__,
        "system": platform.system(),
        "rooms": import_the_rooms(),
        "parent": Path(f"/proc/{os.getppid()}/cmdline").read_text(),
    }


def import_the_rooms() -> list[str]:
    """Imports every room and returns their names, as a worker sees them."""
    rooms = ("archray.platform", "archray.searchers", "archray.trainables", "archray.cluster")
    return [importlib.import_module(room).__name__ for room in rooms]
