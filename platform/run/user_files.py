"""Files of the user's that a run keeps: a space, a data set, a metric, named `path.py:attribute`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from archray.files import Folder
from archray.platform.run.layout import CODE
from archray.registry import is_reference, split_reference


def keep_user_file(folder: Folder, role: str, reference: str) -> dict[str, str] | None:
    """Copies the file that `path.py:attribute` names into the run; returns what the manifest keeps of it."""
    if not is_reference(reference):
        return None
    place, attribute = split_reference(reference)
    if not place.endswith(".py"):
        return None  # an installed module: every node has it, or the connection says that it lacks it
    path = Path(place)
    (folder / CODE / role).write_bytes(path.name, path.read_bytes())
    return {
        "reference": reference,
        "file": path.name,
        "attribute": attribute,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
