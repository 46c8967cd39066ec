"""Digits: 1,797 real 8 x 8 images of handwritten digits, inside scikit-learn (Alpaydin and Kaynak 1998, UCI).

The table is read as `sklearn.datasets.load_digits` reads it. Importing scikit-learn for that would take every process
and every worker a second.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from archray.errors import DataNotFound
from archray.trainables.data.raw import RawData
from archray.trainables.data.settings import DataSettings

PIXEL_MAXIMUM = 16.0  # a pixel counts the dark ones in a block of 4 x 4
TABLE = "datasets/data/digits.csv.gz"  # in scikit-learn: a row per image, its 64 pixels and its label


def read(settings: DataSettings) -> RawData:
    """All 1,797 images, (n, 1, 8, 8), to be split 60/20/20 unless the settings say otherwise."""
    rows = np.loadtxt(_table(), delimiter=",")  # (n, 65)
    images = (rows[:, :-1].reshape(-1, 1, 8, 8) / PIXEL_MAXIMUM).astype(np.float32)
    return RawData(
        train=(images, rows[:, -1].astype(np.int64)),
        num_classes=10,
        validation_fraction=0.25,
        classes=tuple("0123456789"),
        flip=False,
    )


def _table() -> Path:
    spec = find_spec("sklearn")
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        if (table := Path(folder) / TABLE).is_file():
            return table
    raise DataNotFound(f"there is no file {TABLE} in scikit-learn; install it anew: pip install scikit-learn")
