"""Images in 0..1, which attacks change, and networks that take them: normalisation becomes part of the network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.data.dataset import Dataset
from archray.trainables.data.image_form import ImageForm


def check_pixels(data: Dataset) -> ImageForm:
    """How the data set normalises pixels in 0..1. Raises: InvalidInput for one that has no such pixels."""
    form = data.form
    if form is None or form.mean is None or form.std is None:
        raise InvalidInput(
            f"expected a data set that says how its pixels are normalised, as epsilon is in units of a pixel in 0..1, "
            f"and {data.name} does not; give its Dataset a `form` (an ImageForm)"
        )
    if not form.unit:
        raise InvalidInput(
            f"expected images whose pixels lie in 0..1 before normalisation, as epsilon is in units of such a pixel, "
            f"got {data.name}, whose values go beyond; attack a run on images, or divide your arrays by their maximum"
        )
    return form


def pixels_of(images: Tensor, form: ImageForm) -> Tensor:
    """Normalised images (n, C, H, W) as pixels in 0..1; what rounding leaves outside is clipped."""
    mean, std = _statistics(form, images.device)
    return (images * std + mean).clamp(0.0, 1.0)


class PixelNetwork(nn.Module):
    """A network as attacks see it: pixels in 0..1, (n, C, H, W) -> logits (n, classes), float32.

    network: normalised images -> logits, or a tuple of which these are the first.
    """

    def __init__(self, network: nn.Module, form: ImageForm) -> None:
        super().__init__()
        self.network = network
        mean, std = _statistics(form)
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, pixels: Tensor) -> Tensor:
        outputs = self.network((pixels - self.mean) / self.std)
        logits: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
        return logits.float()


def _statistics(form: ImageForm, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Mean and deviation, (1, C, 1, 1) each."""
    mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in (form.mean, form.std))
    return mean, std
