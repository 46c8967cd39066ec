"""Small data sources: digits, random images, CIFAR, ImageNet16-120 and IMDb. Imports torchvision only for CIFAR."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from archray.errors import DataNotFound, InvalidInput
from archray.trainables.data import parquet
from archray.trainables.data.raw import Part, RawData, RawText
from archray.trainables.data.settings import DataSettings


def _data_folder(settings: DataSettings, folders: Sequence[str], patterns: Sequence[str], hint: str) -> Path:
    """Returns the first of `folders`, in the data directory, that contains a file for each pattern.

    Raises: DataNotFound, with the patterns without a file and where to get the files.
    """
    if settings.data_dir is None:
        raise DataNotFound(f"expected a data directory for {settings.name}, got none; {hint}")
    for name in folders:
        folder = Path(settings.data_dir) / name
        missing = [pattern for pattern in patterns if not any(file.is_file() for file in folder.glob(pattern))]
        if not missing:
            return folder
        if len(missing) < len(patterns):
            break  # the folder contains some of the files
    raise DataNotFound(f"{settings.name}: expected {', '.join(missing)} in {folder}, got none; {hint}")


# Digits: 1,797 real 8 x 8 images of handwritten digits (Alpaydin and Kaynak 1998, UCI).

PIXEL_MAXIMUM = 16.0  # a pixel is the number of dark pixels in a block of 4 x 4
TABLE = "datasets/data/digits.csv.gz"  # in scikit-learn: one row per image with its 64 pixels and its label


def read_digits(settings: DataSettings) -> RawData:
    """Reads all 1,797 images, (n, 1, 8, 8), like `sklearn.datasets.load_digits`.

    It does not import scikit-learn, which would take a second in every process and worker.
    """
    spec = find_spec("sklearn")
    folders = [] if spec is None else spec.submodule_search_locations or []
    tables = [table for folder in folders if (table := Path(folder) / TABLE).is_file()]
    if not tables:
        raise DataNotFound(
            f"expected the file {TABLE} in scikit-learn, got none; reinstall it: pip install scikit-learn"
        )
    rows = np.loadtxt(tables[0], delimiter=",")  # (n, 65)
    images = (rows[:, :-1].reshape(-1, 1, 8, 8) / PIXEL_MAXIMUM).astype(np.float32)
    return RawData(
        train=(images, rows[:, -1].astype(np.int64)),
        num_classes=10,
        validation_fraction=0.25,
        classes=tuple("0123456789"),
        flip=False,
    )


# Gaussian: random images and labels, for training-free metrics without data (note H5) and for tests.

IMAGE_SIZE = 32
CHANNELS = 3
CLASSES = 10
TRAIN_IMAGES = 1024
HELD_OUT_IMAGES = 256  # in the validation part and in the test part


def read_gaussian(settings: DataSettings) -> RawData:
    """Draws pixels from N(0, 1) and uniform labels of 10 classes by `settings.seed`; by default 3 x 32 x 32."""
    rng = np.random.default_rng(settings.seed)
    size = settings.image_size or IMAGE_SIZE

    def draw(count: int) -> Part:
        images = rng.standard_normal((count, CHANNELS, size, size), dtype=np.float32)
        return images, rng.integers(CLASSES, size=count)

    train, validation, test = (draw(count) for count in (TRAIN_IMAGES, HELD_OUT_IMAGES, HELD_OUT_IMAGES))
    return RawData(train, CLASSES, validation, test, normalized=True)


# CIFAR-10 and CIFAR-100 from the published Python batches, read by torchvision (Krizhevsky 2009).


class Cifar(NamedTuple):
    """Location of the files of one CIFAR data set, and its statistics per channel in 0..255, as in NAS-Bench-201."""

    folder: str
    files: tuple[str, ...]
    archive: str
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    validation_fraction: float | None  # None: NAS-Bench-201 halves CIFAR-100's test images, not its training images


CIFAR = {
    "cifar10": Cifar(
        folder="cifar-10-batches-py",
        files=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
        archive="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        classes=10,
        mean=(125.3, 123.0, 113.9),
        std=(63.0, 62.1, 66.7),
        validation_fraction=0.5,
    ),
    "cifar100": Cifar(
        folder="cifar-100-python",
        files=("train", "test"),
        archive="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        classes=100,
        mean=(129.3, 124.1, 112.4),
        std=(68.2, 65.4, 70.4),
        validation_fraction=None,
    ),
}


def check_cifar(settings: DataSettings) -> None:
    """Raises: DataNotFound, with the missing files and where to get them."""
    if parquet.is_parquet(settings.data_dir):
        parquet.layout_of(Path(settings.data_dir or ""), settings)
        return
    cifar = CIFAR[settings.name]
    hint = (
        f"download {cifar.archive} and unpack it, so that the data directory contains {cifar.folder}/, "
        "or give another directory, or one with Parquet files, with --data-dir (data_dir)"
    )
    _data_folder(settings, [cifar.folder], cifar.files, hint)


def cifar_files(settings: DataSettings) -> dict[str, Path]:
    """Returns the files that `read_cifar` reads, by their names in the data directory: batches, or Parquet files."""
    folder, cifar = Path(settings.data_dir or ""), CIFAR[settings.name]
    if parquet.is_parquet(settings.data_dir):
        layout = parquet.layout_of(folder, settings)
        return {str(file.relative_to(folder)): file for rows in layout.parts.values() for file in rows.files}
    return {name: folder / name for name in (f"{cifar.folder}/{file}" for file in cifar.files)}


def read_cifar(settings: DataSettings) -> RawData:
    """Reads training and test images, (n, 3, 32, 32) of 8 bits.

    torchvision compares the files' MD5 with the published one. Raises: DataNotFound if they differ.
    """
    cifar = CIFAR[settings.name]
    published: dict[str, Any] = {
        "mean": tuple(value / 255 for value in cifar.mean),
        "std": tuple(value / 255 for value in cifar.std),
        "validation_fraction": cifar.validation_fraction,
    }
    if parquet.is_parquet(settings.data_dir):
        raw = parquet.read_layout(parquet.layout_of(Path(settings.data_dir or ""), settings), settings)
        if raw.num_classes != cifar.classes:
            raise InvalidInput(
                f"expected {cifar.classes} classes in the Parquet files of {settings.name} in {settings.data_dir}, got "
                f"{raw.num_classes}. Choose data.label_column, or use parquet:PATH"
            )
        return replace(raw, **published)
    from torchvision.datasets import CIFAR10, CIFAR100  # takes seconds to import

    kind = {"cifar10": CIFAR10, "cifar100": CIFAR100}[settings.name]
    try:
        train, test = (kind(settings.data_dir, train=training, download=False) for training in (True, False))
    except RuntimeError as error:
        raise DataNotFound(
            f"expected the published files of {settings.name} in {settings.data_dir}, got damaged or other ones "
            f"({error}); download {cifar.archive} again and unpack it there"
        ) from error
    train_part, test_part = (
        (part.data.transpose(0, 3, 1, 2), np.asarray(part.targets, dtype=np.int64)) for part in (train, test)
    )
    return RawData(
        train=train_part,
        test=test_part,
        num_classes=cifar.classes,
        classes=tuple(train.classes),
        **published,
    )


# ImageNet16-120: the first 120 classes of ImageNet at 16 x 16 (Chrabaszcz et al. 2017; Dong and Yang 2020), from the
# published pickled batches of Downsampled ImageNet: dicts with `data`, (n, 768) of 8 bits, channel by channel, and
# `labels` in 1..1000.

IMAGENET_CLASSES = 120
IMAGENET_SIZE = 16
TRAIN_FILES = tuple(f"train_data_batch_{number}" for number in range(1, 11))
TEST_FILE = "val_data"
IMAGENET_MEAN = (122.68, 116.66, 104.01)  # of 255, NAS-Bench-201's
IMAGENET_STD = (63.22, 61.26, 65.09)
IMAGENET_FOLDERS = ("", "ImageNet16")
IMAGENET_HINT = (
    "get Imagenet16_train and Imagenet16_val of Downsampled ImageNet from https://image-net.org/download-images "
    "(or ImageNet16.tar.gz of NAS-Bench-201), unpack them into one folder, and give it with --data-dir (data_dir)"
)

# Names that a pickle of a dict of NumPy arrays needs, under NumPy 1 and 2. Any other name in the file raises an error.
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"{core}.multiarray", name) for core in ("numpy.core", "numpy._core") for name in ("_reconstruct", "scalar")),
    *((f"{core}.numeric", "_frombuffer") for core in ("numpy.core", "numpy._core")),
    ("_codecs", "encode"),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"contains {module}.{name}, which a batch of images does not need")
        return super().find_class(module, name)


def imagenet_folder(settings: DataSettings) -> Path:
    """Returns the folder with all batches. Raises: DataNotFound, with the missing files and where to get them."""
    return _data_folder(settings, IMAGENET_FOLDERS, (*TRAIN_FILES, TEST_FILE), IMAGENET_HINT)


def read_imagenet16(settings: DataSettings) -> RawData:
    """Reads training images, and ImageNet's validation images as the test part (by default half is for validation).

    Raises: DataNotFound if a file is not such a batch.
    """
    folder = imagenet_folder(settings)
    batches = [_batch(folder / file) for file in TRAIN_FILES]
    images, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    return RawData(
        train=(images, labels),
        test=_batch(folder / TEST_FILE),
        num_classes=IMAGENET_CLASSES,
        mean=tuple(value / 255 for value in IMAGENET_MEAN),
        std=tuple(value / 255 for value in IMAGENET_STD),
        validation_fraction=None,  # NAS-Bench-201 halves the official validation images
    )


def _batch(file: Path) -> Part:
    """Reads images (n, 3, 16, 16) and labels 0..119 of the first 120 classes from one batch."""
    try:
        with file.open("rb") as stream:
            batch = _ArrayUnpickler(stream, encoding="latin1").load()
        data = np.asarray(batch["data"], dtype=np.uint8)
        labels = np.asarray(batch["labels"], dtype=np.int64) - 1
        images = data.reshape(len(labels), 3, IMAGENET_SIZE, IMAGENET_SIZE)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise DataNotFound(
            f"expected a batch of Downsampled ImageNet at 16 x 16 (a pickled dict of data, (n, 768), and labels), got "
            f"{file}: {error}; download it again"
        ) from error
    chosen = labels < IMAGENET_CLASSES
    return images[chosen], labels[chosen]


# IMDb: 50,000 film reviews, negative or positive (Maas et al. 2011); Khodak et al. 2020, appendix B.2.2.

IMDB_FOLDER = "aclImdb"
IMDB_CLASSES = ("neg", "pos")
IMDB_HINT = (
    f"download https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz and unpack it, so that the directory "
    f"contains {IMDB_FOLDER}/, or give another directory with --data-dir (data_dir)"
)


def imdb_folder(settings: DataSettings) -> Path:
    """Returns the folder with reviews in four folders. Raises: DataNotFound, with the empty ones and the download."""
    patterns = [f"{part}/{cls}/*.txt" for part in ("train", "test") for cls in IMDB_CLASSES]
    return _data_folder(settings, [IMDB_FOLDER], patterns, IMDB_HINT)


def read_imdb(settings: DataSettings) -> RawText:
    """Reads the published parts, 25,000 reviews each. By default half of the test part is for validation.

    The folder `train/unsup` has no labels and is skipped. Raises: DataNotFound for a file that is not UTF-8 text.
    """
    folder = imdb_folder(settings)
    return RawText(
        train=_reviews(folder / "train"),
        test=_reviews(folder / "test"),
        num_classes=len(IMDB_CLASSES),
        classes=IMDB_CLASSES,
        validation_fraction=None,  # 25K / 12.5K / 12.5K
    )


def _reviews(folder: Path) -> Part:
    texts: list[str] = []
    labels: list[int] = []
    for label, cls in enumerate(IMDB_CLASSES):
        for file in sorted((folder / cls).glob("*.txt")):
            try:
                texts.append(file.read_text(encoding="utf-8"))
            except UnicodeDecodeError as error:
                raise DataNotFound(f"expected a text in UTF-8, got {file} ({error}); {IMDB_HINT}") from error
            labels.append(label)
    return np.array(texts, dtype=np.object_), np.array(labels, dtype=np.int64)
