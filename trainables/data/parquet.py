"""Images in Parquet files, the layout of image data sets on model hubs: encoded images, and integer labels.

A data set is a file, or a folder with files whose names start with `train`, `validation` (or `valid`, `val`) and `test`
(`data/train-00000-of-00002.parquet`). The image column is binary, or a struct with a field `bytes`. Class names are
those of the metadata that the library `datasets` writes.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from archray.errors import DataNotFound, InvalidInput
from archray.plurals import count
from archray.trainables.data.image_form import MODES, ImageForm, read_picture
from archray.trainables.data.raw import Part, RawData, cached_array
from archray.trainables.data.settings import DataSettings

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

PARTS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"}
BATCH = 1024  # images that are read and decoded at a time
FORM = "a .parquet file, or a folder with train*.parquet and optionally validation*.parquet and test*.parquet"


class Rows(Protocol):
    """The rows of one part of a data set."""

    @property
    def files(self) -> Sequence[Path]:
        """Files that contain the rows. If they are unchanged, so are the rows."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields columns of all rows, at most BATCH at a time."""


@dataclass(frozen=True)
class ParquetRows:
    """Rows in Parquet files, in the order of the files."""

    files: Sequence[Path]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        for file in self.files:
            yield from pq.ParquetFile(file).iter_batches(BATCH, columns=list(columns))


@dataclass(frozen=True)
class Layout:
    """The rows of each part, and the columns of images and labels."""

    parts: Mapping[str, Rows]
    image: str
    nested: bool  # whether the images are the field `bytes` of a struct
    label: str
    classes: tuple[str, ...]  # names of the labels; empty without metadata


def check(settings: DataSettings) -> None:
    """Reads the schemas of the files. Raises: DataNotFound without files; InvalidInput for other columns."""
    layout_of(settings.path, settings)


def read(settings: DataSettings) -> RawData:
    """Decodes all images, (n, C, S, S) of 8 bits, in parallel; the cache folder keeps them for the next run.

    Gray images have one channel, others three. S is `image_size`, or the size of the first training image.

    Raises: as `check`; InvalidInput, with the number of the image, for an image that cannot be read or has another
    size, or labels that are not 0..K-1.
    """
    return read_layout(layout_of(settings.path, settings), settings)


def is_parquet(folder: str | None) -> bool:
    """Whether a folder contains training images in Parquet files."""
    return folder is not None and Path(folder).is_dir() and "train" in _files(Path(folder))


def read_layout(layout: Layout, settings: DataSettings) -> RawData:
    """Like `read`, for files that were found before."""
    form = _form(layout, settings.image_size)
    parts: dict[str, Any] = {part: _part(rows, layout, form, settings) for part, rows in layout.parts.items()}
    numbers = np.unique(np.concatenate([labels for _, labels in parts.values()]))
    classes = len(layout.classes) or int(numbers[-1]) + 1
    if numbers[0] < 0 or numbers[-1] >= classes or classes < 2:
        raise InvalidInput(
            f"expected labels from 0 to {max(classes, 2) - 1} in the column {layout.label} of {settings.name}, got "
            f"{numbers[0]} to {numbers[-1]}. Choose another column with data.label_column"
        )
    return RawData(**parts, num_classes=classes, classes=layout.classes)


def layout_of(path: Path, settings: DataSettings) -> Layout:
    """Finds files and columns. Raises: DataNotFound, InvalidInput."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = {"train": (path,)} if path.is_file() else _files(path)
    if "train" not in files:
        raise DataNotFound(f"expected Parquet files of training images at {path}, got none. Give {FORM}")
    try:
        schema = pq.read_schema(files["train"][0])
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"expected a Parquet file, got {files['train'][0]} ({error}). Give {FORM}") from error
    for file in (file for part in files.values() for file in part):
        if not pq.read_schema(file).equals(schema):
            raise InvalidInput(f"expected the columns of {files['train'][0]} in {file}, got others. Remove this file")
    return layout_from({part: ParquetRows(files) for part, files in files.items()}, schema, settings)


def layout_from(parts: Mapping[str, Rows], schema: pa.Schema, settings: DataSettings) -> Layout:
    """Finds the columns of rows with a schema. Raises: InvalidInput unless one fits, or is named by the settings."""
    import pyarrow as pa

    image = _column("image_column", settings.image_column, schema, _is_image, "encoded images")
    label = _column("label_column", settings.label_column, schema, lambda kind: pa.types.is_integer(kind), "labels")
    nested = pa.types.is_struct(schema.field(image).type)
    return Layout(parts, image, nested, label, _classes(schema, label))


def _files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Returns the files of each part in a folder or its folder `data`, in the order of their names."""
    found: dict[str, list[Path]] = {}
    for file in sorted([*folder.glob("*.parquet"), *folder.glob("data/*.parquet")]):
        part = next((part for name, part in PARTS.items() if file.name.startswith(name)), None)
        if part is not None:
            found.setdefault(part, []).append(file)
    return {part: tuple(files) for part, files in found.items()}


def _is_image(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and _is_image(field.type) for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _column(option: str, wanted: str | None, schema: pa.Schema, fits: Any, content: str) -> str:
    """Returns the column `wanted`, or the only one that fits. Raises: InvalidInput."""
    fitting = [field.name for field in schema if fits(field.type)]
    if wanted in fitting or (wanted is None and len(fitting) == 1):
        return wanted or fitting[0]
    got = f"the column {wanted}" if wanted is not None else ", ".join(fitting) or "none"
    raise InvalidInput(
        f"expected one column with {content} among {', '.join(schema.names)}, got {got}. Set data.{option}"
        + (f" to one of {', '.join(fitting)}" if fitting else "")
    )


def _classes(schema: pa.Schema, label: str) -> tuple[str, ...]:
    """Returns the names of the classes in the metadata of the library `datasets`; () without."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return ()


def _form(layout: Layout, image_size: int | None) -> ImageForm:
    """Returns channels and size: those of the first training image, unless `image_size` is set."""
    from PIL import Image

    first, _ = next(_batches(layout.parts["train"], layout))
    try:
        with Image.open(io.BytesIO(first[0])) as picture:
            gray, (width, height) = picture.mode in ("1", "L", "I", "I;16"), picture.size
    except OSError as error:
        raise InvalidInput(
            f"expected encoded images (PNG, JPEG, WebP, ...) in the column {layout.image}, got other bytes. Choose "
            "another column with data.image_column"
        ) from error
    if image_size is None and width != height:
        raise InvalidInput(
            f"expected square images in the column {layout.image}, got {width} x {height} pixels. Set data.image_size "
            "to resize them"
        )
    return ImageForm(channels=1 if gray else 3, size=image_size or width)


def _part(rows: Rows, layout: Layout, form: ImageForm, settings: DataSettings) -> Part:
    labels = np.concatenate([values for _, values in _batches(rows, layout, images=False)])
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in rows.files]
    key = json.dumps([stats, layout.image, form.channels, form.size, settings.image_size])
    name = f"parquet-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"
    images = cached_array(name, lambda: _decoded(rows, layout, form, len(labels), settings))
    return images, labels


def _batches(rows: Rows, layout: Layout, *, images: bool = True) -> Iterator[tuple[list[bytes], Any]]:
    """Yields encoded images (or nothing) and labels, (b,) int64, in batches."""
    for batch in rows.batches([layout.label, *([layout.image] if images else [])]):
        column = batch.column(layout.image) if images else None
        if column is not None and layout.nested:
            column = column.field("bytes")
        labels = batch.column(layout.label).to_numpy(zero_copy_only=False)
        yield [] if column is None else column.to_pylist(), labels.astype(np.int64)


def _decoded(rows: Rows, layout: Layout, form: ImageForm, total: int, settings: DataSettings) -> npt.NDArray[np.uint8]:
    """Decodes images into (n, C, S, S), by threads, since PIL decodes without Python's lock."""
    out = np.empty((total, form.channels, form.size, form.size), dtype=np.uint8)
    done, fixed = 0, settings.image_size is None

    def decode(number: int, encoded: bytes | None) -> None:
        place = f"image {number} of {rows.files[0].parent} (column {layout.image})"
        if encoded is None:
            raise InvalidInput(f"expected an encoded image, got null as {place}. Remove this row")
        try:
            picture = read_picture(io.BytesIO(encoded), MODES[form.channels])
        except InvalidInput as error:
            raise InvalidInput(f"expected a picture as {place}, got other bytes. Remove this row") from error
        if fixed and picture.size != (form.size, form.size):
            raise InvalidInput(
                f"expected images of {form.size} x {form.size} pixels like the first one, got "
                f"{picture.size[0]} x {picture.size[1]} as {place}. Set data.image_size to resize all images"
            )
        out[number] = form.resized(picture).transpose(2, 0, 1)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for encoded, labels in _batches(rows, layout):
            list(pool.map(decode, range(done, done + len(labels)), encoded))
            done += len(labels)
            if done % (10 * BATCH) < BATCH or done == total:
                logger.info("decoded %d of %s", done, count(total, "image"))
    return out
