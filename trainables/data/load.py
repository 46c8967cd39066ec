"""From settings to a data set on a device; and the check that comes before Ray starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from archray.errors import InvalidInput, UnknownName
from archray.registry import Registry, is_reference, load_reference
from archray.trainables.data import arrays, cifar, digits, folder, gaussian, imagenet16
from archray.trainables.data.raw import RawData
from archray.trainables.data.settings import PATH_PREFIXES, DataSettings

if TYPE_CHECKING:
    from archray.trainables.data.dataset import Dataset


@dataclass(frozen=True)
class DataSource:
    """A kind of data set: what `archray list datasets` says, a cheap check, and a reader."""

    description: str
    check: Callable[[DataSettings], None]
    read: Callable[[DataSettings], RawData]


DATASETS: Registry[DataSource] = Registry("data set")
for _name, _source_of_name in {
    "digits": DataSource(
        "1,797 real 8 x 8 digits, inside scikit-learn; nothing to download", digits.check, digits.read
    ),
    "cifar10": DataSource("60,000 images 32 x 32 of 10 classes; from --data-dir", cifar.check, cifar.read),
    "cifar100": DataSource("60,000 images 32 x 32 of 100 classes; from --data-dir", cifar.check, cifar.read),
    "imagenet16-120": DataSource(
        "ImageNet's first 120 classes at 16 x 16; from --data-dir", imagenet16.check, imagenet16.read
    ),
    "gaussian": DataSource(
        "random images and labels, 3 x 32 x 32; for training-free metrics", gaussian.check, gaussian.read
    ),
    "folder:PATH": DataSource("your images, as PATH/CLASS/IMAGE or PATH/train/CLASS/IMAGE", folder.check, folder.read),
    "arrays:PATH": DataSource("your arrays, in an .npz that save_arrays writes", arrays.check, arrays.read),
}.items():
    DATASETS.register(_name, _source_of_name)


def check_data(settings: DataSettings) -> None:
    """Whether the data are there, without reading the images and without torch.

    Raises: UnknownName for a name that is no data set; DataNotFound, with a hint, when files are missing;
    InvalidInput for files of another form.
    """
    source = _source(settings)
    if source is None:
        _own(settings)
    else:
        source.check(settings)


@lru_cache(maxsize=4)
def load_data(settings: DataSettings, device: str = "cpu") -> Dataset:
    """The data set of these settings on `device`; the last four are kept for this process.

    Raises: as `check_data`; InvalidInput for images that cannot be used.
    """
    from archray.trainables.data.dataset import Dataset, make_dataset

    source = _source(settings)
    if source is not None:
        source.check(settings)
        return make_dataset(source.read(settings), settings).to(device)
    dataset = _own(settings)(settings)
    if not isinstance(dataset, Dataset):
        raise InvalidInput(
            f"expected {settings.name!r} to return an archray.trainables.data.Dataset, got {type(dataset).__name__}"
        )
    return dataset.to(device)


def _source(settings: DataSettings) -> DataSource | None:
    """The registered source of a name; None if the name is a reference to a function of the user's."""
    for prefix in PATH_PREFIXES:
        if settings.name.startswith(prefix) and len(settings.name) > len(prefix):
            return DATASETS.get(f"{prefix}PATH")
    if settings.name in DATASETS or not is_reference(settings.name):
        return DATASETS.get(settings.name)
    return None


def _own(settings: DataSettings) -> Callable[[DataSettings], Any]:
    function = load_reference(settings.name)
    if not callable(function):
        raise UnknownName(
            f"expected {settings.name!r} to be a function from DataSettings to a Dataset, got {type(function).__name__}"
        )
    return function
