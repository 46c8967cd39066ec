"""ImageNet16-120: the first 120 classes of ImageNet at 16 x 16 (Chrabaszcz et al. 2017; Dong and Yang 2020).

Read from the published pickled batches of Downsampled ImageNet; each is a dict with `data`, (n, 768) of 8 bits,
channel by channel, and `labels` in 1..1000.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from archray.errors import DataNotFound
from archray.trainables.data.raw import Part, RawData
from archray.trainables.data.settings import DataSettings

CLASSES = 120
SIZE = 16
TRAIN_FILES = tuple(f"train_data_batch_{number}" for number in range(1, 11))
TEST_FILE = "val_data"
MEAN = (122.68, 116.66, 104.01)  # of 255, NAS-Bench-201's
STD = (63.22, 61.26, 65.09)
SUBFOLDERS = ("", "ImageNet16")

# What a pickle of a dict of NumPy arrays needs, under NumPy 1 and 2; anything else in the file is refused.
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"holds {module}.{name}, which a batch of images does not")
        return super().find_class(module, name)


def check(settings: DataSettings) -> None:
    """Raises: DataNotFound, naming the files that are missing and where to get them."""
    _folder(settings)


def read(settings: DataSettings) -> RawData:
    """Training images, and ImageNet's validation images as the test part (halved for validation by default).

    Raises: DataNotFound if a file is no such batch.
    """
    folder = _folder(settings)
    batches = [_batch(folder / file) for file in TRAIN_FILES]
    images = np.concatenate([part[0] for part in batches])
    labels = np.concatenate([part[1] for part in batches])
    return RawData(
        train=(images, labels),
        test=_batch(folder / TEST_FILE),
        num_classes=CLASSES,
        mean=tuple(value / 255 for value in MEAN),
        std=tuple(value / 255 for value in STD),
        validation_fraction=None,  # NAS-Bench-201 halves the official validation images
    )


def _folder(settings: DataSettings) -> Path:
    hint = (
        "get Imagenet16_train and Imagenet16_val of Downsampled ImageNet from https://image-net.org/download-images "
        "(or NAS-Bench-201's ImageNet16.tar.gz), unpack them into one folder, and give it with --data-dir (data_dir)"
    )
    if settings.data_dir is None:
        raise DataNotFound(f"imagenet16-120 needs a data directory, got none; {hint}")
    missing: list[str] = []
    for subfolder in SUBFOLDERS:
        folder = Path(settings.data_dir) / subfolder
        missing = [file for file in (*TRAIN_FILES, TEST_FILE) if not (folder / file).is_file()]
        if not missing:
            return folder
        if len(missing) <= len(TRAIN_FILES):
            break  # some are there: this is the folder meant
    raise DataNotFound(f"imagenet16-120: expected {', '.join(missing)} in {folder}, which is not there; {hint}")


def _batch(file: Path) -> Part:
    """Images (n, 3, 16, 16) and labels 0..119 of the first 120 classes in one batch."""
    try:
        with file.open("rb") as stream:
            batch = _ArrayUnpickler(stream, encoding="latin1").load()
        data = np.asarray(batch["data"], dtype=np.uint8)
        labels = np.asarray(batch["labels"], dtype=np.int64) - 1
        images = data.reshape(len(labels), 3, SIZE, SIZE)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise DataNotFound(
            f"{file} is not a batch of Downsampled ImageNet at 16 x 16 (a pickled dict of data, (n, 768), and "
            f"labels): {error}; download it again"
        ) from error
    chosen = labels < CLASSES
    return images[chosen], labels[chosen]
