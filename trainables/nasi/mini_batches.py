"""The mini-batches of NASI, of a data set or of no data at all. Shu 2022, section 6.3; Algorithm 6.1, line 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from archray.seeds import stream_seed
from archray.trainables.data.dataset import Dataset

Source = Literal["true", "random"]
CHOSEN, IMAGES, LABELS = 0, 1, 2  # purposes of random streams


@dataclass(frozen=True)
class NASIBatches:
    """Batch t is a function of the seed and t.

    Attributes:
        dataset: None if nothing of it is used.
        inputs: the training images, not augmented, or draws from the standard Gaussian (section 6.3.2).
        labels: theirs, or drawn uniformly from all classes (6.3.1). Of random images: those of some training images.
        shape: of random images, (C, H, W).
        classes: n.
        size: b.
    """

    dataset: Dataset | None
    inputs: Source
    labels: Source
    shape: tuple[int, int, int]
    classes: int
    size: int
    seed: int
    device: torch.device

    def take(self, step: int) -> tuple[Tensor, Tensor]:
        """(b, C, H, W) and (b,); b is the whole data set if that is smaller."""
        images = labels = None
        if self.dataset is not None:
            train = self.dataset.train
            order = torch.randperm(len(train), generator=self._generator(step, CHOSEN))[: self.size]
            chosen = order.to(train.device)
            images, labels = train.images[chosen], train.labels[chosen]
        if self.inputs != "true" or images is None:
            images = torch.randn(self.size, *self.shape, generator=self._generator(step, IMAGES)).to(self.device)
        if self.labels != "true" or labels is None:
            draws = torch.randint(self.classes, (len(images),), generator=self._generator(step, LABELS))
            labels = draws.to(self.device)
        return images[: len(labels)], labels

    def _generator(self, *words: int) -> torch.Generator:
        return torch.Generator().manual_seed(stream_seed(self.seed, *words))
