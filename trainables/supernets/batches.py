"""The steps of an epoch: whether each trains the weights or the architecture, and batches without end for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from archray.trainables.data.augment import Augmentation
from archray.trainables.data.dataset import Split


class Block(NamedTuple):
    """One step: whether it trains the architecture, else the weights, and the number that rates and progress go by."""

    architecture: bool
    step: int


def both_blocks(order: str, steps: int, seed: int) -> list[Block]:
    """Twice as many blocks as steps; half of them are the architecture's, under `random` on average.

    Args:
        order: `alternating`, the architecture first (DARTS); `random`, each with equal chances (GAEA, Algorithm 1);
            `phases`, first all of the weights (ENAS, section 2.2).
        seed: of `random`.
    """
    if order == "phases":
        return [Block(architecture, step) for architecture in (False, True) for step in range(steps)]
    if order == "alternating":
        return [Block(architecture, step) for step in range(steps) for architecture in (True, False)]
    drawn = torch.randint(2, (2 * steps,), generator=torch.Generator().manual_seed(seed)).bool().tolist()
    return [Block(architecture, number // 2) for number, architecture in enumerate(drawn)]


class Batch(NamedTuple):
    """Images (b, C, H, W) and labels (b,)."""

    images: Tensor
    labels: Tensor


class Batches:
    """Passes over some images of a split, each in a new order, cut into batches of nearly equal size.

    indices: of the images, on the split's device. batch_size: the largest batch. ordering, augmenting: seeds.
    """

    def __init__(
        self,
        split: Split,
        indices: Tensor,
        batch_size: int,
        augmentation: Augmentation | None,
        *,
        ordering: int,
        augmenting: int,
    ) -> None:
        self._split, self._indices, self._augmentation = split, indices, augmentation
        self._per_pass = math.ceil(len(indices) / batch_size)
        device = split.images.device
        self._ordering = torch.Generator(device).manual_seed(ordering)
        self._augmenting = torch.Generator(device).manual_seed(augmenting)
        self._stream = self._drawn()
        self._upcoming: Batch | None = None

    def images_in(self, batches: int) -> int:
        """How many images the first so many batches hold."""
        passes, rest = divmod(batches, self._per_pass)
        size, larger = divmod(len(self._indices), self._per_pass)  # the first batches of a pass are larger by one
        return passes * len(self._indices) + rest * size + min(rest, larger)

    def upcoming(self) -> Batch:
        """The batch that `take` will return, as augmented."""
        if self._upcoming is None:
            self._upcoming = next(self._stream)
        return self._upcoming

    def take(self) -> Batch:
        batch, self._upcoming = self.upcoming(), None
        return batch

    def _drawn(self) -> Iterator[Batch]:
        device = self._indices.device
        while True:
            order = self._indices[torch.randperm(len(self._indices), generator=self._ordering, device=device)]
            for some in order.tensor_split(self._per_pass):
                images = self._split.images[some]
                if self._augmentation is not None:
                    images = self._augmentation(images, self._augmenting)
                yield Batch(images, self._split.labels[some])
