"""Data as a reader hands them over: NumPy arrays, not yet split, scaled or normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[Any]  # (n, C, H, W): uint8 in 0..255, or float
Labels = npt.NDArray[np.int64]  # (n,) in 0..K-1
Texts = npt.NDArray[np.object_]  # (n,) of str
Part = tuple[npt.NDArray[Any], Labels]  # (points, labels): points are Images or Texts


@dataclass(frozen=True)
class RawParts:
    """One data set as its files hold it.

    Attributes:
        train, validation, test: parts; what is None is cut from `train` (see `split.split_parts`).
        num_classes: K.
        validation_fraction: share of `train` for validation, when the settings name none; None halves `test`.
    """

    train: Part
    num_classes: int
    validation: Part | None = None
    test: Part | None = None
    validation_fraction: float | None = 0.2


@dataclass(frozen=True)
class RawText(RawParts):
    """Texts. classes: K names."""

    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RawData(RawParts):
    """Images.

    Attributes:
        mean, std: published normalisation per channel, of images scaled to 0..1; None computes it from `train`.
        flip: whether a mirrored image keeps its label.
        normalised: the images are normalised already (gaussian).
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    flip: bool = True
    normalised: bool = False
