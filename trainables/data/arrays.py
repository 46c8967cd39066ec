"""Custom images as arrays, stored in one .npz file that every worker can read."""

import logging
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from archray.errors import DataNotFound, InvalidInput
from archray.files import whole_file
from archray.plurals import count
from archray.trainables.data.raw import Part, RawData, number_of_classes
from archray.trainables.data.settings import DataSettings

logger = logging.getLogger(__name__)

PARTS = ("train", "validation", "test")
NAMES = tuple(f"{axis}_{part}" for part in PARTS for axis in "xy")
FORM = (
    "x_train (images) and y_train (labels 0..K-1), and, if you have them, x_validation, y_validation, x_test, "
    "y_test. Write it with archray.trainables.data.save_arrays"
)


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
    if x.ndim != 4 or x.dtype.kind not in "uif":
        raise InvalidInput(
            f"expected x_{name} of {where} as numbers of shape (n, H, W), (n, C, H, W) or (n, H, W, C), "
            f"got {x.dtype} of {x.shape}"
        )
    if y.shape != (len(x),) or y.dtype.kind not in "ui" or len(y) == 0 or y.min() < 0:
        raise InvalidInput(
            f"expected y_{name} of {where} as {count(len(x), 'non-negative integer')} (and at least one), "
            f"got {y.dtype} of {y.shape}"
        )
    if x.dtype != np.uint8:
        x = x.astype(np.float32)
    return x, y.astype(np.int64)
