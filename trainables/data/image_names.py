"""Image stream: a user's own images in class folders, as `image_folder` reads them, of which only names are read."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from archray.trainables.data.image_folder import SUFFIXES, check, classes_of, part_folders
from archray.trainables.data.raw import Part, RawFiles
from archray.trainables.data.settings import DataSettings

__all__ = ["check", "read"]


def read(settings: DataSettings) -> RawFiles:
    """The names of all images, relative to the folder, and their labels. No image is opened."""
    folders = part_folders(settings.path)
    classes = classes_of(folders["train"])
    parts: dict[str, Any] = {part: _names(settings.path, folder, classes) for part, folder in folders.items()}
    return RawFiles(**parts, num_classes=len(classes), classes=tuple(classes), folder=str(settings.path))


def _names(root: Path, folder: Path, classes: list[str]) -> Part:
    """(n,) bytes and (n,) labels, in the order of classes and names."""
    names: list[bytes] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        of_class = [
            os.fsencode(os.path.relpath(os.path.join(place, file), root))
            for place, _, files in os.walk(folder / name, followlinks=True)
            for file in files
            if os.path.splitext(file)[1].lower() in SUFFIXES
        ]
        names += sorted(of_class)
        labels += [label] * len(of_class)
    return np.array(names), np.array(labels, dtype=np.int64)
