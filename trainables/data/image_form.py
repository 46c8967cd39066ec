"""The form of a network's input images: channels, size and normalization, for files and arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from archray.errors import InvalidInput
from archray.plurals import count
from archray.settings import Settings

if TYPE_CHECKING:
    import torch
    from PIL import Image

MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # number of channels -> PIL mode
DEPTH_16 = ("PNG", "PPM")  # formats whose pictures in PIL's mode I have 16 bits
BITS_PER_SAMPLE = 258  # a tag of TIFF


class ImageForm(Settings):
    """Processing of a data set's images, for repeating it on other images.

    Attributes:
        channels: Number of channels of the tensors, (channels, size, size).
        size: Height and width of the tensors.
        mean: Mean per channel, which normalization subtracts; None if a custom data set does not define it.
        std: Standard deviation per channel, by which normalization divides; None if a custom data set does not define
            it.
        unit: Whether the values before normalization are in 0..1, as for files.
        crop: Side of the centered square that is resized, as a share of the shorter side. None resizes the whole
            picture; a picture that is not square is distorted.
    """

    channels: int = Field(ge=1)
    size: int = Field(ge=1)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    unit: bool = True
    crop: float | None = Field(None, gt=0, le=1)

    @model_validator(mode="after")
    def _one_for_each_channel(self) -> ImageForm:
        for values in (self.mean, self.std):
            if values is not None and len(values) != self.channels:
                raise ValueError(f"expected one mean and one std per channel, {self.channels} each, got {values}")
        return self

    def read(self, file: str | Path) -> npt.NDArray[np.uint8]:
        """Reads a picture, (size, size, channels) of 8 bits, converted to the data set's channels and resized.

        Raises: InvalidInput, with the file's name, if it is not a picture, or if pictures cannot have these channels.
        """

        if self.channels not in MODES:
            raise InvalidInput(
                f"expected a network for pictures with {', '.join(map(str, MODES))} channels, got one for "
                f"{self.channels}. Give arrays (n, {self.channels}, H, W)"
            )
        return self.resized(read_picture(file, MODES[self.channels]))

    def resized(self, picture: Image.Image) -> npt.NDArray[np.uint8]:
        """Resizes a picture with these channels to (size, size, channels) of 8 bits."""
        from PIL import Image

        box = None if self.crop is None else middle(*picture.size, self.crop)
        resized = picture.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)  # antialiased by PIL
        return np.asarray(resized).reshape(self.size, self.size, self.channels)

    def of_files(self, files: Sequence[str | Path]) -> torch.Tensor:
        """Reads pictures as a network's input, (n, channels, size, size) float32. Raises: InvalidInput as `read`."""
        self._check_known()
        if not self.unit:
            raise InvalidInput(
                "expected arrays on the scale of the training data, whose values are not in 0..1, got image files. "
                "Give arrays from Python: run.predict(images)"
            )
        pixels = np.stack([self.read(file) for file in files]).transpose(0, 3, 1, 2)
        return self.of_arrays(np.ascontiguousarray(pixels))

    def of_arrays(self, images: Any, *, normalized: bool = False) -> torch.Tensor:
        """Converts arrays or tensors to a network's input, (n, channels, size, size) float32.

        Args:
            images: (n, C, H, W), (n, H, W, C) or, with one channel, (n, H, W); 8-bit, or floats on the scale of the
                data set (0..1 for files). n may be omitted for one image.
            normalized: Whether they are already normalized; then they are only resized.

        Raises: InvalidInput for another shape, other channels, or values that are not finite.
        """
        import torch
        from torch.nn import functional

        tensor = images.detach().cpu() if isinstance(images, torch.Tensor) else _tensor(images)
        if tensor.dtype == torch.bool or tensor.is_complex():
            raise InvalidInput(f"expected 8-bit or float images, got {str(tensor.dtype).removeprefix('torch.')}")
        whole = tensor.dtype == torch.uint8
        tensor = self._channels_first(tensor).float()
        if not tensor.isfinite().all():
            raise InvalidInput("expected finite images, got NaN or infinity. Remove these images")
        if whole and not normalized:
            tensor = tensor / 255
        if tensor.shape[-2:] != (self.size, self.size):
            tensor = functional.interpolate(
                tensor, size=(self.size, self.size), mode="bilinear", antialias=True, align_corners=False
            )
        if normalized:
            return tensor
        mean, std = self._check_known()
        return (tensor - torch.tensor(mean).view(1, -1, 1, 1)) / torch.tensor(std).view(1, -1, 1, 1)

    def _channels_first(self, tensor: torch.Tensor) -> torch.Tensor:
        shape = tuple(tensor.shape)
        if self.channels == 1 and tensor.ndim == 2:
            tensor = tensor[None, None]
        elif self.channels == 1 and tensor.ndim == 3 and 1 not in (shape[0], shape[2]):
            tensor = tensor[:, None]  # (n, H, W)
        elif tensor.ndim == 3:
            tensor = tensor[None]
        if tensor.ndim == 4 and tensor.shape[1] != self.channels and tensor.shape[3] == self.channels:
            tensor = tensor.permute(0, 3, 1, 2)
        if tensor.ndim != 4 or tensor.shape[1] != self.channels or 0 in tensor.shape:
            plain = ", (n, H, W)" if self.channels == 1 else ""
            raise InvalidInput(
                f"expected images with {count(self.channels, 'channel')}, (n, {self.channels}, H, W) or "
                f"(n, H, W, {self.channels}){plain}, got {shape}"
            )
        return tensor

    def _check_known(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        if self.mean is None or self.std is None:
            raise InvalidInput(
                "expected a data set with a known normalization, got a custom one without it. Give its Dataset a "
                "`form` (an ImageForm), or give normalized arrays: run.predict(images, normalized=True)"
            )
        return self.mean, self.std


def _tensor(images: Any) -> torch.Tensor:
    """Raises: InvalidInput unless `images` is an array of numbers."""
    import torch

    try:
        array = np.asarray(images)
    except ValueError as error:  # images of different sizes
        raise InvalidInput(f"expected images of one size in an array, got {error}. Give them one by one") from error
    if array.dtype.kind not in "uif":
        raise InvalidInput(f"expected images as numbers, got an array of {array.dtype}. Give arrays, tensors or files")
    if array.dtype != np.uint8:
        array = array.astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(array))


def read_picture(file: str | Path | BinaryIO, mode: str = "RGB") -> Image.Image:
    """Reads the picture in a file or stream, 8 bits per channel, rotated by its EXIF orientation.

    Of an animation it reads the first picture.

    Integers of more bits are scaled by their depth, floats from 0..1. PIL reads 16-bit colors as their upper 8 bits.
    Without an alpha channel in `mode`, transparent pixels have the color that the file stores for them.

    Args:
        mode: PIL's name of the channels, as in MODES.

    Raises: InvalidInput, with the file's name, if the file is missing, not a picture, broken or of another depth.
    """
    from PIL import Image, ImageOps

    if isinstance(file, str | Path) and os.path.exists(file) and not os.path.isfile(file):  # reading a pipe would block
        raise InvalidInput(f"expected an image file, got {file}, which is a folder or a device. Remove it")
    try:
        with Image.open(file) as image:
            picture = ImageOps.exif_transpose(image)
            if picture.mode[0] in "IF":
                picture = _of_8_bits(picture, image)
            return converted(picture, mode)
    except FileNotFoundError as error:
        raise InvalidInput(f"expected an image file at {file}, got none. Give images or folders of images") from error
    except Exception as error:  # PIL's readers raise errors of many types on a broken file
        raise InvalidInput(f"archray cannot read {file} as an image ({error}); repair or remove it") from error


def converted(picture: Image.Image, mode: str = "RGB") -> Image.Image:
    """Converts a picture with 8 bits per channel to a mode of PIL."""
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")  # PIL warns about conversions to other modes
    return picture.convert(mode)


def _of_8_bits(picture: Image.Image, image: Image.Image) -> Image.Image:
    """Converts a gray picture of more bits, or of floats, to 8 bits. image: the opened image."""
    from PIL import Image

    pixels = np.asarray(picture).astype(np.float64)
    if picture.mode == "F":
        if not (pixels.min() >= 0 and pixels.max() <= 1):  # NaN too
            raise ValueError(f"expected floats in 0..1, got {pixels.min():g}..{pixels.max():g}; convert it to 8 bits")
        return Image.fromarray((pixels * 255).round().astype(np.uint8))
    if picture.mode == "I" and image.format not in DEPTH_16:
        raise ValueError("expected 1, 8 or 16 bits per channel, got integers of 32 bits; convert it to 8 or 16 bits")
    tags = getattr(image, "tag_v2", {})  # of TIFF, which also supports 12 bits
    depth = max(tags.get(BITS_PER_SAMPLE, (16,)))
    return Image.fromarray((pixels * (255 / (2**depth - 1))).round().astype(np.uint8))


def middle(width: int, height: int, share: float) -> tuple[float, float, float, float]:
    """Returns left, top, right and bottom of the centered square with `share` of the shorter side, in pixels."""
    side = share * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side
