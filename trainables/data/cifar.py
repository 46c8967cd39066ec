"""CIFAR-10 and CIFAR-100 from the published Python batches, read by torchvision (Krizhevsky 2009)."""

from pathlib import Path
from typing import Any

import numpy as np

from archray.errors import DataNotFound
from archray.trainables.data.raw import Part, RawData
from archray.trainables.data.settings import DataSettings

FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
FILES = {
    "cifar10": ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"),
    "cifar100": ("train", "test"),
}
ARCHIVES = {
    "cifar10": "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "cifar100": "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
}
MEAN = {"cifar10": (125.3, 123.0, 113.9), "cifar100": (129.3, 124.1, 112.4)}  # of 255, NAS-Bench-201's
STD = {"cifar10": (63.0, 62.1, 66.7), "cifar100": (68.2, 65.4, 70.4)}
CLASSES = {"cifar10": 10, "cifar100": 100}


def check(settings: DataSettings) -> None:
    """Raises: DataNotFound, naming the files that are missing and where to get them."""
    name = settings.name
    hint = (
        f"download {ARCHIVES[name]} and unpack it, so that the data directory holds {FOLDERS[name]}/, "
        "or give another directory with --data-dir (data_dir)"
    )
    if settings.data_dir is None:
        raise DataNotFound(f"{name} needs a data directory, got none; {hint}")
    folder = Path(settings.data_dir) / FOLDERS[name]
    missing = [file for file in FILES[name] if not (folder / file).is_file()]
    if missing:
        raise DataNotFound(f"{name}: expected {', '.join(missing)} in {folder}, which is not there; {hint}")


def read(settings: DataSettings) -> RawData:
    """Training and test images, (n, 3, 32, 32) of 8 bits.

    torchvision compares the files' MD5 with the published one. Raises: DataNotFound if they differ.
    """
    name = settings.name
    from torchvision.datasets import CIFAR10, CIFAR100

    kind = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    try:
        train = kind(settings.data_dir, train=True, download=False)
        test = kind(settings.data_dir, train=False, download=False)
    except RuntimeError as error:
        raise DataNotFound(
            f"the files of {name} in {settings.data_dir} are damaged or not the published ones ({error}); "
            f"download {ARCHIVES[name]} again and unpack it there"
        ) from error
    return RawData(
        train=_part(train),
        test=_part(test),
        num_classes=CLASSES[name],
        classes=tuple(train.classes),
        mean=tuple(value / 255 for value in MEAN[name]),
        std=tuple(value / 255 for value in STD[name]),
        # NAS-Bench-201: CIFAR-10's training images in two halves, CIFAR-100's test images in two halves.
        validation_fraction=0.5 if name == "cifar10" else None,
    )


def _part(data: Any) -> Part:
    return data.data.transpose(0, 3, 1, 2), np.asarray(data.targets, dtype=np.int64)
