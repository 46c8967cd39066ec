"""From settings to a data set on a device; and the check that runs before Ray starts. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from archray.errors import InvalidInput, UnknownName
from archray.references import call_reference, is_reference, load_reference
from archray.registry import Registry
from archray.trainables.data import arrays, docstrings, glyphs, image_folder, sources
from archray.trainables.data.raw import RawFiles, RawParts, RawText, TextDataset, make_text_dataset
from archray.trainables.data.settings import PATH_PREFIXES, DataSettings

if TYPE_CHECKING:
    import torch

    from archray.trainables.data.dataset import Dataset


@dataclass(frozen=True)
class DataSource:
    """A data set with a name.

    Attributes:
        description: for `archray list datasets`.
        read: from settings to the points.
        check: raises an error if the points cannot be read, without reading them; None: they can always be read.
        kind: "images" or "text".
    """

    description: str
    read: Callable[[DataSettings], RawParts]
    check: Callable[[DataSettings], object] | None = None
    kind: str = "images"


DATASETS: Registry[DataSource] = Registry("data set")
for _name, _source_of_name in {
    "digits": DataSource("1,797 real 8 x 8 digits, inside scikit-learn; nothing to download", sources.read_digits),
    "cifar10": DataSource(
        "60,000 images 32 x 32 of 10 classes; from --data-dir", sources.read_cifar, sources.check_cifar
    ),
    "cifar100": DataSource(
        "60,000 images 32 x 32 of 100 classes; from --data-dir", sources.read_cifar, sources.check_cifar
    ),
    "imagenet16-120": DataSource(
        "ImageNet's first 120 classes at 16 x 16; from --data-dir", sources.read_imagenet16, sources.imagenet_folder
    ),
    "glyphs": DataSource(
        "letters of matplotlib's fonts, 32 x 32; 20 classes, or glyphs:10 to glyphs:50", glyphs.read, glyphs.check
    ),
    "gaussian": DataSource("random images and labels, 3 x 32 x 32; for training-free metrics", sources.read_gaussian),
    "folder:PATH": DataSource(
        "images, as PATH/CLASS/IMAGE or PATH/train/CLASS/IMAGE", image_folder.read, image_folder.check
    ),
    "imagefolder-stream:PATH": DataSource(
        "images as of folder:PATH, read during training: for more than memory holds",
        image_folder.read_names,
        image_folder.check,
    ),
    "arrays:PATH": DataSource("arrays in an .npz that save_arrays writes", arrays.read, arrays.check),
    "docstrings": DataSource(
        "texts: docstrings of installed libraries, or of two: docstrings:numpy,torch",
        docstrings.read,
        docstrings.check,
        "text",
    ),
    "imdb": DataSource(
        "texts: 50,000 film reviews of 2 classes; from --data-dir", sources.read_imdb, sources.imdb_folder, "text"
    ),
}.items():
    DATASETS.register(_name, _source_of_name)

PREFIXES = {docstrings.PREFIX: "docstrings", glyphs.PREFIX: "glyphs"}  # of names with a part or a number after them


def check_data(settings: DataSettings) -> None:
    """Checks that the data exist, without reading the points and without torch.

    Raises: UnknownName for a name that is no data set; DataNotFound, with a hint, when files are missing;
    InvalidInput for files of another form, or options that the data do not have.
    """
    source = _source(settings)
    if source is None:
        _user_function(settings)
        return
    if source.kind == "text" and (settings.image_size is not None or settings.flip is not None):
        raise InvalidInput(f"{settings.name} is text and has no image_size or flip; leave them out")
    if source.check is not None:
        source.check(settings)


def data_kind(settings: DataSettings) -> str:
    """`"images"` or `"text"`; archray calls a user's function to find out. Raises: as `load_data`."""
    source = _source(settings)
    return load_data(settings).kind if source is None else source.kind


def load_data(settings: DataSettings, device: str | torch.device = "cpu") -> Dataset | TextDataset:
    """The data set of these settings, images on `device`; this process keeps the last four.

    Raises: as `check_data`; InvalidInput for points that cannot be used.
    """
    return _loaded(settings, str(device))


def load_images(settings: DataSettings, device: str | torch.device = "cpu") -> Dataset:
    """`load_data` for code that needs images. Raises: also InvalidInput if the data are texts."""
    _check_kind(settings, "images", "digits")
    dataset = load_data(settings, device)
    assert not isinstance(dataset, TextDataset)  # by the check
    return dataset


def load_text(settings: DataSettings) -> TextDataset:
    """`load_data` for code that needs texts. Raises: also InvalidInput if the data are images."""
    _check_kind(settings, "text", "docstrings")
    dataset = load_data(settings)
    assert isinstance(dataset, TextDataset)  # by the check
    return dataset


def _check_kind(settings: DataSettings, expected: str, example: str) -> None:
    kind = data_kind(settings)
    if kind != expected:
        raise InvalidInput(f"expected a data set of {expected}, got {settings.name!r} ({kind}); try {example!r}")


def read_data(settings: DataSettings, device: str | torch.device = "cpu") -> Dataset | TextDataset:
    """`load_data`, read again."""
    source = _source(settings)
    if source is None:
        return _user_dataset(settings, device)
    check_data(settings)
    raw: Any = source.read(settings)
    if isinstance(raw, RawText):
        return make_text_dataset(raw, settings)
    if isinstance(raw, RawFiles):
        from archray.trainables.data.image_stream import make_streamed_dataset

        return make_streamed_dataset(raw, settings).to(device)
    from archray.trainables.data.dataset import make_dataset

    return make_dataset(raw, settings).to(device)


_loaded = lru_cache(maxsize=4)(read_data)


def _user_dataset(settings: DataSettings, device: str | torch.device) -> Dataset | TextDataset:
    from archray.trainables.data.dataset import Dataset

    dataset = call_reference(settings.name, _user_function(settings), settings)
    if isinstance(dataset, TextDataset):
        return dataset
    if not isinstance(dataset, Dataset):
        raise InvalidInput(
            f"expected {settings.name!r} to return an archray.trainables.data.Dataset (or TextDataset), "
            f"got {type(dataset).__name__}"
        )
    return dataset.to(device)


def _source(settings: DataSettings) -> DataSource | None:
    """The registered source of a name; None if the name is a reference to a user's function."""
    for prefix in PATH_PREFIXES:
        if settings.name.startswith(prefix) and len(settings.name) > len(prefix):
            return DATASETS.get(f"{prefix}PATH")
    for prefix, name in PREFIXES.items():
        if settings.name.startswith(prefix):
            return DATASETS.get(name)
    if settings.name in DATASETS or not is_reference(settings.name):
        return DATASETS.get(settings.name)
    return None


def is_own_data(name: str) -> bool:
    """Whether a name is a reference to a user's function, not a data set of archray's or one in files."""
    return is_reference(name) and _source(DataSettings(name=name)) is None


def _user_function(settings: DataSettings) -> Callable[[DataSettings], Any]:
    function = load_reference(settings.name)
    if not callable(function):
        raise UnknownName(
            f"expected {settings.name!r} to be a function from DataSettings to a Dataset, got {type(function).__name__}"
        )
    return function
