"""A data set of images on a device: normalised tensors in three parts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from archray.errors import InvalidInput
from archray.trainables.data.data_settings import DataSettings
from archray.trainables.data.raw import RawData, split_parts


@dataclass(frozen=True)
class Split:
    """Images and their labels."""

    images: torch.Tensor  # (n, C, H, W) float32, normalised per channel
    labels: torch.Tensor  # (n,) int64 in 0..K-1

    def __len__(self) -> int:
        return len(self.labels)

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

    def to(self, device: str | torch.device) -> Dataset:
        return replace(
            self, train=self.train.to(device), validation=self.validation.to(device), test=self.test.to(device)
        )

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
    for part_name, (images, _) in zip(("training", "validation", "test"), parts, strict=True):
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
    mean, std = _statistics(raw, tensors[0])
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
