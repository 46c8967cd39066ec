"""Pad-and-crop, flip and cutout of whole batches on their device (He et al. 2016; DeVries and Taylor 2017).

The three functions are pure: what is random is an argument, which `Augmentation` draws. No Python runs per image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.data.settings import AugmentationSettings

if TYPE_CHECKING:
    from archray.trainables.data.dataset import Dataset
    from archray.trainables.data.image_stream import View


def pad_crop(images: torch.Tensor, offsets: torch.Tensor, padding: int, fill: Sequence[float] = (0.0,)) -> torch.Tensor:
    """Pads every image, (n, C, H, W), on all sides and cuts a window of the old size, each image its own.

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


def flip(images: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mirrors left and right the images, (n, C, H, W), where `mask`, (n,) bool, is true."""
    return torch.where(mask[:, None, None, None], images.flip(-1), images)


def cutout(images: torch.Tensor, centres: torch.Tensor, length: int, fill: Sequence[float] = (0.0,)) -> torch.Tensor:
    """Blanks a square in every image, (n, C, H, W); the square is clipped at the border.

    Args:
        centres: (n, 2) int64, row and column of each square's centre.
        length: side in pixels; rows centre - length // 2 up to, not with, centre - length // 2 + length.
        fill: value inside per channel, or one for all. 0 is the mean colour of normalised images, as in the original.
    """
    height, width = images.shape[-2:]
    top, left = (centres - length // 2).unbind(1)  # (n,) each
    rows = torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    in_rows = (rows >= top[:, None]) & (rows < top[:, None] + length)  # (n, H)
    in_columns = (columns >= left[:, None]) & (columns < left[:, None] + length)  # (n, W)
    inside = in_rows[:, None, :, None] & in_columns[:, None, None, :]  # (n, 1, H, W)
    return torch.where(inside, _per_channel(images, fill), images)


def _per_channel(images: torch.Tensor, fill: Sequence[float]) -> torch.Tensor:
    return torch.tensor(fill, dtype=images.dtype, device=images.device).view(1, -1, 1, 1)


class Augmentation:
    """Draws crops, flips and squares for a batch, and applies them in this order.

    image_size, flip, black: of the data set, for what the settings leave open and for the padding's colour.
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
        """How images are cut as they are read: those that are held are not."""
        return None

    def __call__(
        self, images: torch.Tensor, generator: torch.Generator, part: slice = slice(None), of: int | None = None
    ) -> torch.Tensor:
        """The images, (n, C, H, W), augmented; the same shape.

        Args:
            generator: on the images' device or the CPU.
            part: where these images stand in their batch, for which numbers are drawn as if the whole were here.
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


def _integers(high: int, shape: tuple[int, ...], images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Uniform in 0..high - 1, drawn on the generator's device (a CPU one gives every device the same draws)."""
    return torch.randint(high, shape, generator=generator, device=generator.device).to(images.device)


def proxy_batch(
    dataset: Dataset, size: int, seed: int, augment: bool | AugmentationSettings = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The one batch that training-free metrics see (note P5): training images, the same on every device.

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
