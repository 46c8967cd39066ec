"""Supernets whose architectures are slices of the largest network, and the sandwich rule that trains them.

Networks share the first rows and columns of each matrix, and the first layers. Chen et al. 2021 (AutoFormer), sec. 3.2;
Yu and Huang 2019, Algorithm 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.registry import Registry
from archray.trainables.data.dataset import Dataset, Split
from archray.trainables.devices import restored_randomness, tf32
from archray.trainables.nets.build_network import build
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.nets.vit_network import Block, VisionTransformer, attention, patches, positions, transformers
from archray.trainables.spaces import Architecture, Space, get_space
from archray.trainables.spaces.vit import TransformerLayer
from archray.trainables.supernets.settings import SandwichSettings
from archray.trainables.supernets.trainer import Batches
from archray.trainables.training import NO_METRICS, Metrics, SGDTrainer, cosine

ORDER, AUGMENTATION, NETWORK, DRAWS = 0, 1, 2, 3  # purposes of random streams
QKV = 3  # queries, keys and values are stored in this order


class SlicedSupernet(nn.Module, ABC):
    """The weights of the largest network of a space.

    Args:
        network: Largest network of `space`, with the parameters of this module.
    """

    def __init__(self, space: Space, network: nn.Module) -> None:
        super().__init__()
        self.space, self.network = space, network

    @abstractmethod
    def forward(self, images: Tensor, architecture: Architecture) -> Tensor:
        """Maps images (n, in_channels, H, W) to logits (n, num_classes), with the slices of `architecture`."""

    @abstractmethod
    def weights_of(self, architecture: Architecture) -> dict[str, Tensor]:
        """Returns the slices of an architecture, as its standalone network's state; views of the shared weights."""

    @classmethod
    @abstractmethod
    def extremes(cls, space: Space) -> tuple[Architecture, Architecture]:
        """Returns the smallest and the largest architecture."""

    @classmethod
    def whole(cls, space: Space, network: NetworkSettings, **options: Any) -> nn.Module:
        """Builds the network whose weights all architectures share: the largest one. options: as for `build`."""
        return build(space, cls.extremes(space)[1], network=network, **options)


SLICED_SUPERNETS: Registry[type[SlicedSupernet]] = Registry("sliced supernet")  # by the name of their space


def sliced_class(space: Space) -> type[SlicedSupernet]:
    """Returns the class of a space's supernet. Raises: InvalidInput if it has none."""
    if space.family not in SLICED_SUPERNETS:
        raise InvalidInput(
            f"expected a space whose networks are slices of the largest one, got {space.name}. Choose "
            f"{', '.join(SLICED_SUPERNETS)}, or a method that mixes operations (gaea-darts, rs-ws)"
        )
    return SLICED_SUPERNETS.get(space.family)


def build_sliced(
    space: Space | str, network: NetworkSettings, in_channels: int, num_classes: int, seed: int | None
) -> SlicedSupernet:
    """Builds the supernet of a space, in train mode, on the CPU.

    Args:
        network: Width, depth and stem of every network.
        seed: As in `build`.

    Raises: InvalidInput if the space has no supernet, or the settings are inconsistent.
    """
    space = get_space(space)
    supernet = sliced_class(space)
    module = supernet.whole(space, network, in_channels=in_channels, num_classes=num_classes, seed=seed)
    return supernet(space, module).train()


@torch.no_grad()
def score_slices(
    supernet: SlicedSupernet,
    architectures: Sequence[Architecture],
    split: Split,
    batch: int,
    *,
    amp: bool = False,
) -> list[Metrics]:
    """Computes loss and accuracy of each architecture with shared weights, in evaluation mode; NaN without images."""
    was_training, count = supernet.training, len(split.labels)
    metrics: list[Metrics] = []
    supernet.eval()
    try:
        for architecture in architectures if count else ():
            loss_sum = torch.zeros((), device=split.labels.device)  # sums stay on the device: one synchronization
            correct = torch.zeros((), dtype=torch.int64, device=split.labels.device)
            for images, labels in split.in_order(batch):
                with torch.autocast(images.device.type, dtype=torch.bfloat16) if amp else nullcontext():
                    logits = supernet(images, architecture)
                loss_sum += F.cross_entropy(logits.float(), labels, reduction="sum")
                correct += (logits.argmax(1) == labels).sum()
            metrics.append(Metrics(loss_sum.item() / count, correct.item() / count))
    finally:
        supernet.train(was_training)
    return metrics or [NO_METRICS] * len(architectures)


@SLICED_SUPERNETS.register("vit")
class SlicedTransformer(SlicedSupernet):
    """A sliced vision transformer: the first layers, token numbers, heads and hidden units of the largest network.

    All networks share the convolution before the patches.
    """

    network: VisionTransformer

    @classmethod
    def extremes(cls, space: Space) -> tuple[Architecture, Architecture]:
        family = transformers(space)
        return family.smallest, family.largest

    def forward(self, images: Tensor, architecture: Architecture) -> Tensor:
        weights = self.weights_of(architecture)
        width, blocks = self._sliced(architecture)

        def linear(name: str, x: Tensor) -> Tensor:
            return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

        def norm(name: str, x: Tensor) -> Tensor:
            return F.layer_norm(x, (width,), weights[f"{name}.weight"], weights[f"{name}.bias"], self.network.norm.eps)

        tokens, grid = patches(self.network.stem(images))
        x = norm("embedding_norm", linear("embedding", tokens))
        x = x + positions(grid, width, x)  # (n, T, width)
        for number, (block, layer) in enumerate(blocks):  # as `Block`
            name = f"blocks.{number}"
            attended = attention(linear(f"{name}.qkv", norm(f"{name}.attention_norm", x)), layer.heads)
            x = x + linear(f"{name}.projection", attended)
            hidden = block.activation(linear(f"{name}.expansion", norm(f"{name}.mlp_norm", x)))
            x = x + linear(f"{name}.contraction", hidden)
        return linear("classifier", norm("norm", x).mean(1))

    def weights_of(self, architecture: Architecture) -> dict[str, Tensor]:
        network = self.network
        width, blocks = self._sliced(architecture)
        state = {f"stem.{name}": tensor for name, tensor in network.stem.state_dict().items()}
        state |= {
            "embedding.weight": network.embedding.weight[:width],
            "embedding.bias": network.embedding.bias[:width],
            "classifier.weight": network.classifier.weight[:, :width],
            "classifier.bias": network.classifier.bias,
        }
        norms = {"embedding_norm": network.embedding_norm, "norm": network.norm}
        for number, (block, layer) in enumerate(blocks):
            name, size, hidden = f"blocks.{number}", layer.heads * _head(block), layer.ratio * width
            norms |= {f"{name}.attention_norm": block.attention_norm, f"{name}.mlp_norm": block.mlp_norm}
            state |= {
                f"{name}.qkv.weight": _of_heads(block.qkv.weight, layer, block)[..., :width],
                f"{name}.qkv.bias": _of_heads(block.qkv.bias, layer, block),
                f"{name}.projection.weight": block.projection.weight[:width, :size],
                f"{name}.projection.bias": block.projection.bias[:width],
                f"{name}.expansion.weight": block.expansion.weight[:hidden, :width],
                f"{name}.expansion.bias": block.expansion.bias[:hidden],
                f"{name}.contraction.weight": block.contraction.weight[:width, :hidden],
                f"{name}.contraction.bias": block.contraction.bias[:width],
            }
        for name, norm in norms.items():
            state |= {f"{name}.weight": norm.weight[:width], f"{name}.bias": norm.bias[:width]}
        return state

    def _sliced(self, architecture: Architecture) -> tuple[int, list[tuple[Block, TransformerLayer]]]:
        """Returns the width of a token, and the blocks of the architecture with their layers."""
        shape = transformers(self.space).shape(architecture)
        _, largest = self.extremes(self.space)
        most = transformers(self.space).shape(largest)
        unit, repeated = self.network.embedding.out_features // most.width, len(self.network.blocks) // most.depth
        layers = [layer for layer in shape.layers for _ in range(repeated)]
        blocks = [block for block in self.network.blocks if isinstance(block, Block)]
        return shape.width * unit, list(zip(blocks, layers, strict=False))


def _head(block: Block) -> int:
    """Returns the width of a head."""
    return block.projection.in_features // block.heads


def _of_heads(tensor: Tensor, layer: TransformerLayer, block: Block) -> Tensor:
    """Returns the rows of the first heads, in queries, keys and values: (3 H d, ...) -> (3 heads d, ...)."""
    return tensor.unflatten(0, (QKV, block.heads, _head(block)))[:, : layer.heads].flatten(0, 2)


class SandwichTrainer(SGDTrainer[SandwichSettings]):
    """Trains a sliced supernet on a data set. Each step, on one batch:

    1. The largest network learns the labels.
    2. The smallest network and `draws` random ones, drawn uniformly from the space, learn the labels, or with
       `distillation` the predictions of the largest one.
    3. The sum of the gradients is clipped; one step of SGD follows, with a cosine learning rate.

    Layer normalization has no statistics that need the calibration of Yu and Huang.

    Args:
        supernet: Moved to the data's device.
        seed: Seed of the order, the augmentation and the draws of every epoch.
    """

    def __init__(self, supernet: SlicedSupernet, dataset: Dataset, settings: SandwichSettings, *, seed: int) -> None:
        if settings.cuda_graphs:
            raise InvalidInput("expected cuda_graphs false for a sliced supernet, got true. Set cuda_graphs to false")
        self.supernet = supernet.to(dataset.train.device)
        self.smallest, self.largest = supernet.extremes(supernet.space)
        super().__init__(self.supernet, dataset, settings, seed=seed)

    def epoch(self) -> Metrics:
        """Trains one epoch. Returns loss and accuracy of the largest network on the batches, before each step.

        The loss may be infinite or NaN. Raises: RuntimeError when training has finished.
        """
        self._check_unfinished()
        self.supernet.train()
        train = self.dataset.train
        seeds = {"ordering": self._stream(ORDER), "augmenting": self._stream(AUGMENTATION)}
        batches = Batches(train, None, self.settings.batch_size, self._augmentation, **seeds)
        drawing = np.random.default_rng(self._stream(DRAWS))
        loss_sum = torch.zeros((), device=self.device)  # sums stay on the device: one synchronization per epoch
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        with restored_randomness(self._stream(NETWORK), self.device), tf32(self.settings.tf32):
            for step in range(self.steps_per_epoch):
                images, labels = batches.take()
                drawn = [self.supernet.space.sample(drawing) for _ in range(self.settings.draws)]
                self.optimizer.zero_grad(set_to_none=True)
                loss, logits = self.gradients(images, labels, drawn)
                self._update(self._lr(step))
                loss_sum += loss * len(labels)
                correct += (logits.argmax(1) == labels).sum()
        self.epochs_done += 1
        return Metrics(loss_sum.item() / len(train), correct.item() / len(train))

    def gradients(self, images: Tensor, labels: Tensor, drawn: Sequence[Architecture]) -> tuple[Tensor, Tensor]:
        """Adds the gradients of the sandwich rule. Returns loss and logits of the largest network.

        Args:
            images: (b, C, H, W).
            labels: (b,).
        """
        logits = self._logits(self.supernet, images, self.largest)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        target = logits.detach().softmax(1) if self.settings.distillation else labels
        for architecture in (self.smallest, *drawn):
            F.cross_entropy(self._logits(self.supernet, images, architecture), target).backward()
        return loss.detach(), logits.detach()

    def score(self, architectures: Sequence[Architecture]) -> list[Metrics]:
        """Computes metrics of each architecture with the shared weights, on the validation data."""
        batch, amp = self.settings.evaluation_batch, self.settings.amp
        return score_slices(self.supernet, architectures, self.dataset.validation, batch, amp=amp)

    def _parts(self) -> Mapping[str, Any]:
        return {"supernet": self.supernet, "optimizer": self.optimizer}

    def _lr(self, step: int) -> float:
        steps = self.steps_per_epoch
        return cosine(self.settings.lr, self.epochs_done * steps + step, self.settings.epochs * steps)
