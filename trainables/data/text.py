"""A data set of texts: three parts of strings and labels. No torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from archray.errors import InvalidInput
from archray.trainables.data.data_settings import DataSettings
from archray.trainables.data.raw import Labels, RawText
from archray.trainables.data.split import split_parts


@dataclass(frozen=True)
class TextSplit:
    """Texts and their labels.

    Attributes:
        texts: n strings.
        labels: (n,) int64 in 0..K-1.
    """

    texts: tuple[str, ...]
    labels: Labels

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.texts),) or self.labels.dtype != np.int64:
            raise InvalidInput(
                f"expected a label of 64 bits for each of {len(self.texts)} texts, "
                f"got {self.labels.dtype} of {self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TextDataset:
    """Texts in three parts.

    Attributes:
        classes: what the labels 0..K-1 are called.
    """

    kind: ClassVar[str] = "text"

    name: str
    train: TextSplit
    validation: TextSplit
    test: TextSplit
    num_classes: int
    classes: tuple[str, ...]

    def checksum(self) -> str:
        """SHA-256, in hex, of the classes' names, all texts and all labels, in the order train, validation, test."""
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
