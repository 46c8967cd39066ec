"""A data set of images on a device: normalized tensors in three parts, and the augmentation of whole batches.

Pad-and-crop, flip and cutout (He et al. 2016; DeVries and Taylor 2017) are pure functions: what is random is an
argument, which `Augmentation` draws. No Python runs per image.
"""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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

logger = logging.getLogger(__name__)

PART_NAMES = ("training", "validation", "test")
SHADE = 1.5 / 255  # of the largest training value: images that differ by less are nearly equal
ROUNDING = 1e-4  # by which resizing may leave 0..1


@dataclass(frozen=True)
class View:
    """How the images of a pass are cut. seed: of what is drawn; None draws nothing: the middle, not mirrored.

    random_crop: cut at random, else the middle. flip: mirror half of them.
    """

    seed: int | None = None
    random_crop: bool = True
    flip: bool = True

    @property
    def cuts_at_random(self) -> bool:
        return self.seed is not None and self.random_crop


def pad_crop(images: Tensor, offsets: Tensor, padding: int, fill: Sequence[float] = (0.0,)) -> Tensor:
    """Pads every image, (n, C, H, W), on all sides and cuts a window of the old size, a different one for each image.

    Args:
        offsets: (n, 2) int64, top and left of each window in the padded image, in 0..2 * padding.
        padding: pixels on each side. fill: their value per channel, or one for all.
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
    """Mirrors left and right the images, (n, C, H, W), where `mask`, (n,) bool, is true."""
    return torch.where(mask[:, None, None, None], images.flip(-1), images)


def cutout(images: Tensor, centers: Tensor, length: int, fill: Sequence[float] = (0.0,)) -> Tensor:
    """Blanks a square in every image, (n, C, H, W); the square is clipped at the border.

    Args:
        centers: (n, 2) int64, row and column of each square's center.
        length: side in pixels; rows center - length // 2 up to, without, center - length // 2 + length.
        fill: value inside per channel, or one for all. 0 is the mean color of normalized images, as in the original.
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
    return torch.tensor(fill, dtype=images.dtype, device=images.device).view(1, -1, 1, 1)


class Augmentation:
    """Draws crops, flips and squares for a batch, and applies them in this order.

    image_size, flip, black: of the data set: defaults for settings that are None, and the padding's color.
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
        """How images are cut as they are read from files; None for images in memory."""
        return None

    def __call__(
        self, images: Tensor, generator: torch.Generator, part: slice = slice(None), of: int | None = None
    ) -> Tensor:
        """The images, (n, C, H, W), augmented; the same shape.

        Args:
            generator: on the images' device or the CPU.
            part: the place of these images in their batch; numbers are drawn for the whole batch.
            of: images in that batch; n if None.
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
    """Uniform in 0..high - 1, drawn on the generator's device (a CPU one gives every device the same draws)."""
    return torch.randint(high, shape, generator=generator, device=generator.device).to(images.device)


@dataclass(frozen=True)
class Split:
    """Images and their labels."""

    images: Tensor  # (n, C, H, W) float32, normalized per channel
    labels: Tensor  # (n,) int64 in 0..K-1

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def batches(self, indices: Sequence[Tensor], view: View | None = None) -> Iterator[Tensor]:
        """The images at `indices`, (b,) each. view: of images that are read from files; not used here."""
        return (self.images[batch] for batch in indices)

    def in_order(self, size: int, part: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor]]:
        """The images and labels of a part of the split, `size` at a time."""
        return zip(self.images[part].split(size), self.labels[part].split(size), strict=True)

    def to(self, device: str | torch.device) -> "Split":
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
    black: tuple[float, ...] = (0.0,)  # per channel, black after normalization, which fills padding
    flip: bool = True  # whether a mirrored image keeps its label
    form: ImageForm | None = None  # how pictures become its tensors; None: a user's function that does not say
    classes: tuple[str, ...] = ()  # names of the labels 0..K-1; empty: not known

    def to(self, device: str | torch.device) -> Self:
        return replace(
            self, train=self.train.to(device), validation=self.validation.to(device), test=self.test.to(device)
        )

    def augmentation(self, settings: AugmentationSettings) -> Augmentation:
        return Augmentation(settings, image_size=self.image_size, flip=self.flip, black=self.black)

    def sampled(self, chosen: Tensor, augmentation: AugmentationSettings | None, generator: torch.Generator) -> Tensor:
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
    """Splits, limits, scales to 0..1 (8-bit images), resizes and normalizes, in this order; on the CPU.

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


def _alike(images: Tensor, train: Tensor) -> bool:
    """Whether no pixel of the images, (n, C, S, S), differs by more than a shade of the training images."""
    spread = (images.amax(0) - images.amin(0)).max()
    return bool(spread <= SHADE * train.abs().max())


def _statistics(raw: RawData, train: Tensor) -> tuple[Tensor, Tensor]:
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


def proxy_batch(
    dataset: Dataset, size: int, seed: int, augment: bool | AugmentationSettings = True
) -> tuple[Tensor, Tensor]:
    """The batch for training-free metrics (note P5): training images, the same on every device.

    Args:
        size: images, drawn without replacement; the thesis has 64.
        seed: of the draw and of the augmentation; the thesis has 42.
        augment: true crops and flips as in training; gaussian images are never augmented.

    Returns: images (size, C, H, W), labels (size,), on the data set's device.
    Raises: InvalidInput if there are fewer training images than `size`.
    """
    labels = dataset.train.labels
    if not 1 <= size <= len(labels):
        raise InvalidInput(
            f"expected a batch of 1 to {count(len(labels), 'image')}, as many as {dataset.name} has for training, got "
            f"{size}; lower the batch size"
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(labels), generator=generator)[:size].to(labels.device)
    settings = None
    if augment and dataset.name != "gaussian":
        settings = AugmentationSettings() if augment is True else augment
    return dataset.sampled(chosen, settings, generator), labels[chosen]
