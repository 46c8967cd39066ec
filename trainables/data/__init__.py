"""Data sets as tensors on the device, and their augmentation. Importing this loads no torch until it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from archray.trainables.data.arrays import save_arrays
from archray.trainables.data.load import DATASETS, check_data, load_data
from archray.trainables.data.settings import DataSettings

if TYPE_CHECKING:
    from archray.trainables.data.augment import Augmentation, AugmentationSettings
    from archray.trainables.data.batch import proxy_batch
    from archray.trainables.data.dataset import Dataset, Split

_TORCH = {  # what needs torch, loaded when first asked for
    "Augmentation": "augment",
    "AugmentationSettings": "augment",
    "Dataset": "dataset",
    "Split": "dataset",
    "proxy_batch": "batch",
}

__all__ = [
    "DATASETS",
    "Augmentation",
    "AugmentationSettings",
    "DataSettings",
    "Dataset",
    "Split",
    "check_data",
    "load_data",
    "proxy_batch",
    "save_arrays",
]


def __getattr__(name: str) -> Any:
    if name in _TORCH:
        return getattr(import_module(f"archray.trainables.data.{_TORCH[name]}"), name)
    raise AttributeError(f"module 'archray.trainables.data' has no attribute {name!r}")
