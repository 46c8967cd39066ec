"""Class probabilities of a trained network on a whole split."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from archray.trainables.data.dataset import Split
from archray.trainables.training import EVALUATION_BATCH


@torch.no_grad()
def predict(
    network: nn.Module, split: Split, batch: int = EVALUATION_BATCH, *, amp: bool = False
) -> npt.NDArray[np.float32]:
    """(images, classes) float32, in the split's order; the network is used as it is, in evaluation mode or not.

    Args:
        network: images (n, C, H, W) -> logits (n, classes).
        split: on the network's device.
        batch: images per forward pass; it changes no result of a network in evaluation mode.
        amp: forward passes in bfloat16.
    """
    parts = []
    for images in split.images.split(batch):
        with torch.autocast(images.device.type, dtype=torch.bfloat16) if amp else nullcontext():
            logits = network(images)
        parts.append(logits.float().softmax(1).cpu())
    found: npt.NDArray[np.float32] = torch.cat(parts).numpy()
    return found
