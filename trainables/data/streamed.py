"""A data set of images that stays in its files: no part of it is held as a tensor, batches are read as they come."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.data.augment import Augmentation
from archray.trainables.data.dataset import Dataset, Split
from archray.trainables.data.image_form import ImageForm
from archray.trainables.data.image_stream import CENTRE, MIDDLE, ImageFiles, View, decoded
from archray.trainables.data.raw import RawFiles, split_parts
from archray.trainables.data.settings import AugmentationSettings, DataSettings

IMAGE_SIZE = 224
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's images in 0..1, per channel: those of the data would take a pass over it
STD = (0.229, 0.224, 0.225)


class StreamedSplit(Split):
    """Images in files, and their labels (n,) on a device.

    Args:
        name: of the data set, for messages.
        workers: processes that decode; None: as many as torch has threads, which are a trial's CPUs.
    """

    def __init__(self, name: str, files: ImageFiles, labels: Tensor, workers: int | None) -> None:
        for attribute, value in {"name": name, "files": files, "labels": labels, "workers": workers}.items():
            object.__setattr__(self, attribute, value)  # a `Split` is frozen

    name: str
    files: ImageFiles
    workers: int | None

    @property
    def images(self) -> Tensor:
        """Raises: InvalidInput: they are not held."""
        raise InvalidInput(
            f"{self.name} is read from its files as it is trained on, and this needs all its images at once; "
            "use folder:PATH for images that fit into memory"
        )

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def to(self, device: str | torch.device) -> "StreamedSplit":
        return StreamedSplit(self.name, self.files, self.labels.to(device), self.workers)

    def batches(self, indices: Sequence[Tensor], view: View | None = None) -> Iterator[Tensor]:
        """The images at `indices`, (b,) each, as (b, 3, S, S) float32, normalised, on the labels' device.

        view: how they are cut; None: in the middle. Raises: InvalidInput, with the file's name, if one cannot be read.
        """
        workers = torch.get_num_threads() if self.workers is None else self.workers
        mean, std = (torch.tensor(values, device=self.device).view(1, -1, 1, 1) for values in (MEAN, STD))
        lists = [batch.tolist() for batch in indices]
        pin = self.device.type == "cuda"
        files = replace(self.files, view=view or MIDDLE)
        for batch in decoded(files, lists, min(workers, len(lists) - 1), pin):  # none for a single batch
            yield batch.to(self.device, non_blocking=True).float().div_(255).sub_(mean).div_(std)

    def in_order(self, size: int, part: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor]]:
        places = torch.arange(len(self))[part].split(size)
        return zip(self.batches(places), self.labels[part].split(size), strict=True)

    def checksum(self) -> str:
        """SHA-256, in hex, of the names and sizes of its files, and of its labels; no file is read.

        Raises: InvalidInput for an empty file, or what is none.
        """
        digest = hashlib.sha256()
        for index, label in enumerate(self.labels.tolist()):
            file = os.stat(path := self.files.path(index))
            if not stat.S_ISREG(file.st_mode) or not file.st_size:
                raise InvalidInput(f"expected an image file, got {path}, which is empty or no file; remove it")
            digest.update(self.files.names[index] + f";{file.st_size};{label}\n".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class StreamedDataset(Dataset):
    """Images in three parts, in files."""

    streamed: ClassVar[bool] = True

    def checksum(self) -> str:
        """SHA-256, in hex, of the names, sizes and labels of its files, and of their size as tensors: not of pixels."""
        parts = [split.checksum() for split in (self.train, self.validation, self.test)]  # type: ignore[attr-defined]
        return hashlib.sha256(f"{parts} {self.image_size}".encode()).hexdigest()

    def sampled(self, chosen: Tensor, augmentation: AugmentationSettings | None, generator: torch.Generator) -> Tensor:
        draw = None if augmentation is None else self.augmentation(augmentation)
        seed = int(torch.randint(2**31, (1,), generator=generator))
        [images] = self.train.batches([chosen], None if draw is None else draw.view(seed))
        return images if draw is None else draw(images, generator)

    def augmentation(self, settings: AugmentationSettings) -> "StreamedAugmentation":
        return StreamedAugmentation(settings, self.flip, self.black)


class StreamedAugmentation(Augmentation):
    """What is done to training images that are read from files: a part of each as it is decoded, a part to batches.

    `crop` of the settings: None cuts at random (8 to 100 % of the area, of ratio 3/4 to 4/3) and resizes, 0 takes the
    middle, and pixels take the middle and cut a padded window, as for images that are held.
    """

    def __init__(self, settings: AugmentationSettings, flip: bool, black: Sequence[float]) -> None:
        super().__init__(settings.model_copy(update={"crop": settings.crop or 0, "flip": False}), black=black)
        self._random_crop = settings.crop is None
        self._mirrors = flip if settings.flip is None else settings.flip

    def view(self, seed: int) -> View:
        """How images are decoded in a pass. seed: of what is drawn."""
        return View(seed, self._random_crop, self._mirrors)


def make_streamed_dataset(raw: RawFiles, settings: DataSettings) -> StreamedDataset:
    """Splits and limits the names, in this order; on the CPU. Raises: InvalidInput if a part would be empty."""
    size = settings.image_size or IMAGE_SIZE
    train, validation, test = (
        StreamedSplit(
            settings.name,
            ImageFiles(raw.folder, names, size),
            torch.from_numpy(np.ascontiguousarray(labels)),
            settings.workers,
        )
        for names, labels in split_parts(raw, settings)
    )
    return StreamedDataset(
        settings.name,
        train,
        validation,
        test,
        num_classes=raw.num_classes,
        in_channels=3,
        image_size=size,
        black=tuple(-mean / std for mean, std in zip(MEAN, STD, strict=True)),
        flip=True if settings.flip is None else settings.flip,
        form=ImageForm(channels=3, size=size, mean=MEAN, std=STD, crop=CENTRE),
        classes=raw.classes,
    )
