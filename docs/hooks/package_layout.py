"""Links that lay the package out as a wheel, for the API reference, which reads it without importing it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LAYOUT = REPOSITORY / "build" / "docs" / "archray"
PACKAGES = ("platform", "searchers", "trainables", "cluster")


def on_startup(**options: Any) -> None:
    """Creates the links. The reference needs an `__init__.py` in each package, and `platform/` has none."""
    shutil.rmtree(LAYOUT, ignore_errors=True)
    for folder, source in [(LAYOUT, "archray"), *((LAYOUT / package, package) for package in PACKAGES)]:
        folder.mkdir(parents=True)
        for entry in (REPOSITORY / source).iterdir():
            (folder / entry.name).symlink_to(entry)
        if not (folder / "__init__.py").exists():
            (folder / "__init__.py").touch()
