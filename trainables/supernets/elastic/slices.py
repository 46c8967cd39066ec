"""Supernets of which every architecture is a slice: weight entanglement. Chen et al. 2021 (AutoFormer), sec. 3.2.

Networks of two sizes share what both have: the first rows and columns of a matrix, the first layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.registry import Registry
from archray.trainables.data.dataset import Split
from archray.trainables.epoch_trainer import NO_METRICS, Metrics
from archray.trainables.nets.build_network import build
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import Architecture, Space, get_space


class SlicedSupernet(nn.Module, ABC):
    """The weights of the largest network of a space.

    Args:
        space: a space whose networks are slices of its largest.
        network: that network, whose parameters are this module's.
    """

    def __init__(self, space: Space, network: nn.Module) -> None:
        super().__init__()
        self.space, self.network = space, network

    @abstractmethod
    def forward(self, images: Tensor, architecture: Architecture) -> Tensor:
        """Images (n, in_channels, H, W) -> logits (n, num_classes), by the slices of `architecture`."""

    @abstractmethod
    def weights_of(self, architecture: Architecture) -> dict[str, Tensor]:
        """The slices of an architecture, as the state of its standalone network; views of the shared weights."""

    @classmethod
    @abstractmethod
    def extremes(cls, space: Space) -> tuple[Architecture, Architecture]:
        """The smallest and the largest architecture."""


# the supernets by the name of their space; called with the space and its largest network
SLICED_SUPERNETS: Registry[Callable[[Space, nn.Module], SlicedSupernet]] = Registry("sliced supernet")


def sliced_class(space: Space) -> type[SlicedSupernet]:
    """The supernet of a space. Raises: InvalidInput if it has none."""
    if space.name not in SLICED_SUPERNETS:
        raise InvalidInput(
            f"the networks of {space.name} are no slices of its largest one; choose {', '.join(SLICED_SUPERNETS)}, or "
            "a method that mixes operations (gaea-darts, rs-ws)"
        )
    supernet = SLICED_SUPERNETS.get(space.name)
    assert isinstance(supernet, type)  # they are registered as classes
    return supernet


def build_sliced(
    space: Space | str, network: NetworkSettings, in_channels: int, num_classes: int, seed: int | None
) -> SlicedSupernet:
    """The supernet of a space, in train mode, on the CPU.

    network: the skeleton of every network in it. seed: as of `build`. Raises: InvalidInput if the space has none, or
    the settings do not go together.
    """
    space = get_space(space)
    supernet = sliced_class(space)
    _, largest = supernet.extremes(space)
    module = build(space, largest, network=network, in_channels=in_channels, num_classes=num_classes, seed=seed)
    return supernet(space, module).train()


@torch.no_grad()
def copy_slices(supernet: SlicedSupernet, architecture: Architecture | str, standalone: nn.Module) -> None:
    """Gives `standalone`, the network of `architecture`, its weights in the supernet: then both give the same outputs.

    Raises: InvalidArchitecture; InvalidInput if `standalone` is of another size.
    """
    choices = supernet.space.decode(architecture) if isinstance(architecture, str) else architecture
    try:
        standalone.load_state_dict(supernet.weights_of(choices))
    except RuntimeError as error:
        raise InvalidInput(f"expected the standalone network of a slice of the supernet: {error}") from error


@torch.no_grad()
def score_slices(
    supernet: SlicedSupernet,
    architectures: Sequence[Architecture],
    split: Split,
    batch: int,
    *,
    amp: bool = False,
) -> list[Metrics]:
    """Loss and accuracy of each architecture with the shared weights, in evaluation mode; NaN on no images."""
    was_training = supernet.training
    supernet.eval()
    try:
        return [_score(supernet, architecture, split, batch, amp) for architecture in architectures]
    finally:
        supernet.train(was_training)


def _score(supernet: SlicedSupernet, architecture: Architecture, split: Split, batch: int, amp: bool) -> Metrics:
    count = len(split.labels)
    if count == 0:
        return NO_METRICS
    loss_sum = torch.zeros((), device=split.labels.device)  # on the device: one synchronisation in all
    correct = torch.zeros((), dtype=torch.int64, device=split.labels.device)
    for images, labels in _batches(split, batch):
        with torch.autocast(images.device.type, dtype=torch.bfloat16) if amp else nullcontext():
            logits = supernet(images, architecture)
        loss_sum += F.cross_entropy(logits.float(), labels, reduction="sum")
        correct += (logits.argmax(1) == labels).sum()
    return Metrics(loss_sum.item() / count, correct.item() / count)


def _batches(split: Split, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    yield from zip(split.images.split(batch), split.labels.split(batch), strict=True)
