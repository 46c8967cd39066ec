"""Loading of a data set on a device, and the check that runs before Ray starts. Imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archray.errors import InvalidInput, UnknownName, is_out_of_memory
from archray.references import call_reference, is_reference, load_reference
from archray.registry import Registry
from archray.trainables.data import arrays, docstrings, glyphs, hub, image_folder, parquet, sources
from archray.trainables.data.raw import RawFiles, RawParts, RawText, TextDataset, make_text_dataset
from archray.trainables.data.settings import HUB, PATH_PREFIXES, DataSettings

if TYPE_CHECKING:
    import torch

    from archray.trainables.data.dataset import Dataset


@dataclass(frozen=True)
class DataSource:
    """A data set with a name.

    Attributes:
        description: Text of `archray list datasets`.
        read: Function from settings to the points.
        check: Function that raises an error if the points cannot be read; it reads no points. None: always readable.
        kind: "images" or "text".
        files: Function that returns the files by name, for a name that stands for files of several formats.
        options: Those of OPTIONS that the data set reads.
    """

    description: str
    read: Callable[[DataSettings], RawParts]
    check: Callable[[DataSettings], object] | None = None
    kind: str = "images"
    files: Callable[[DataSettings], dict[str, Path]] | None = None
    options: tuple[str, ...] = ()


COLUMNS = ("image_column", "label_column")
OPTIONS = ("data_dir", *COLUMNS)  # of some data sets; an error for others
CIFAR_FUNCTIONS: dict[str, Any] = {
    "read": sources.read_cifar,
    "check": sources.check_cifar,
    "files": sources.cifar_files,
    "options": OPTIONS,
}

DATASETS: Registry[DataSource] = Registry("data set")
for _name, _source_of_name in {
    "digits": DataSource("1,797 real 8 x 8 digits from scikit-learn; no download", sources.read_digits),
    "cifar10": DataSource("60,000 images 32 x 32 in 10 classes; needs --data-dir", **CIFAR_FUNCTIONS),
    "cifar100": DataSource("60,000 images 32 x 32 in 100 classes; needs --data-dir", **CIFAR_FUNCTIONS),
    "imagenet16-120": DataSource(
        "ImageNet's first 120 classes at 16 x 16; needs --data-dir",
        sources.read_imagenet16,
        sources.imagenet_folder,
        options=("data_dir",),
    ),
    "glyphs": DataSource(
        "letters in matplotlib's fonts, 32 x 32; 20 classes, or glyphs:10 to glyphs:50", glyphs.read, glyphs.check
    ),
    "gaussian": DataSource("random images and labels, 3 x 32 x 32; for training-free metrics", sources.read_gaussian),
    "folder:PATH": DataSource(
        "images in PATH/CLASS/IMAGE or PATH/train/CLASS/IMAGE", image_folder.read, image_folder.check
    ),
    "imagefolder-stream:PATH": DataSource(
        "images as in folder:PATH, read during training, for data larger than memory",
        image_folder.read_names,
        image_folder.check,
    ),
    "arrays:PATH": DataSource("arrays in an .npz file from save_arrays", arrays.read, arrays.check),
    "parquet:PATH": DataSource(
        "encoded images and labels in Parquet files, as on model hubs",
        parquet.read,
        parquet.check,
        options=COLUMNS,
    ),
    "hf:NAME": DataSource(
        "images of the Hugging Face Hub, or a folder, that the library datasets loads",
        hub.read,
        hub.check,
        options=COLUMNS,
    ),
    "docstrings": DataSource(
        "texts: docstrings of five installed libraries, or of some: docstrings:numpy,torch",
        docstrings.read,
        docstrings.check,
        "text",
    ),
    "imdb": DataSource(
        "texts: 50,000 film reviews in 2 classes; needs --data-dir",
        sources.read_imdb,
        sources.imdb_folder,
        "text",
        options=("data_dir",),
    ),
}.items():
    DATASETS.register(_name, _source_of_name)

# Prefixes of names with libraries, a number or another name after them.
PREFIXES = {docstrings.PREFIX: "docstrings", glyphs.PREFIX: "glyphs", HUB: "hf:NAME"}


def check_data(settings: DataSettings) -> None:
    """Checks that the data exist, without reading the points and without torch.

    Raises: UnknownName for an unknown name; DataNotFound, with a hint, if files are missing; InvalidInput for files
    in another format, or options that the data do not have.
    """
    source = _source(settings)
    if source is None:
        _user_function(settings)
        return
    if source.kind == "text" and (settings.image_size is not None or settings.flip is not None):
        raise InvalidInput(f"expected no image_size or flip for the texts of {settings.name}, got one. Leave them out")
    for option in OPTIONS:
        if (value := getattr(settings, option)) is not None and option not in source.options:
            names = [name for name in DATASETS.names() if option in DATASETS.get(name).options]
            raise InvalidInput(
                f"expected no data.{option} for {settings.name}, which does not use it, got {value}. Leave it out, or "
                f"choose one of {', '.join(names)}"
            )
    if source.check is not None:
        source.check(settings)


def data_kind(settings: DataSettings) -> str:
    """Returns "images" or "text". For a custom data set, archray calls its function. Raises: as `load_data`."""
    source = _source(settings)
    return load_data(settings).kind if source is None else source.kind


def file_checksums(settings: DataSettings) -> dict[str, str]:
    """Computes the SHA-256, in hex, of each file of CIFAR, since the name stands for two formats; {} for other data."""
    source = _source(settings)
    if source is None or source.files is None:
        return {}
    checksums = {}
    for name, file in source.files(settings).items():
        with file.open("rb") as stream:
            checksums[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return checksums


def load_data(settings: DataSettings, device: str | torch.device = "cpu") -> Dataset | TextDataset:
    """Loads the data set of these settings. The process caches the last four, or the last one on a GPU.

    Args:
        settings: name and options of the data set.
        device: device of the images.

    Returns: images with labels, or texts, in the parts train, validation and test.
    Raises: as `check_data`; InvalidInput for unusable points.

    Example:
        ```python
        data = load_data(DataSettings(name="digits"))
        print(data.train.images.shape, data.num_classes)
        ```
    """
    return (_loaded if str(device) == "cpu" else _on_gpu)(settings, str(device))


def load_images(settings: DataSettings, device: str | torch.device = "cpu") -> Dataset:
    """Like `load_data`, for code that needs images. Raises: also InvalidInput if the data are texts."""
    _check_kind(settings, "images", "digits")
    dataset = load_data(settings, device)
    assert not isinstance(dataset, TextDataset)  # by the check
    return dataset


def load_text(settings: DataSettings) -> TextDataset:
    """Like `load_data`, for code that needs texts. Raises: also InvalidInput if the data are images."""
    _check_kind(settings, "text", "docstrings")
    dataset = load_data(settings)
    assert isinstance(dataset, TextDataset)  # by the check
    return dataset


def _check_kind(settings: DataSettings, expected: str, example: str) -> None:
    kind = data_kind(settings)
    if kind != expected:
        raise InvalidInput(f"expected a data set of {expected}, got {settings.name!r} ({kind}); try {example!r}")


def read_data(settings: DataSettings, device: str | torch.device = "cpu") -> Dataset | TextDataset:
    """Like `load_data`, without the cache."""
    source = _source(settings)
    if source is None:
        return _user_dataset(settings, device)
    check_data(settings)
    try:
        dataset = _prepared(source, settings)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise InvalidInput(
            f"expected data that fit in memory, got {settings.name} with data.image_size "
            f"{settings.image_size or 'of the files'} ({error}). Lower data.image_size, or set data.limit"
        ) from error
    return dataset if isinstance(dataset, TextDataset) else dataset.to(device)


def _prepared(source: DataSource, settings: DataSettings) -> Dataset | TextDataset:
    """Reads and prepares the points on the CPU."""
    raw: Any = source.read(settings)
    if isinstance(raw, RawText):
        return make_text_dataset(raw, settings)
    if isinstance(raw, RawFiles):
        from archray.trainables.data.image_stream import make_streamed_dataset

        return make_streamed_dataset(raw, settings)
    from archray.trainables.data.dataset import make_dataset

    return make_dataset(raw, settings)


_loaded = lru_cache(maxsize=4)(read_data)
_on_gpu = lru_cache(maxsize=1)(read_data)  # the processes of several trials share a GPU, and each has one data set


def _user_dataset(settings: DataSettings, device: str | torch.device) -> Dataset | TextDataset:
    from archray.trainables.data.dataset import Dataset, check_dataset

    dataset = call_reference(settings.name, _user_function(settings), settings)
    if isinstance(dataset, TextDataset):
        return dataset
    if not isinstance(dataset, Dataset):
        raise InvalidInput(
            f"expected {settings.name!r} to return an archray.trainables.data.Dataset (or TextDataset), "
            f"got {type(dataset).__name__}"
        )
    check_dataset(dataset, settings.name)
    return dataset.to(device)


def _source(settings: DataSettings) -> DataSource | None:
    """Returns the registered source of a name; None if the name is a reference to a custom function."""
    for prefix in PATH_PREFIXES:
        if settings.name.startswith(prefix) and len(settings.name) > len(prefix):
            return DATASETS.get(f"{prefix}PATH")
    for prefix, name in PREFIXES.items():
        if settings.name.startswith(prefix):
            return DATASETS.get(name)
    if settings.name in DATASETS or not is_reference(settings.name):
        return DATASETS.get(settings.name)
    return None


def is_custom_data(name: str) -> bool:
    """Whether a name refers to a custom function, not to a data set of archray or in files."""
    return is_reference(name) and _source(DataSettings(name=name)) is None


def _user_function(settings: DataSettings) -> Callable[[DataSettings], Any]:
    function = load_reference(settings.name)
    if not callable(function):
        raise UnknownName(
            f"expected {settings.name!r} as a function from DataSettings to a Dataset, got {type(function).__name__}"
        )
    return function
