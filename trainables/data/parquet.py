"""Images in Parquet files, the layout of image data sets on model hubs: encoded images, and labels.

A data set is a file, or a folder with files whose names start with `train`, `validation` (or `valid`, `val`) and `test`
(`data/train-00000-of-00002.parquet`). The image column is binary, or a struct with a field `bytes`. Labels are class
names, or integers, whose class names are those of the metadata that the library `datasets` writes.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from archray.errors import DataNotFound, InvalidInput
from archray.plurals import count
from archray.trainables.data.image_form import MODES, ImageForm, read_picture
from archray.trainables.data.raw import Labels, RawData, cached_array, number_of_classes
from archray.trainables.data.settings import DataSettings

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

PARTS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation", "test": "test"}
BATCH = 1024  # images that are read and decoded at a time
LABEL_NAMES = ("label", "labels", "class", "target", "category", "fine_label", "coarse_label")  # the first one is used
FEW = 10  # classes, which small data sets may have
IMAGES = "encoded images", "bytes of PNG, JPEG or WebP files"  # the content of a column, and its form
LABELS = "labels", "integers or strings"
FORM = "a .parquet file, or a folder with train*.parquet and optionally validation*.parquet and test*.parquet"


class Rows(Protocol):
    """The rows of one part of a data set."""

    @property
    def files(self) -> Sequence[Path]:
        """Files that contain the rows. If they are unchanged, so are the rows."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields columns of all rows, at most BATCH at a time."""

    def place(self, row: int) -> str:
        """Returns a row in words, such as `row 5 of train.parquet`; the first row is 0."""


@dataclass(frozen=True)
class ParquetRows:
    """Rows in Parquet files, in the order of the files."""

    files: Sequence[Path]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        for file in self.files:
            with _readable(file):
                yield from pq.ParquetFile(file).iter_batches(BATCH, columns=list(columns))

    def place(self, row: int) -> str:
        import pyarrow.parquet as pq

        for file in self.files:
            if row < (rows := pq.read_metadata(file).num_rows):
                break
            row -= rows
        return f"row {row} of {file}"


@dataclass(frozen=True)
class Layout:
    """The rows of each part, and the columns of images and labels."""

    parts: Mapping[str, Rows]
    image: str
    nested: bool  # whether the images are the field `bytes` of a struct
    label: str
    classes: tuple[str, ...]  # names of the labels; empty without metadata
    columns: tuple[str, ...]  # all columns, for messages


def check(settings: DataSettings) -> None:
    """Reads schemas and labels. Raises: DataNotFound without files; InvalidInput for other columns or labels."""
    _labels(layout_of(settings.path, settings), settings)


def read(settings: DataSettings) -> RawData:
    """Decodes all images, (n, C, S, S) of 8 bits, in parallel; the cache folder keeps them for the next run.

    Gray images have one channel, others three. S is `image_size`, or the size of the first training image.

    Raises: as `check`; InvalidInput, with the number of the image, for an image that cannot be read or has another
    size.
    """
    return read_layout(layout_of(settings.path, settings), settings)


def is_parquet(folder: str | None) -> bool:
    """Whether a folder contains training images in Parquet files."""
    return folder is not None and Path(folder).is_dir() and "train" in _files(Path(folder))


def read_layout(layout: Layout, settings: DataSettings) -> RawData:
    """Like `read`, for files that were found before."""
    labels, num_classes, classes = _labels(layout, settings)
    form = _form(layout, settings.image_size)
    parts: dict[str, Any] = {
        part: (_images(rows, layout, form, len(labels[part]), settings), labels[part])
        for part, rows in layout.parts.items()
    }
    return RawData(**parts, num_classes=num_classes, classes=classes)


def layout_of(path: Path, settings: DataSettings) -> Layout:
    """Finds files and columns. Raises: DataNotFound, InvalidInput."""
    import pyarrow.parquet as pq

    files = {"train": (path,)} if path.is_file() else _files(path)
    if "train" not in files:
        raise DataNotFound(f"expected Parquet files of training images at {path}, got none. Give {FORM}")
    schemas: dict[Path, pa.Schema] = {}
    for file in itertools.chain(*files.values()):
        with _readable(file):
            schemas[file] = pq.read_schema(file)
    schema = schemas[files["train"][0]]
    for file, other in schemas.items():
        if not other.equals(schema):
            raise InvalidInput(f"expected the columns of {files['train'][0]} in {file}, got others. Remove this file")
    return layout_from({part: ParquetRows(files) for part, files in files.items()}, schema, settings)


def layout_from(parts: Mapping[str, Rows], schema: pa.Schema, settings: DataSettings) -> Layout:
    """Finds the columns of rows with a schema. Raises: InvalidInput unless one fits, or is named by the settings."""
    import pyarrow as pa

    if repeated := [name for name in schema.names if schema.names.count(name) > 1]:
        raise InvalidInput(f"expected distinct names of columns, got {repeated[0]} more than once. Rename one of them")
    image = _column("image_column", settings.image_column, schema, _is_image, _is_image, IMAGES)
    names = {field.name.lower(): field.name for field in schema}
    named = settings.label_column or next((names[name] for name in LABEL_NAMES if name in names), None)
    label = _column("label_column", named, schema, _is_integer, _is_label, LABELS)
    nested = pa.types.is_struct(schema.field(image).type)
    return Layout(parts, image, nested, label, _classes(schema, label), tuple(schema.names))


def _files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Returns the files of each part in a folder or its folder `data`, in the order of their names."""
    found: dict[str, list[Path]] = {}
    for file in sorted([*folder.glob("*.parquet"), *folder.glob("data/*.parquet")]):
        part = next((part for name, part in PARTS.items() if file.name.startswith(name)), None)
        if part is not None:
            found.setdefault(part, []).append(file)
    return {part: tuple(files) for part, files in found.items()}


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Raises: InvalidInput if pyarrow cannot read the file in the block."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(
            f"expected a Parquet file, got {file}, which cannot be read ({error}). Replace it, or give {FORM}"
        ) from error


def _is_image(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and _is_image(field.type) for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_integer(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))


def _is_label(kind: Any) -> bool:
    """Whether a column contains integers or strings."""
    import pyarrow as pa

    content = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _is_integer(content) or bool(pa.types.is_string(content) or pa.types.is_large_string(content))


def _column(
    option: str, wanted: str | None, schema: pa.Schema, fits: Any, may_be: Any, content: tuple[str, str]
) -> str:
    """Returns the column `wanted`, or the only one that fits.

    Args:
        fits: Whether a type fits without the user's choice.
        may_be: Whether the user may choose a column of a type.
        content: The content of the column, and its form, in words.

    Raises: InvalidInput.
    """
    possible = [field.name for field in schema if may_be(field.type)]
    fitting = [field.name for field in schema if fits(field.type)] if wanted is None else possible
    if wanted in fitting or (wanted is None and len(fitting) == 1):
        return wanted or fitting[0]
    what, form = content
    got = ", ".join(fitting) or "none" if wanted is None else f"the column {wanted}"
    advice = f"set data.{option} to one of {', '.join(possible)}" if possible else f"add a column of {form}"
    if wanted in schema.names:
        got += f" of {schema.field(wanted).type}"
        advice = f"convert it to {form}" + (f", or {advice}" if possible else "")
    raise InvalidInput(
        f"expected one column with {what} among {', '.join(schema.names)}, got {got}. {advice[0].upper()}{advice[1:]}"
    )


def _classes(schema: pa.Schema, label: str) -> tuple[str, ...]:
    """Returns the names of the classes in the metadata of the library `datasets`; () without."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return ()


def _form(layout: Layout, image_size: int | None) -> ImageForm:
    """Returns channels and size: those of the first readable training image, unless `image_size` is set."""
    from PIL import Image

    for encoded in next(_batches(layout.parts["train"], layout)):
        try:
            with Image.open(io.BytesIO(encoded or b"")) as picture:
                gray, (width, height) = picture.mode in ("1", "L", "I", "I;16"), picture.size
            break
        except Exception:  # PIL's readers raise errors of many types; if others are images, `_decoded` names the row
            continue
    else:
        raise InvalidInput(
            f"expected encoded images (PNG, JPEG, WebP, ...) in the column {layout.image}, got "
            f"{'null' if encoded is None else 'other bytes'}. Choose another column with data.image_column"
        )
    if image_size is None and width != height:
        raise InvalidInput(
            f"expected square images in the column {layout.image}, got {width} x {height} pixels. Set data.image_size "
            "to resize them"
        )
    return ImageForm(channels=1 if gray else 3, size=image_size or width)


def _labels(layout: Layout, settings: DataSettings) -> tuple[dict[str, Labels], int, tuple[str, ...]]:
    """Returns the labels of each part, (n,) in 0..K-1, the number of classes K, and their names, or ().

    Raises: InvalidInput for a missing label, a column that the settings do not name and that has too many distinct
    values, a name that is not in the part `train`, or numbers that are not 0..K-1.
    """
    values = {part: _label_values(layout, part) for part in sorted(layout.parts, key=lambda part: part != "train")}
    distinct, images = np.unique(values["train"]), len(values["train"])
    allowed = max(images // 10, min(FEW, images // 2))
    if settings.label_column is None and not layout.classes and len(distinct) > allowed:
        raise InvalidInput(
            f"expected a column of at most {count(allowed, 'class', 'classes')} for {count(images, 'image')} among "
            f"{', '.join(layout.columns)}, got {layout.label} with {count(len(distinct), 'distinct value')}. Set "
            "data.label_column to the column of the labels"
        )
    classes, advice = layout.classes, "or choose another column with data.label_column"
    if values["train"].dtype == np.object_:
        classes, numbers = tuple(distinct), {name: number for number, name in enumerate(distinct)}
        for part, names in values.items():
            if others := sorted(set(names) - set(numbers)):
                raise InvalidInput(
                    f"expected in the column {layout.label} of {part} only classes of train, got "
                    f"{', '.join(others[:FEW])}. Remove these images, {advice}"
                )
            values[part] = np.array([numbers[name] for name in names])
    labels = {part: of_part.astype(np.int64) for part, of_part in values.items()}
    places = {f"the column {layout.label} of {part} in {settings.name}": labels[part] for part in labels}
    return labels, number_of_classes(places, len(classes) or None, f"Renumber the classes, {advice}"), classes


def _label_values(layout: Layout, part: str) -> npt.NDArray[Any]:
    """Returns the column of the labels, (n,) integers or strings. Raises: InvalidInput for a null, or no rows."""
    place = f"the column {layout.label} of {part}"
    columns = [batch.column(layout.label) for batch in layout.parts[part].batches([layout.label])]
    if not sum(map(len, columns)):
        raise InvalidInput(f"expected rows in {place}, got none. Remove the empty files")
    nulls = np.flatnonzero(np.concatenate([column.is_null().to_numpy(zero_copy_only=False) for column in columns]))
    if len(nulls):
        raise InvalidInput(
            f"expected a label for each image in {place}, got {count(len(nulls), 'null')}, the first one in "
            f"{layout.parts[part].place(int(nulls[0]))}. Remove these rows"
        )
    return np.concatenate([column.to_numpy(zero_copy_only=False) for column in columns])


def _images(rows: Rows, layout: Layout, form: ImageForm, total: int, settings: DataSettings) -> npt.NDArray[np.uint8]:
    """Returns the images of one part, (n, C, S, S), from the cache folder if it has them. total: n."""
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in rows.files]
    key = json.dumps([stats, layout.image, form.channels, form.size, settings.image_size])
    name = f"parquet-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"
    return cached_array(name, lambda: _decoded(rows, layout, form, total, settings))


def _batches(rows: Rows, layout: Layout) -> Iterator[list[bytes | None]]:
    """Yields encoded images in batches."""
    for batch in rows.batches([layout.image]):
        column = batch.column(layout.image)
        yield (column.field("bytes") if layout.nested else column).to_pylist()


def _decoded(rows: Rows, layout: Layout, form: ImageForm, total: int, settings: DataSettings) -> npt.NDArray[np.uint8]:
    """Decodes images into (n, C, S, S), by threads, since PIL decodes without Python's lock."""
    from PIL import UnidentifiedImageError

    out = np.empty((total, form.channels, form.size, form.size), dtype=np.uint8)
    done, fixed = 0, settings.image_size is None

    def decode(number: int, encoded: bytes | None) -> None:
        def error(expected: str, got: str, advice: str = "Remove this row") -> InvalidInput:
            place = f"{rows.place(number)} (column {layout.image})"
            return InvalidInput(f"expected {expected} in {place}, got {got}. {advice}")

        if encoded is None:
            raise error("an encoded image", "null")
        try:
            picture = read_picture(io.BytesIO(encoded), MODES[form.channels])
        except InvalidInput as unread:
            cause = unread.__cause__
            other = isinstance(cause, UnidentifiedImageError)
            raise error("a picture", "other bytes" if other else f"a broken one ({cause})") from unread
        if fixed and picture.size != (form.size, form.size):
            expected = f"an image of {form.size} x {form.size} pixels like the first one"
            raise error(expected, f"{picture.size[0]} x {picture.size[1]}", "Set data.image_size to resize all images")
        out[number] = form.resized(picture).transpose(2, 0, 1)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for encoded in _batches(rows, layout):
            list(pool.map(decode, range(done, done + len(encoded)), encoded))
            done += len(encoded)
            if done % (10 * BATCH) < BATCH or done == total:
                logger.info("decoded %d of %s", done, count(total, "image"))
    return out
