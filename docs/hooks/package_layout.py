"""The package as a wheel lays it out, of links, for the API reference: it is read there, not imported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LAYOUT = REPOSITORY / "build" / "docs" / "archray"
ROOMS = ("platform", "searchers", "trainables", "cluster")


def on_startup(**options: Any) -> None:
    """Makes the links anew. `platform/` has no `__init__.py`, without which the reference would not look into it."""
    shutil.rmtree(LAYOUT, ignore_errors=True)
    for folder, source in [(LAYOUT, "archray"), *((LAYOUT / room, room) for room in ROOMS)]:
        folder.mkdir(parents=True)
        for entry in (REPOSITORY / source).iterdir():
            (folder / entry.name).symlink_to(entry)
        if not (folder / "__init__.py").exists():
            (folder / "__init__.py").touch()
