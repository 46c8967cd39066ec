"""Data sets: images as tensors on the device and their augmentation; texts. No torch is loaded until it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from archray.trainables.data.arrays import save_arrays
from archray.trainables.data.data_settings import DataSettings
from archray.trainables.data.load import DATASETS, check_data, data_kind, load_data, load_images, load_text
from archray.trainables.data.text import TextDataset, TextSplit

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
    "TextDataset",
    "TextSplit",
    "check_data",
    "data_kind",
    "load_data",
    "load_images",
    "load_text",
    "proxy_batch",
    "save_arrays",
]


def __getattr__(name: str) -> Any:
    if name in _TORCH:
        return getattr(import_module(f"archray.trainables.data.{_TORCH[name]}"), name)
    raise AttributeError(f"module 'archray.trainables.data' has no attribute {name!r}")
