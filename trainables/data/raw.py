"""Raw data of a reader: seeded, stratified splits, data sets of texts, and a cache. Imports no torch."""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import numpy.typing as npt

from archray.errors import InvalidInput
from archray.files import whole_file
from archray.plurals import count
from archray.trainables.data.settings import DataSettings

Labels = npt.NDArray[np.int64]  # (n,) in 0..K-1
# Points and labels. Points are texts, (n,) of str; names; or images, (n, C, H, W), uint8 in 0..255 or float.
Part = tuple[npt.NDArray[Any], Labels]

SHOWN = 10  # missing labels in a message
TEST_FRACTION = 0.2  # of all points, for a data set without a test part

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RawParts:
    """One data set as stored in its files. Parts that are None are split from the others (see `split_parts`)."""

    train: Part
    num_classes: int
    validation: Part | None = None
    test: Part | None = None
    validation_fraction: float | None = 0.2  # default share of `train`; None splits `test` in half
    classes: tuple[str, ...] = ()  # names of the labels 0..K-1; empty if unknown


@dataclass(frozen=True)
class RawText(RawParts):
    """Texts."""


@dataclass(frozen=True)
class RawFiles(RawParts):
    """Images in files: points are names, (n,) of bytes, relative to `folder`."""

    folder: str = ""


@dataclass(frozen=True)
class RawData(RawParts):
    """Images."""

    mean: tuple[float, ...] | None = None  # published, per channel, of images in 0..1; None computes it from `train`
    std: tuple[float, ...] | None = None
    flip: bool = True  # whether a mirrored image keeps its label
    normalized: bool = False  # whether the images are already normalized (gaussian)


def number_of_classes(
    labels: Mapping[str, npt.NDArray[Any]], expected: int | None = None, advice: str = "Renumber the classes"
) -> int:
    """Returns the number of classes K.

    Args:
        labels: Integers, (n,) of each part, by the name of their array or column in messages; training labels first.
        expected: K, if class names define it; None: the training labels are 0..K-1, each at least once.
        advice: Last sentence of an error.

    Raises: InvalidInput for other labels, or one class.
    """
    first, train = next(iter(labels.items()))
    values = np.unique(train)
    num_classes = expected or int(values[-1]) + 1
    if expected is None and values[0] >= 0 and len(values) < num_classes:
        missing = np.setdiff1d(np.arange(min(len(values) + SHOWN, num_classes)), values)[:SHOWN]  # the smallest ones
        raise InvalidInput(
            f"expected each label 0..{num_classes - 1} at least once in {first}, got {len(values)} of them; missing: "
            f"{', '.join(map(str, missing))}. {advice}"
        )
    for place, of_part in labels.items():
        low, high = of_part.min(), of_part.max()
        if low < 0 or high >= num_classes:
            raise InvalidInput(
                f"expected labels from 0 to {max(num_classes, 2) - 1} in {place}, got {low} to {high}. {advice}"
            )
    if num_classes < 2:
        raise InvalidInput(
            f"expected two or more classes in {first}, got only {values[0]}. Add images of another class"
        )
    return num_classes


def stratified_split(labels: Labels, fraction: float, seed: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Splits indices into (kept, held out): `fraction` of the points, drawn by `seed`, with class proportions kept.

    In total, round(fraction * n) points are held out: each class contributes the integer part of its share, and the
    classes with the largest remainders one more. Both index arrays are sorted.

    Raises: InvalidInput if a part would be empty.
    """
    rng = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    total = round(fraction * len(labels))
    if total == 0 or total == len(labels):
        raise InvalidInput(
            f"expected enough data to hold out a share of {fraction}, got {count(len(labels), 'point')}. Give more "
            "points, separate validation and test parts, or another validation_fraction"
        )
    exact = fraction * counts
    take = np.floor(exact).astype(int)
    remainders = exact - take
    order = np.argsort(-remainders, kind="stable")  # ties go to the lower class
    take[order[: total - take.sum()]] += 1
    held = [rng.permutation(np.flatnonzero(labels == cls))[:n] for cls, n in zip(classes, take, strict=True)]
    mask = np.zeros(len(labels), dtype=bool)
    mask[np.concatenate(held)] = True
    return np.flatnonzero(~mask), np.flatnonzero(mask)


def split_parts(raw: RawParts, settings: DataSettings) -> tuple[Part, Part, Part]:
    """Splits a data set into (train, validation, test) with at most `limit` points each. Existing parts are kept.

    A missing test part is 20 % of all points. A missing validation part is `validation_fraction` of the remaining
    training points. If neither the settings nor the data set define a fraction, it is half of the test part.

    Raises: InvalidInput if a part would be empty.
    """
    train, validation, test = raw.train, raw.validation, raw.test
    seed = settings.seed
    if test is None:
        train, test = _hold_out(train, TEST_FRACTION, seed)
    if validation is None:
        fraction = raw.validation_fraction if settings.validation_fraction is None else settings.validation_fraction
        if fraction is None:
            validation, test = _hold_out(test, 0.5, seed + 1)
        else:
            train, validation = _hold_out(train, fraction, seed + 1)
    for name, (_, labels) in {"training": train, "validation": validation, "test": test}.items():
        if len(labels) == 0:
            raise InvalidInput(f"expected points in the {name} part of {settings.name}, got none. Add at least one")
    limit = settings.limit
    return _limited(train, limit, seed + 2), _limited(validation, limit, seed + 2), _limited(test, limit, seed + 2)


def _limited(part: Part, limit: int | None, seed: int) -> Part:
    if limit is None or limit >= len(part[1]):
        return part
    return _hold_out(part, limit / len(part[1]), seed)[1]


def _hold_out(part: Part, fraction: float, seed: int) -> tuple[Part, Part]:
    points, labels = part
    kept, held = stratified_split(labels, fraction, seed)
    return (points[kept], labels[kept]), (points[held], labels[held])


@dataclass(frozen=True)
class TextSplit:
    """Texts and their labels."""

    texts: tuple[str, ...]
    labels: Labels  # (n,) int64 in 0..K-1

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.texts),) or self.labels.dtype != np.int64:
            raise InvalidInput(
                f"expected a 64-bit label for each of {count(len(self.texts), 'text')}, "
                f"got {self.labels.dtype} of {self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TextDataset:
    """Texts in three parts."""

    kind: ClassVar[str] = "text"

    name: str
    train: TextSplit
    validation: TextSplit
    test: TextSplit
    num_classes: int
    classes: tuple[str, ...]  # names of the labels 0..K-1

    def checksum(self) -> str:
        """Computes the SHA-256, in hex, of class names, texts and labels, in the order train, validation, test."""
        digest = hashlib.sha256(f"{self.classes};".encode())
        for split in (self.train, self.validation, self.test):
            digest.update(f"{len(split)};".encode())
            for text in split.texts:
                encoded = text.encode("utf-8", "surrogatepass")
                digest.update(f"{len(encoded)};".encode())
                digest.update(encoded)
            digest.update(np.ascontiguousarray(split.labels).data)
        return digest.hexdigest()


def make_text_dataset(raw: RawText, settings: DataSettings) -> TextDataset:
    """Splits and limits, in this order. Raises: InvalidInput if a part would be empty."""
    train, validation, test = (
        TextSplit(tuple(texts.tolist()), np.ascontiguousarray(labels, dtype=np.int64))
        for texts, labels in split_parts(raw, settings)
    )
    return TextDataset(settings.name, train, validation, test, raw.num_classes, raw.classes)


def cache_folder() -> Path:
    """Returns archray's cache folder by the XDG base directory specification, which ignores a relative path."""
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (root if root.is_absolute() else Path("~/.cache").expanduser()) / "archray"


def cached_json(name: str, make: Callable[[], Any]) -> Any:
    """Returns the result of `make`, cached in the file `name` of the cache folder.

    The file is complete or absent, even if other processes write it. An error while reading or writing the cache only
    logs a warning.
    """

    def decode(file: Path) -> Any:
        return json.loads(file.read_bytes())

    return _cached(name, make, decode, lambda value, stream: stream.write(json.dumps(value).encode()))


def cached_array(name: str, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Like `cached_json`, for an array. A cached array is mapped: parts of the file are read when they are used."""

    def decode(file: Path) -> npt.NDArray[Any]:
        # Changes stay in this process: torch warns about arrays that cannot be changed.
        array: npt.NDArray[Any] = np.load(file, mmap_mode="c", allow_pickle=False)
        return array

    return _cached(name, make, decode, lambda array, stream: np.save(stream, array, allow_pickle=False))


def _cached(
    name: str, make: Callable[[], Any], decode: Callable[[Path], Any], encode: Callable[[Any, BinaryIO], object]
) -> Any:
    file = cache_folder() / name
    try:
        return decode(file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, EOFError) as error:
        logger.warning("archray cannot read the cached file %s and computes it again (%s)", file, error)
    value = make()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as stream:
            encode(value, stream)
    except OSError as error:
        logger.warning("archray cannot write the cached file %s, so each process computes it again (%s)", file, error)
    return value
