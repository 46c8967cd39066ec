"""Images of the library `datasets`: a data set of the Hugging Face Hub by name, or a folder that the library loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archray.errors import DataNotFound, InvalidInput, MissingExtra, install_command
from archray.trainables.data import parquet
from archray.trainables.data.raw import RawData
from archray.trainables.data.settings import HUB, DataSettings

if TYPE_CHECKING:
    import pyarrow as pa


class HubRows:
    """Rows of a `datasets.Dataset`, as the library stores them in its cache."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.files = [Path(file["filename"]) for file in dataset.cache_files]

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from datasets.table import embed_table_storage

        for table in self._dataset.select_columns(list(columns)).with_format("arrow").iter(parquet.BATCH):
            yield from embed_table_storage(table).to_batches()  # reads images that the data set only names

    def place(self, row: int) -> str:
        return f"row {row} of the part {self._dataset.split}"


def check(settings: DataSettings) -> None:
    """Opens nothing. Raises: InvalidInput without a name; MissingExtra, with the install command, if it is missing."""
    if settings.name == HUB:
        raise InvalidInput("expected hf: with the name of a data set or a folder, such as hf:uoft-cs/cifar10, got hf:")
    if find_spec("datasets") is None:
        raise MissingExtra(
            f"Expected the library datasets for {settings.name}, but it cannot be imported. Run "
            f"{install_command('huggingface')}, or download its Parquet files and use parquet:PATH."
        )


def read(settings: DataSettings) -> RawData:
    """Loads `hf:NAME` or `hf:NAME:CONFIG`, and decodes all images as `parquet.read` does.

    The library downloads the data set, or takes it from its cache. Parts with other names than train, validation (or
    valid, val) and test are ignored.

    Raises: DataNotFound if the library cannot load it, or without training images; InvalidInput as `parquet.read`.
    """
    import datasets

    name, _, config = settings.name.removeprefix(HUB).partition(":")
    try:
        loaded = datasets.load_dataset(name, config or None, keep_in_memory=False)  # so that rows have files
    except Exception as error:  # of many types: no network, no such data set, no such configuration
        raise DataNotFound(
            f"expected a data set that datasets.load_dataset loads, got {settings.name} ({error}). Check the name, "
            "or the network"
        ) from error
    parts = {parquet.PARTS[part]: HubRows(rows) for part, rows in loaded.items() if part in parquet.PARTS}
    if "train" not in parts:
        raise DataNotFound(f"expected a part `train` in {settings.name}, got {', '.join(loaded)}. Use parquet:PATH")
    schema = loaded["train"].features.arrow_schema
    return parquet.read_layout(parquet.layout_from(parts, schema, settings), settings)
