"""Evaluation with shared weights: of a mixture, or of many architectures in one pass over the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.data.dataset import Split
from archray.trainables.epoch_trainer import Metrics
from archray.trainables.spaces import Architecture
from archray.trainables.supernets.mixings.mixing import Mixture
from archray.trainables.supernets.networks import Supernet

ORDER = 0  # seed of the order of the images in evaluations


@torch.no_grad()
def score_architectures(
    supernet: Supernet,
    architectures: Sequence[Architecture | str],
    split: Split,
    batch: int = 512,
    *,
    amp: bool = False,
) -> list[Metrics]:
    """Loss and accuracy of each architecture with the supernet's weights, in evaluation mode; their order is kept.

    Every batch of images is seen by all architectures before the next one; images stay where they are.

    split: on the supernet's device; NaN for all if it has no images. Raises: InvalidArchitecture.
    """
    draws = [_path_of(supernet, architecture) for architecture in architectures]
    return evaluate(supernet, draws, split, batch, amp)


@torch.no_grad()
def predict_architecture(
    supernet: Supernet, architecture: Architecture | str, split: Split, batch: int = 512, *, amp: bool = False
) -> Tensor:
    """Class probabilities with the supernet's weights, in evaluation mode: (images, classes) float32, in order.

    The batches are those of `score_architectures`: the loss of these probabilities is the one it gives.

    Raises: InvalidArchitecture; InvalidInput if the split has no images.
    """
    if not len(split):
        raise InvalidInput("expected a split with images to predict on, got one of none")
    passes = list(_passes(supernet, [_path_of(supernet, architecture)], split, batch, amp))
    places = torch.cat([some for some, _, _ in passes])
    return torch.cat([logits for _, _, logits in passes]).softmax(1)[places.argsort()]


@torch.no_grad()
def evaluate(
    supernet: Supernet, draws: Sequence[Callable[[], Mixture]], split: Split, batch: int, amp: bool
) -> list[Metrics]:
    """Loss and accuracy, in evaluation mode, of the mixtures that each of `draws` gives, one for each batch."""
    device = split.images.device
    losses = torch.zeros(len(draws), device=device)  # sums stay on the device: one synchronisation in all
    correct = torch.zeros(len(draws), dtype=torch.int64, device=device)
    for some, number, logits in _passes(supernet, draws, split, batch, amp):
        labels = split.labels[some]
        losses[number] += F.cross_entropy(logits, labels, reduction="sum")
        correct[number] += (logits.argmax(1) == labels).sum()
    count = len(split) or math.nan
    return [Metrics(loss / count, right / count) for loss, right in zip(losses.tolist(), correct.tolist(), strict=True)]


def _passes(
    supernet: Supernet, draws: Sequence[Callable[[], Mixture]], split: Split, batch: int, amp: bool
) -> Iterator[tuple[Tensor, int, Tensor]]:
    """For every batch and draw: the images' places in the split, the draw's number, the logits in float32."""
    device, count = split.images.device, len(split)
    # Supernets normalise by the statistics of the batch at hand, and data may be sorted by class: a fixed random order.
    order = torch.randperm(count, generator=torch.Generator().manual_seed(ORDER)).to(device)
    was_training = supernet.training
    supernet.eval()
    try:
        for some in order.tensor_split(math.ceil(count / batch)) if count else ():
            images = split.images[some]
            for number, draw in enumerate(draws):
                with torch.autocast(device.type, dtype=torch.bfloat16) if amp else nullcontext():
                    logits = supernet(images, draw())
                yield some, number, logits.float()
    finally:
        supernet.train(was_training)


def _path_of(supernet: Supernet, architecture: Architecture | str) -> Callable[[], Mixture]:
    path = supernet.path(supernet.space.decode(architecture) if isinstance(architecture, str) else architecture)
    return lambda: path
