"""The one batch that training-free metrics see (note P5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from archray.errors import InvalidInput
from archray.trainables.data.augment import Augmentation, AugmentationSettings

if TYPE_CHECKING:
    from archray.trainables.data.dataset import Dataset


def proxy_batch(
    dataset: Dataset, size: int, seed: int, augment: bool | AugmentationSettings = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """A fixed batch of training images, drawn without replacement; the same on every device.

    Args:
        size: images in the batch; the thesis has 64.
        seed: of the draw and of the augmentation; the thesis has 42.
        augment: true crops and flips as in training (note P5); gaussian images are never augmented.

    Returns: images (size, C, H, W), labels (size,), on the data set's device.
    Raises: InvalidInput if there are fewer training images than `size`.
    """
    images, labels = dataset.train.images, dataset.train.labels
    if not 1 <= size <= len(labels):
        raise InvalidInput(
            f"expected a batch of 1 to {len(labels)} images (what {dataset.name} has for training), got {size}"
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(labels), generator=generator)[:size].to(labels.device)
    batch = images[chosen]
    if augment and dataset.name != "gaussian":
        settings = AugmentationSettings() if augment is True else augment
        draw = Augmentation(settings, image_size=dataset.image_size, flip=dataset.flip, black=dataset.black)
        batch = draw(batch, generator)
    return batch, labels[chosen]
