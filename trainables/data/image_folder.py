"""Custom images in class folders: all images, or only their names for images that are read during training.

The layout is `PATH/{train,val,test}/class/image.png` (val and test are optional) or `PATH/class/image.png`. Missing
parts are split from the training images by seed.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from archray.errors import DataNotFound, InvalidInput
from archray.trainables.data.image_form import ImageForm
from archray.trainables.data.raw import Part, RawData, RawFiles
from archray.trainables.data.settings import DataSettings

IMAGE_SIZE = 32
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
PART_FOLDERS = {"train": "train", **dict.fromkeys(("val", "valid", "validation"), "validation"), "test": "test"}
IGNORED = {"__MACOSX"}  # folders that archives contain in addition to the data
FORM = "PATH/train/CLASS/IMAGE (val/ and test/ next to train/ are optional) or PATH/CLASS/IMAGE"


def check(settings: DataSettings) -> None:
    """Checks that all parts have the same two or more classes, each with an image. It opens no image.

    Raises: DataNotFound if the folder or an image is missing; InvalidInput if the classes of the parts differ.
    """
    parts = part_folders(settings.path)
    classes = classes_of(parts["train"])
    if len(classes) < 2:
        raise DataNotFound(
            f"expected two or more class folders in {parts['train']}, got {', '.join(classes) or 'none'}; "
            f"arrange images as {FORM}"
        )
    for name, folder in parts.items():
        if classes_of(folder) != classes:
            different = sorted(set(classes_of(folder)) ^ set(classes))
            raise InvalidInput(
                f"expected the same class folders in all parts of {settings.path}, got differences between {name} and "
                f"train: {', '.join(different)}. Give each of "
                f"{', '.join(sorted(path.name for path in parts.values()))} the same class folders"
            )
        for label in classes:
            if not _count(folder / label):
                raise DataNotFound(
                    f"expected images ({', '.join(sorted(SUFFIXES))}) in {folder / label}, got none. "
                    "Add images or remove the folder"
                )
    whole = len(parts) == len({*PART_FOLDERS.values()})
    if not whole and all(_count(parts["train"] / label) == 1 for label in classes):
        raise InvalidInput(
            f"expected several images of each class in {parts['train']}, because some are held out, got one of each. "
            "Add images"
        )


def read(settings: DataSettings) -> RawData:
    """Reads all images as 8-bit RGB, (n, 3, S, S), where S is `image_size` or 32.

    Raises: InvalidInput, with the file's name, if an image cannot be read.
    """
    size = settings.image_size or IMAGE_SIZE
    folders = part_folders(settings.path)
    classes = tuple(classes_of(folders["train"]))
    parts: dict[str, Any] = {name: _read_part(folder, size, classes) for name, folder in folders.items()}
    return RawData(**parts, num_classes=len(classes), classes=classes)


def read_names(settings: DataSettings) -> RawFiles:
    """Lists the names of all images, relative to the folder, and their labels. It opens no image."""
    folders = part_folders(settings.path)
    classes = tuple(classes_of(folders["train"]))
    parts: dict[str, Any] = {part: _names(settings.path, folder, classes) for part, folder in folders.items()}
    return RawFiles(**parts, num_classes=len(classes), classes=classes, folder=str(settings.path))


def part_folders(path: Path) -> dict[str, Path]:
    """Returns the folders of train, and of validation and test if they exist."""
    if not path.is_dir():
        raise DataNotFound(f"expected a folder at {path}, got none. Give a folder with {FORM}")
    if not (path / "train").is_dir():
        return {"train": path}
    return {part: path / name for name, part in PART_FOLDERS.items() if (path / name).is_dir()}


def classes_of(folder: Path) -> list[str]:
    """Returns the sorted names of the class folders."""
    return next(_walk(folder), ("", [], []))[1]


def _count(folder: Path) -> int:
    """Returns the number of images in a folder and its subfolders, at most 2."""
    images = (file for _, _, files in _walk(folder) for file in files if _is_image(file))
    return len(list(islice(images, 2)))


def _read_part(folder: Path, size: int, classes: Sequence[str]) -> Part:
    """Reads images (n, 3, S, S) and labels (n,), in torchvision's order."""
    form = ImageForm(channels=3, size=size)
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        files = list(image_files(folder / name))
        images += map(form.read, files)
        labels += [label] * len(files)
    return np.stack(images).transpose(0, 3, 1, 2), np.array(labels, dtype=np.int64)


def _names(root: Path, folder: Path, classes: Sequence[str]) -> Part:
    """Lists names, (n,) bytes, and labels (n,), in the order of classes and names."""
    names: list[bytes] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        of_class = sorted(os.fsencode(os.path.relpath(file, root)) for file in image_files(folder / name))
        names += of_class
        labels += [label] * len(of_class)
    return np.array(names), np.array(labels, dtype=np.int64)


def image_files(folder: Path) -> Iterator[str]:
    """Yields the images in a folder and its subfolders, in the order of torchvision's `ImageFolder`."""
    for place, _, files in sorted(_walk(folder)):
        for file in sorted(files):
            if _is_image(file):
                yield os.path.join(place, file)


def _is_image(file: str) -> bool:
    """Whether a file name is that of an image. Hidden files are not: macOS writes `._1.png` next to `1.png`."""
    return not file.startswith(".") and os.path.splitext(file)[1].lower() in SUFFIXES


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like `os.walk`, through symbolic links, without hidden folders and `IGNORED`.

    A link to a folder that contains the link, by its name or its real place, would be a loop. Such links are left out,
    and each other folder is visited once.
    """
    visited = {os.path.realpath(place) for place in (folder, *folder.absolute().parents)}
    for place, folders, files in os.walk(folder, followlinks=True):
        real, kept = Path(os.path.realpath(place)), []
        for name in sorted(folders):
            target = os.path.realpath(os.path.join(place, name))
            if not (name.startswith(".") or name in IGNORED or target in visited or real.is_relative_to(target)):
                visited.add(target)
                kept.append(name)
        folders[:] = kept
        yield place, kept, files
