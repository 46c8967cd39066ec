"""Digits: 1,797 real 8 x 8 images of handwritten digits, inside scikit-learn (Alpaydin and Kaynak 1998, UCI)."""

from __future__ import annotations

import numpy as np

from archray.trainables.data.data_settings import DataSettings
from archray.trainables.data.raw import RawData

PIXEL_MAXIMUM = 16.0  # a pixel counts the dark ones in a block of 4 x 4


def read(settings: DataSettings) -> RawData:
    """All 1,797 images, (n, 1, 8, 8), to be split 60/20/20 unless the settings say otherwise."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / PIXEL_MAXIMUM).astype(np.float32)[:, None]
    return RawData(train=(images, digits.target.astype(np.int64)), num_classes=10, validation_fraction=0.25, flip=False)
