"""The classifier of a found feature map, as files that load without archray's run folder."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from archray.files import Folder
from archray.platform.models.network_model import DESCRIPTION, LOADER
from archray.platform.run.run import Run
from archray.trainables.checkpoint import STATE_FILE, read_state
from archray.trainables.feature_maps.classifier import Classifier, load_classifier

KIND = "feature map"  # what the description says that it is

_LOADER = '''"""Loads the exported classifier; run as a script, prints what it is. Needs archray."""

import json
from pathlib import Path

from archray.trainables.feature_maps.classifier import Classifier, load_classifier

here = Path(__file__).resolve().parent


def load_model() -> Classifier:
    """The classifier on the CPU: images (n, C, H, W), normalised, or texts -> decision values (n, classes)."""
    return load_classifier(here)


if __name__ == "__main__":
    print(json.loads((here / "architecture.json").read_text()))
    print(load_model())
'''


def write_classifier(folder: Folder, checkpoint: Path, run: Run) -> None:
    """Writes the classifier of a trial's checkpoint, and what it is."""
    result = read_state(checkpoint)["result"]
    folder.write_bytes(STATE_FILE, (checkpoint / STATE_FILE).read_bytes())
    folder.write_json(
        DESCRIPTION,
        {
            "kind": KIND,
            "architecture": (run.found or {})["architecture"],
            "space": run.space,
            "dimension": result["dimension"],
            "validation_accuracy": result["validation_accuracy"],
            "test_accuracy": result["test_accuracy"],
            "data": run.config.data.name,
        },
    )


def load_written(folder: Folder, run: Run[Any]) -> Classifier:
    """The classifier that `write_classifier` wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        Folder(scratch).copy_from(folder, [STATE_FILE])
        return load_classifier(scratch)


def export_classifier(source: Folder, to: Folder, run: Run[Any], described: dict[str, Any]) -> None:
    """Copies the classifier, and writes a loader beside it."""
    to.copy_from(source, [STATE_FILE])
    to.write_bytes(LOADER, _LOADER.encode())
