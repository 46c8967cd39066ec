"""A data set of images on a device: normalised tensors in three parts."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from archray.errors import InvalidInput
from archray.trainables.data.augment import Augmentation
from archray.trainables.data.image_form import ImageForm
from archray.trainables.data.raw import RawData, split_parts
from archray.trainables.data.settings import AugmentationSettings, DataSettings

if TYPE_CHECKING:
    from archray.trainables.data.image_stream import View


logger = logging.getLogger(__name__)

PART_NAMES = ("training", "validation", "test")
SHADE = 1.5 / 255  # of the largest training value: images that differ by less are nearly equal
ROUNDING = 1e-4  # by which resizing may leave 0..1


@dataclass(frozen=True)
class Split:
    """Images and their labels."""

    images: torch.Tensor  # (n, C, H, W) float32, normalised per channel
    labels: torch.Tensor  # (n,) int64 in 0..K-1

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def batches(self, indices: Sequence[torch.Tensor], view: View | None = None) -> Iterator[torch.Tensor]:
        """The images at `indices`, (b,) each. view: of images that are cut as they are read; here they are not."""
        return (self.images[batch] for batch in indices)

    def in_order(self, size: int, part: slice = slice(None)) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The images and labels of a part of it, `size` at a time."""
        return zip(self.images[part].split(size), self.labels[part].split(size), strict=True)

    def to(self, device: str | torch.device) -> Split:
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Dataset:
    """Images in three parts on one device."""

    kind: ClassVar[str] = "images"

    name: str
    train: Split
    validation: Split
    test: Split
    num_classes: int
    in_channels: int
    image_size: int  # height and width, in pixels
    black: tuple[float, ...] = (0.0,)  # per channel, what normalisation made of black; crops and cutouts fill with it
    flip: bool = True  # whether a mirrored image keeps its label
    form: ImageForm | None = None  # how pictures become its tensors; None: a user's function that does not say
    classes: tuple[str, ...] = ()  # what the labels 0..K-1 are called; none: not known

    def to(self, device: str | torch.device) -> Dataset:
        return replace(
            self, train=self.train.to(device), validation=self.validation.to(device), test=self.test.to(device)
        )

    def augmentation(self, settings: AugmentationSettings) -> Augmentation:
        """What is done to its training images."""
        return Augmentation(settings, image_size=self.image_size, flip=self.flip, black=self.black)

    def sampled(
        self, chosen: torch.Tensor, augmentation: AugmentationSettings | None, generator: torch.Generator
    ) -> torch.Tensor:
        """The training images at `chosen`, (b,), as one batch, augmented. generator: of what augmentation draws."""
        images = self.train.images[chosen]
        return images if augmentation is None else self.augmentation(augmentation)(images, generator)

    def checksum(self) -> str:
        """SHA-256, in hex, of all tensors with their shapes, in the order train, validation, test."""
        digest = hashlib.sha256()
        for split in (self.train, self.validation, self.test):
            for tensor in (split.images, split.labels):
                digest.update(f"{tuple(tensor.shape)} {tensor.dtype};".encode())
                digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
        return digest.hexdigest()


def make_dataset(raw: RawData, settings: DataSettings) -> Dataset:
    """Splits, limits, scales to 0..1 (8-bit images), resizes and normalises, in this order; on the CPU.

    Raises: InvalidInput if images are not square and no `image_size` is set, or hold NaN or infinities.
    """
    parts = split_parts(raw, settings)
    for part_name, (images, _) in zip(PART_NAMES, parts, strict=True):
        if not np.isfinite(images).all():
            raise InvalidInput(f"the {part_name} images of {settings.name} hold NaN or infinity; remove those images")
    height, width = parts[0][0].shape[-2:]
    if settings.image_size is None and height != width:
        raise InvalidInput(
            f"{settings.name} has images of {height} x {width} pixels, expected square ones; "
            "set image_size to resize them"
        )
    size = settings.image_size or height
    tensors = [_scaled(images, size) for images, _ in parts]
    for part_name, tensor in zip(PART_NAMES, tensors, strict=True):
        if len(tensor) > 1 and _alike(tensor, tensors[0]):
            logger.warning(
                "%s: all %d %s images are (nearly) equal; check the files", settings.name, len(tensor), part_name
            )
    mean, std = _statistics(raw, tensors[0])
    low, high = torch.aminmax(tensors[0])
    train, validation, test = (
        Split(tensor.sub_(mean).div_(std), torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64)))
        for tensor, (_, labels) in zip(tensors, parts, strict=True)
    )
    return Dataset(
        settings.name,
        train,
        validation,
        test,
        num_classes=raw.num_classes,
        in_channels=tensors[0].shape[1],
        image_size=size,
        black=tuple((-mean / std).flatten().tolist()),
        flip=raw.flip if settings.flip is None else settings.flip,
        form=ImageForm(
            channels=tensors[0].shape[1],
            size=size,
            mean=tuple(mean.flatten().tolist()),
            std=tuple(std.flatten().tolist()),
            unit=bool(low >= -ROUNDING and high <= 1 + ROUNDING),
        ),
        classes=raw.classes,
    )


def _scaled(images: np.ndarray, size: int) -> torch.Tensor:
    """(n, C, H, W) of 8-bit or float numbers -> (n, C, size, size) float32, 8-bit ones divided by 255."""
    tensor = torch.from_numpy(np.ascontiguousarray(images))
    is_bytes = tensor.dtype == torch.uint8
    tensor = tensor.to(torch.float32, copy=True)
    if is_bytes:
        tensor.div_(255)
    if tensor.shape[-2:] != (size, size):
        tensor = F.interpolate(tensor, size=(size, size), mode="bilinear", antialias=True, align_corners=False)
    return tensor


def _alike(images: torch.Tensor, train: torch.Tensor) -> bool:
    """Whether no pixel of (n, C, S, S) differs between images by more than a shade of the training images."""
    spread = (images.amax(0) - images.amin(0)).max()
    return bool(spread <= SHADE * train.abs().max())


def _statistics(raw: RawData, train: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation (1, C, 1, 1): published, or of the training images over all pixels."""
    channels = train.shape[1]
    if raw.normalised:
        return torch.zeros(1, channels, 1, 1), torch.ones(1, channels, 1, 1)
    if raw.mean is not None and raw.std is not None:
        return torch.tensor(raw.mean).view(1, -1, 1, 1), torch.tensor(raw.std).view(1, -1, 1, 1)
    mean = train.mean(dim=(0, 2, 3), keepdim=True, dtype=torch.float64)
    std = (train.double() - mean).square().mean(dim=(0, 2, 3), keepdim=True).sqrt()
    std[std == 0] = 1.0  # a constant channel stays constant instead of becoming NaN
    return mean.float(), std.float()
