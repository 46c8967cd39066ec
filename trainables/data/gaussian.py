"""Gaussian: random images and random labels, for training-free metrics without data (note H5) and for tests."""

import numpy as np

from archray.trainables.data.raw import Part, RawData
from archray.trainables.data.settings import DataSettings

IMAGE_SIZE = 32
CHANNELS = 3
CLASSES = 10
TRAIN_IMAGES = 1024
HELD_OUT_IMAGES = 256  # for validation and for test, each


def read(settings: DataSettings) -> RawData:
    """Pixels from N(0, 1), labels uniform over 10 classes, by `settings.seed`; three channels, 32 x 32 by default."""
    rng = np.random.default_rng(settings.seed)
    size = settings.image_size or IMAGE_SIZE

    def draw(count: int) -> Part:
        images = rng.standard_normal((count, CHANNELS, size, size), dtype=np.float32)
        return images, rng.integers(CLASSES, size=count)

    return RawData(
        train=draw(TRAIN_IMAGES),
        validation=draw(HELD_OUT_IMAGES),
        test=draw(HELD_OUT_IMAGES),
        num_classes=CLASSES,
        normalised=True,
    )
