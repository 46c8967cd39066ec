"""Data sets: images as tensors on the device and their augmentation; texts. No torch is loaded until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes
from archray.trainables.data.arrays import save_arrays
from archray.trainables.data.load import DATASETS, check_data, data_kind, load_data, load_images, load_text
from archray.trainables.data.raw import TextDataset, TextSplit
from archray.trainables.data.settings import AugmentationSettings, DataSettings

if TYPE_CHECKING:
    from archray.trainables.data.augment import Augmentation, proxy_batch
    from archray.trainables.data.dataset import Dataset, Split

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

__getattr__ = lazy_attributes(  # what needs torch
    __name__,
    augment=("Augmentation", "proxy_batch"),
    dataset=("Dataset", "Split"),
)
