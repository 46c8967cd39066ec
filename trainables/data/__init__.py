"""Data sets: images as tensors on the device with their augmentation, and texts. torch modules load at first use."""

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes
from archray.trainables.data.arrays import save_arrays
from archray.trainables.data.load import DATASETS, check_data, data_kind, load_data, load_images, load_text
from archray.trainables.data.raw import TextDataset, TextSplit
from archray.trainables.data.settings import AugmentationSettings, DataSettings

if TYPE_CHECKING:
    from archray.trainables.data.dataset import Augmentation, Dataset, Split, proxy_batch

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

__getattr__ = lazy_attributes(__name__, dataset=("Augmentation", "Dataset", "Split", "proxy_batch"))
