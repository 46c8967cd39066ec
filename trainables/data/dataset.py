"""Image data sets on a device: tensors in three parts, and normalization and augmentation of whole batches.

Pad-and-crop, flip and cutout (He et al. 2016; DeVries and Taylor 2017) are pure functions. Their random numbers are
arguments, which `Augmentation` draws. No Python code runs per image.
"""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.data.image_form import ImageForm
from archray.trainables.data.raw import RawData, split_parts
from archray.trainables.data.settings import AugmentationSettings, DataSettings
from archray.trainables.devices import machine_memory

logger = logging.getLogger(__name__)

PART_NAMES = ("training", "validation", "test")
SHADE = 1.5 / 255  # share of the largest training value; images that differ by less count as nearly equal
ROUNDING = 1e-4  # tolerance of 0..1 after resizing
FLOAT = 4  # bytes of a float32
HASHED = 1024  # images that a checksum normalizes at a time


@dataclass(frozen=True)
class View:
    """How the images of a pass are cropped.

    Attributes:
        seed: Seed of the random numbers; None crops the center without mirroring.
        random_crop: Whether to crop at random instead of the center.
        flip: Whether to mirror half of the images.
    """

    seed: int | None = None
    random_crop: bool = True
    flip: bool = True

    @property
    def cuts_at_random(self) -> bool:
        return self.seed is not None and self.random_crop


def pad_crop(images: Tensor, offsets: Tensor, padding: int, fill: Sequence[float] = (0.0,)) -> Tensor:
    """Pads every image, (n, C, H, W), on all sides and crops a different window of the original size from each.

    Args:
        offsets: (n, 2) int64, top and left of each window in the padded image, in 0..2 * padding.
        padding: Pixels on each side.
        fill: Value of the padding per channel, or one for all.
    """
    n, channels, height, width = images.shape
    shape = (n, channels, height + 2 * padding, width + 2 * padding)
    padded = _per_channel(images, fill).expand(shape).clone()
    padded[:, :, padding : padding + height, padding : padding + width] = images
    rows = offsets[:, 0, None] + torch.arange(height, device=images.device)  # (n, H)
    columns = offsets[:, 1, None] + torch.arange(width, device=images.device)  # (n, W)
    index = torch.arange(n, device=images.device)[:, None, None]
    # Advanced indices apart from each other put the image's axes first: (n, H, W, C).
    return padded[index, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def flip(images: Tensor, mask: Tensor) -> Tensor:
    """Mirrors the images, (n, C, H, W), horizontally where `mask`, (n,) bool, is true."""
    return torch.where(mask[:, None, None, None], images.flip(-1), images)


def cutout(images: Tensor, centers: Tensor, length: int, fill: Sequence[float] = (0.0,)) -> Tensor:
    """Blanks a square in every image, (n, C, H, W). The square is clipped at the border.

    Args:
        centers: (n, 2) int64, row and column of each square's center.
        length: Side in pixels; the rows are center - length // 2 to center - length // 2 + length - 1.
        fill: Value of the square per channel, or one for all. 0 is the mean color of normalized images, as in the
            original.
    """
    height, width = images.shape[-2:]
    top, left = (centers - length // 2).unbind(1)  # (n,) each
    rows = torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    in_rows = (rows >= top[:, None]) & (rows < top[:, None] + length)  # (n, H)
    in_columns = (columns >= left[:, None]) & (columns < left[:, None] + length)  # (n, W)
    inside = in_rows[:, None, :, None] & in_columns[:, None, None, :]  # (n, 1, H, W)
    return torch.where(inside, _per_channel(images, fill), images)


def _per_channel(images: Tensor, fill: Sequence[float]) -> Tensor:
    return _on_device(tuple(fill), images.dtype, images.device)


@lru_cache(maxsize=16)
def _on_device(fill: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copies the values once; a copy in each step would wait for a GPU."""
    return torch.tensor(fill, dtype=dtype, device=device).view(1, -1, 1, 1)


class Augmentation:
    """Draws crops, flips and squares for a batch, and applies them in this order.

    `image_size`, `flip` and `black` belong to the data set. They are the defaults of settings that are None, and the
    color of the padding.
    """

    def __init__(
        self,
        settings: AugmentationSettings,
        *,
        image_size: int = 32,
        flip: bool = True,
        black: Sequence[float] = (0.0,),
    ) -> None:
        self.crop = image_size // 8 if settings.crop is None else settings.crop
        self.flip = flip if settings.flip is None else settings.flip
        self.cutout = settings.cutout
        self.black = tuple(black)

    def view(self, seed: int) -> View | None:
        """Returns how images are cropped when they are read from files; None for images in memory."""
        return None

    def __call__(
        self, images: Tensor, generator: torch.Generator, part: slice = slice(None), of: int | None = None
    ) -> Tensor:
        """Returns the augmented images; (n, C, H, W), as the input.

        Args:
            generator: On the images' device or the CPU.
            part: Position of these images in their batch; the random numbers are drawn for the whole batch.
            of: Number of images in that batch (default: n).
        """
        _, _, height, width = images.shape
        n = len(images) if of is None else of
        if self.crop > 0:
            offsets = _integers(2 * self.crop + 1, (n, 2), images, generator)[part]
            images = pad_crop(images, offsets, self.crop, self.black)
        if self.flip:
            images = flip(images, _integers(2, (n,), images, generator)[part].bool())
        if self.cutout > 0:
            rows = _integers(height, (n, 1), images, generator)[part]
            columns = _integers(width, (n, 1), images, generator)[part]
            images = cutout(images, torch.cat([rows, columns], dim=1), self.cutout)
        return images


def _integers(high: int, shape: tuple[int, ...], images: Tensor, generator: torch.Generator) -> Tensor:
    """Draws integers in 0..high - 1 on the generator's device; a CPU generator gives the same draws on every device."""
    return torch.randint(high, shape, generator=generator, device=generator.device).to(images.device)


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Use `batch`, `batches` or `in_order` in a loop: `images` of 8-bit images is a new tensor of all of them.
    """

    images: Tensor  # (n, C, H, W) float32, normalized per channel
    labels: Tensor  # (n,) int64 in 0..K-1

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def batch(self, index: Tensor | slice) -> Tensor:
        """Returns the images at an index, (b, C, H, W) float32, normalized."""
        return self.images[index]

    def batches(self, indices: Sequence[Tensor], view: View | None = None) -> Iterator[Tensor]:
        """Yields the images at `indices`, (b,) each. view: only used for images that are read from files."""
        return map(self.batch, indices)

    def in_order(self, size: int, part: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the images and labels of a part of the split in batches of `size`."""
        start, stop, _ = part.indices(len(self))
        for first in range(start, max(stop, start + 1), size):  # one batch of an empty part
            rows = slice(first, min(first + size, stop))
            yield self.batch(rows), self.labels[rows]

    def to(self, device: str | torch.device) -> "Split":
        return Split(self.images.to(device), self.labels.to(device))


class ByteSplit(Split):
    """8-bit images and their labels, which take a quarter of the memory. Each batch is normalized on their device.

    Args:
        pixels: (n, C, H, W) of 8 bits.
        mean, std: (1, C, 1, 1) float32, of pixels in 0..1.
    """

    def __init__(self, pixels: Tensor, labels: Tensor, mean: Tensor, std: Tensor) -> None:
        # A tensor on the device, since CUDA multiplies by the rounded reciprocal of a Python number.
        white = torch.tensor(255.0, device=pixels.device)
        for attribute, value in {"pixels": pixels, "labels": labels, "mean": mean, "std": std, "white": white}.items():
            object.__setattr__(self, attribute, value)  # a `Split` is frozen

    pixels: Tensor
    mean: Tensor
    std: Tensor
    white: Tensor

    @property
    def images(self) -> Tensor:
        return self.batch(slice(None))

    def batch(self, index: Tensor | slice) -> Tensor:
        return self.pixels[index].float().div_(self.white).sub_(self.mean).div_(self.std)

    def to(self, device: str | torch.device) -> "ByteSplit":
        return ByteSplit(*(tensor.to(device) for tensor in (self.pixels, self.labels, self.mean, self.std)))


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
    black: tuple[float, ...] = (0.0,)  # per channel, black after normalization, which fills padding
    flip: bool = True  # whether a mirrored image keeps its label
    form: ImageForm | None = None  # processing of pictures into tensors; None if a custom function does not define it
    classes: tuple[str, ...] = ()  # names of the labels 0..K-1; empty if unknown

    def to(self, device: str | torch.device) -> Self:
        return replace(
            self, train=self.train.to(device), validation=self.validation.to(device), test=self.test.to(device)
        )

    def augmentation(self, settings: AugmentationSettings) -> Augmentation:
        return Augmentation(settings, image_size=self.image_size, flip=self.flip, black=self.black)

    def sampled(self, chosen: Tensor, augmentation: AugmentationSettings | None, generator: torch.Generator) -> Tensor:
        """Returns the training images at `chosen`, (b,), as one augmented batch. generator: for the augmentation."""
        images = self.train.batch(chosen)
        return images if augmentation is None else self.augmentation(augmentation)(images, generator)

    def checksum(self) -> str:
        """Computes the SHA-256, in hex, of normalized images and labels with their shapes: train, validation, test."""
        digest = hashlib.sha256()
        for split in (self.train, self.validation, self.test):
            image = split.batch(slice(1))
            digest.update(f"{(len(split), *image.shape[1:])} {image.dtype};".encode())
            for images, _ in split.in_order(HASHED):
                digest.update(np.ascontiguousarray(images.cpu().numpy()).data)
            digest.update(f"{tuple(split.labels.shape)} {split.labels.dtype};".encode())
            digest.update(np.ascontiguousarray(split.labels.cpu().numpy()).data)
        return digest.hexdigest()


def check_dataset(dataset: Dataset, name: str) -> None:
    """Checks the data set that a user's function returned.

    Raises: InvalidInput for labels that are not 0..K-1, or images of another shape or type, or that are not finite.
    """
    classes, size = dataset.num_classes, dataset.image_size

    def check(met: bool, part: str, expected: str, got: object) -> None:
        if not met:
            raise InvalidInput(f"expected {expected} in {part} of {name!r}, got {got}. Correct the function")

    check(isinstance(classes, int) and classes > 1, "num_classes", "a number of 2 or more classes", repr(classes))
    for part, split in {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}.items():
        labels = split.labels
        check(isinstance(labels, Tensor), part, "labels as a tensor", type(labels).__name__)
        check(labels.ndim == 1 and labels.dtype == torch.int64, part, "labels (n,) int64", _form_of(labels))
        check(len(labels) > 0 or part != "train", part, "one or more images", "none")
        if len(labels):
            low, high = int(labels.min()), int(labels.max())
            check(0 <= low <= high < classes, part, f"labels from 0 to {classes - 1}", f"{low} to {high}")
        if type(split) is not Split:  # other classes convert or read their images
            continue
        images, shape = split.images, (len(labels), dataset.in_channels, size, size)
        check(isinstance(images, Tensor), part, "images as a tensor", type(images).__name__)
        fits = images.shape == shape and images.dtype == torch.float32
        check(fits, part, f"images {shape} float32", _form_of(images))
        check(bool(images.isfinite().all()), part, "finite images", "NaN or infinity")


def _form_of(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def make_dataset(raw: RawData, settings: DataSettings) -> Dataset:
    """Splits, limits, scales to 0..1 (8-bit images), resizes and normalizes, in this order; on the CPU.

    8-bit images that need no resizing stay 8-bit and are normalized in batches, with the same result.

    Raises: InvalidInput if images are not square and no `image_size` is set, or contain NaN or infinity; MemoryError.
    """
    parts = split_parts(raw, settings)
    for part_name, (images, _) in zip(PART_NAMES, parts, strict=True):
        if images.dtype != np.uint8 and not np.isfinite(images).all():
            raise InvalidInput(
                f"expected finite {part_name} images in {settings.name}, got NaN or infinity. Remove these images"
            )
    height, width = parts[0][0].shape[-2:]
    if settings.image_size is None and height != width:
        raise InvalidInput(
            f"expected square images in {settings.name}, got {height} x {width} pixels. Set image_size to resize them"
        )
    size = settings.image_size or height
    in_bytes = all(images.dtype == np.uint8 and images.shape[-2:] == (size, size) for images, _ in parts)
    needed = sum(len(labels) for _, labels in parts) * parts[0][0].shape[1] * size**2 * FLOAT
    if not in_bytes and needed > (memory := machine_memory()):  # otherwise the system would kill the process
        raise MemoryError(f"{needed / 2**30:,.0f} GiB of images, and this machine has {memory / 2**30:,.0f} GiB")
    tensors = [
        torch.from_numpy(np.ascontiguousarray(images)) if in_bytes else _scaled(images, size) for images, _ in parts
    ]
    low, high = map(_unit, torch.aminmax(tensors[0]))
    for part_name, tensor in zip(PART_NAMES, tensors, strict=True):
        if len(tensor) > 1 and _spread(tensor) <= SHADE * max(abs(low), abs(high)):
            logger.warning(
                "%s: all %d %s images are (nearly) equal. Check the files.", settings.name, len(tensor), part_name
            )
    mean, std = _statistics(raw, tensors[0])
    labels = [torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64)) for _, labels in parts]
    train, validation, test = (
        ByteSplit(tensor, of_part, mean, std) if in_bytes else Split(tensor.sub_(mean).div_(std), of_part)
        for tensor, of_part in zip(tensors, labels, strict=True)
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


def _scaled(images: np.ndarray, size: int) -> Tensor:
    """(n, C, H, W) of 8-bit or float numbers -> (n, C, size, size) float32, 8-bit ones divided by 255."""
    tensor = torch.from_numpy(np.ascontiguousarray(images))
    is_bytes = tensor.dtype == torch.uint8
    tensor = tensor.to(torch.float32, copy=True)
    if is_bytes:
        tensor.div_(255)
    if tensor.shape[-2:] != (size, size):
        tensor = F.interpolate(tensor, size=(size, size), mode="bilinear", antialias=True, align_corners=False)
    return tensor


def _unit(values: Tensor) -> Tensor:
    """8-bit values -> 0..1 in float32; other values stay."""
    return values.float().div_(255) if values.dtype == torch.uint8 else values


def _spread(images: Tensor) -> Tensor:
    """Returns the largest difference of a pixel, in 0..1 if they are 8-bit, between any two images, (n, C, S, S)."""
    return (_unit(images.amax(0)) - _unit(images.amin(0))).max()


def _statistics(raw: RawData, train: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (1, C, 1, 1): published, or of the training images over all pixels."""
    channels = train.shape[1]
    if raw.normalized:
        return torch.zeros(1, channels, 1, 1), torch.ones(1, channels, 1, 1)
    if raw.mean is not None and raw.std is not None:
        return torch.tensor(raw.mean).view(1, -1, 1, 1), torch.tensor(raw.std).view(1, -1, 1, 1)
    if train.dtype == torch.uint8:  # by counts, without a copy of the images in float64
        counts = torch.stack([train[:, c].flatten().bincount(minlength=256) for c in range(channels)]).double()
        shades = _unit(torch.arange(256, dtype=torch.uint8)).double()
        pixels = train[:, 0].numel()
        mean = (counts @ shades / pixels).view(1, -1, 1, 1)
        std = ((counts * (shades - mean.view(-1, 1)).square()).sum(1) / pixels).sqrt().view(1, -1, 1, 1)
    else:
        mean = train.mean(dim=(0, 2, 3), keepdim=True, dtype=torch.float64)
        std = (train.double() - mean).square().mean(dim=(0, 2, 3), keepdim=True).sqrt()
    std[std == 0] = 1.0  # a constant channel stays constant instead of becoming NaN
    return mean.float(), std.float()


def proxy_batch(
    dataset: Dataset, size: int, seed: int, augment: bool | AugmentationSettings = True
) -> tuple[Tensor, Tensor]:
    """Returns the batch for training-free metrics (note P5): training images, the same on every device.

    Args:
        size: Number of images, drawn without replacement; 64 in Shu (2022).
        seed: Seed of the draw and of the augmentation; 42 in Shu (2022).
        augment: True crops and flips as in training. Gaussian images are never augmented.

    Returns: images (size, C, H, W), labels (size,), on the data set's device.

    Raises: InvalidInput if there are fewer training images than `size`.
    """
    labels = dataset.train.labels
    if not 1 <= size <= len(labels):
        raise InvalidInput(
            f"expected a batch of 1 to {count(len(labels), 'image')}, the training images of {dataset.name}, got "
            f"{size}. Lower the batch size"
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(labels), generator=generator)[:size].to(labels.device)
    settings = None
    if augment and dataset.name != "gaussian":
        settings = AugmentationSettings() if augment is True else augment
    return dataset.sampled(chosen, settings, generator), labels[chosen]
