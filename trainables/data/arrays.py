"""Custom images as arrays or torch data sets, stored in one .npz file that every worker can read."""

import logging
import operator
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from archray.errors import DataNotFound, InvalidInput
from archray.files import whole_file
from archray.plurals import count
from archray.references import call_reference
from archray.trainables.data.image_form import converted
from archray.trainables.data.raw import Labels, Part, RawData, number_of_classes
from archray.trainables.data.settings import DataSettings

logger = logging.getLogger(__name__)

LINE_SECONDS = 10.0  # minimum time between two progress lines
SHOWN = 3  # labels in a message
PARTS = ("train", "validation", "test")
NAMES = tuple(f"{axis}_{part}" for part in PARTS for axis in "xy")
FORM = (
    "x_train (images) and y_train (labels 0..K-1), and, if you have them, x_validation, y_validation, x_test, "
    "y_test. Write it with archray.trainables.data.save_arrays"
)


class MapDataset(Protocol):
    """A map-style torch data set: an image and an integer label by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


# Data of a call in Python: 2 or 4 arrays (x_train, y_train[, x_test, y_test]), or data sets: one, or (train, test).
Arrays = Sequence[Any] | MapDataset


def save_arrays(
    path: str | Path,
    x_train: npt.ArrayLike,
    y_train: npt.ArrayLike,
    x_test: npt.ArrayLike | None = None,
    y_test: npt.ArrayLike | None = None,
    x_validation: npt.ArrayLike | None = None,
    y_validation: npt.ArrayLike | None = None,
) -> str:
    """Writes images and labels to `path` (.npz) and returns the name of the data set: `arrays:PATH`.

    Args:
        x_*: Images, (n, H, W), (n, C, H, W) or (n, H, W, C) with C 1 or 3; 8-bit, or float of any scale (channels are
            standardized by the training images on loading).
        y_*: (n,) labels, integers 0..K-1. Parts that are left out are split from the training images by seed.

    Returns: The name `arrays:PATH` for `DataSettings.name` and `--data`.

    Raises: InvalidInput for other shapes, other labels, or images without labels.
    """
    path = Path(path).expanduser().absolute()
    if path.suffix != ".npz":
        raise InvalidInput(f"expected a path that ends in .npz, got {path}")
    stored: dict[str, Any] = {}
    for name, x, y in zip(PARTS, (x_train, x_validation, x_test), (y_train, y_validation, y_test), strict=True):
        if (x is None) != (y is None):
            raise InvalidInput(f"expected both x_{name} and y_{name} or neither, got one of them. Give both")
        if x is not None and y is not None:
            stored[f"x_{name}"], stored[f"y_{name}"] = _array(x, f"x_{name}"), _array(y, f"y_{name}")
    _raw(stored, "the arrays")
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as stream:
        np.savez_compressed(stream, **stored)
    return f"arrays:{path}"


def is_dataset(data: Any) -> bool:
    """Returns whether data are a data set with a length and items by index, not arrays or lists."""
    is_sized = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return is_sized and not isinstance(data, type | str | Sequence | Mapping) and not hasattr(data, "__array__")


def check_arrays(data: Any) -> None:
    """Raises: InvalidInput unless `data` are `Arrays`. Their content is not read."""
    parts = data if isinstance(data, tuple | list) else [data]
    for part in parts:
        torch_data = sys.modules.get("torch.utils.data")  # imported, if there is such an object
        if torch_data is not None and isinstance(part, torch_data.IterableDataset):
            raise InvalidInput(
                f"expected a Dataset with a length and items by index as data, got the IterableDataset "
                f"{type(part).__name__}. Collect its images and labels into arrays, or write image files for "
                "imagefolder-stream:PATH"
            )
        if torch_data is not None and isinstance(part, torch_data.DataLoader):
            raise InvalidInput(
                "expected a Dataset as data, got a DataLoader. Pass loader.dataset; archray makes batches"
            )
    datasets = sum(map(is_dataset, parts))
    if parts is data and not datasets and len(parts) in (2, 4):
        return
    if datasets != len(parts) or len(parts) not in (1, 2):
        names = [type(part).__name__ for part in parts]
        got = f"{count(len(parts), 'object')} ({', '.join(names)})" if parts is data else names[0]
        raise InvalidInput(
            "expected data as a name, 2 or 4 arrays (x_train, y_train[, x_test, y_test]), a torch Dataset, two data "
            f"sets (train, test), or a function from DataSettings to a Dataset, got {got}"
        )


def read_arrays(data: Arrays, say: Callable[[str], None]) -> tuple[Any, ...]:
    """Returns arrays for `save_arrays`: the data unchanged, or the items of data sets, each read once.

    Args:
        data: as `check_arrays` accepts.
        say: called with a line of progress every 10 seconds.

    Raises: InvalidInput, with the number of the item, for an item that fails or is not an image and an integer label,
    or for images of different sizes.
    """
    datasets = list(data) if isinstance(data, Sequence) else [data]
    if not is_dataset(datasets[0]):
        return tuple(datasets)
    parts = zip(datasets, ("training", "test"), strict=False)
    return tuple(array for dataset, part in parts for array in _read_dataset(dataset, part, say))


def _read_dataset(dataset: MapDataset, part: str, say: Callable[[str], None]) -> tuple[npt.NDArray[Any], Labels]:
    """Reads images (n, H, W), (n, C, H, W) or (n, H, W, C), 8-bit or float32, and labels (n,)."""
    items, last_line = len(dataset), time.monotonic()
    if items == 0:
        raise InvalidInput(f"expected items in the {part} data, got a {type(dataset).__name__} of length 0")
    labels = np.empty(items, np.int64)
    for index in range(items):
        where = f"item {index} of the {part} data"
        item = call_reference(where, operator.getitem, dataset, index)
        if not isinstance(item, tuple | list) or len(item) != 2:
            got = count(len(item), "value") if isinstance(item, tuple | list) else f"a {type(item).__name__}"
            raise InvalidInput(f"expected {where} as (image, label), got {got}. Return an image and its label")
        image, label = _image(item[0], where), _array(item[1], f"the label in {where}")
        if label.size != 1 or label.dtype.kind not in "ui":
            raise InvalidInput(
                f"expected the label in {where} as an integer 0..K-1, got {repr(item[1])[:80]}. Number the classes"
            )
        if index == 0:
            images = _empty((items, *image.shape), image.dtype)
        if (image.shape, image.dtype) != (images.shape[1:], images.dtype):
            raise InvalidInput(
                f"expected images of one size and type, got {image.dtype} of {image.shape} in {where} and "
                f"{images.dtype} of {images.shape[1:]} in item 0. Convert or resize them in the data set's transform"
            )
        images[index], labels[index] = image, label.reshape(())
        if time.monotonic() - last_line >= LINE_SECONDS:
            last_line = time.monotonic()
            say(f"read {index + 1:,} of {count(items, 'image')} of the {part} data")
    return images, labels


def _image(value: Any, where: str) -> npt.NDArray[Any]:
    """Converts a PIL image, an array or a tensor to (H, W), (C, H, W) or (H, W, C), 8-bit or float32."""
    from PIL import Image  # only for data sets

    if isinstance(value, Image.Image) and value.mode != "L" and value.mode[0] not in "IF":  # other gray levels
        value = converted(value, "L" if value.mode == "1" else "RGB")
    image = _array(value, f"the image in {where}")
    if image.ndim not in (2, 3) or image.dtype.kind not in "uif":
        raise InvalidInput(
            f"expected the image in {where} as a PIL image or numbers of shape (H, W), (C, H, W) or (H, W, C), got "
            f"{image.dtype} of {image.shape}. Convert it in the data set's transform"
        )
    return image if image.dtype == np.uint8 else image.astype(np.float32, copy=False)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    try:
        return np.empty(shape, dtype)
    except MemoryError as error:
        raise InvalidInput(
            f"expected images that fit in memory, got {dtype} of {shape} ({error}). Resize them, or write image files "
            "for imagefolder-stream:PATH"
        ) from error


def _array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Converts lists or tensors. Raises: InvalidInput for lists of unequal lengths, or a tensor that NumPy rejects."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInput(
            f"expected {name} as an array, or lists of equal lengths, got a {type(values).__name__} that NumPy rejects "
            f"({error}). Convert it"
        ) from error


def check(settings: DataSettings) -> None:
    """Raises: DataNotFound without such a file; InvalidInput if it is not an .npz file with these arrays."""
    path = settings.path
    if not path.is_file():
        entry = "a folder" if path.is_dir() else "no file"
        raise DataNotFound(f"expected an .npz file at {path}, got {entry}. Give a file with {FORM}")
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise InvalidInput(f"expected an .npz file, got {path}, which is not one. Give a file with {FORM}") from error
    _check_names(names, str(path))


def read(settings: DataSettings) -> RawData:
    """Reads the arrays as parts, images as (n, C, H, W); ignores arrays with other names.

    Raises: InvalidInput as `save_arrays`.
    """
    try:
        with np.load(settings.path, allow_pickle=False) as archive:
            stored = {name: archive[name] for name in archive.files if name in NAMES}
            ignored = sorted(set(archive.files) - set(NAMES))
    except (ValueError, zipfile.BadZipFile) as error:  # BadZipFile: a damaged array in an undamaged archive
        raise InvalidInput(f"archray cannot read {settings.path} ({error}). Give plain arrays: {FORM}") from error
    if others := sorted(name for name, content in stored.items() if not isinstance(content, np.ndarray)):
        raise InvalidInput(f"expected arrays in {settings.path}, got other content as {others[0]}. Give {FORM}")
    if ignored:
        logger.warning("%s: archray ignores the arrays %s", settings.path, ", ".join(ignored))
    return _raw(stored, str(settings.path))


def _raw(stored: dict[str, npt.NDArray[Any]], where: str) -> RawData:
    _check_names(set(stored), where)
    parts: dict[str, Any] = {
        name: _part(stored[f"x_{name}"], stored[f"y_{name}"], name, where) for name in PARTS if f"x_{name}" in stored
    }
    num_classes = number_of_classes({f"y_{name} of {where}": labels for name, (_, labels) in parts.items()})
    for name, (images, _) in parts.items():
        if images.shape[1:] != parts["train"][0].shape[1:]:
            raise InvalidInput(
                f"expected images of the same shape in all parts, got {images.shape[1:]} in x_{name} of {where} and "
                f"{parts['train'][0].shape[1:]} in x_train"
            )
    return RawData(**parts, num_classes=num_classes)


def _check_names(names: set[str], where: str) -> None:
    needed = {"x_train", "y_train"}
    for name in PARTS[1:]:
        if f"x_{name}" in names or f"y_{name}" in names:
            needed |= {f"x_{name}", f"y_{name}"}
    if missing := sorted(needed - names):
        raise InvalidInput(f"{where} lacks {', '.join(missing)}; expected {FORM}")


def _part(x: npt.NDArray[Any], y: npt.NDArray[Any], name: str, where: str) -> Part:
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4 or x.dtype.kind not in "uif" or 0 in x.shape[1:]:
        raise InvalidInput(
            f"expected x_{name} of {where} as numbers of shape (n, H, W), (n, C, H, W) or (n, H, W, C), "
            f"got {x.dtype} of {x.shape}"
        )
    if y.shape != (len(x),) or y.dtype.kind not in "ui" or len(y) == 0 or y.min() < 0:
        wrong = y[y < 0] if y.dtype.kind == "i" and y.shape == (len(x),) else y
        shown = f", such as {', '.join(map(repr, wrong.ravel()[:SHOWN].tolist()))}" if wrong.size else ""
        raise InvalidInput(
            f"expected y_{name} of {where} as {count(len(x), 'non-negative integer')} (and at least one), "
            f"got {y.dtype} of {y.shape}{shown}. Number the classes from 0"
        )
    if x.dtype != np.uint8:
        x = x.astype(np.float32)
    return x, y.astype(np.int64)
