"""Training one network: SGD with momentum and a cosine schedule. NAS-Bench-201 (Dong & Yang 2020), section 2.4.

A pure loop over tensors that lie on one device. It knows nothing of Ray, of files or of search spaces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.devices import own_randomness
from archray.trainables.epoch_trainer import NO_METRICS, Metrics, SGDTrainer, cosine
from archray.trainables.training_settings import TrainingSettings

if TYPE_CHECKING:
    from archray.trainables.data import Dataset, Split

EVALUATION_BATCH = 512  # images per forward pass of an evaluation; it changes no result, only memory and speed
ORDER, AUGMENTATION, NETWORK = 0, 1, 2  # purposes of random streams


class Trainer(SGDTrainer[TrainingSettings]):
    """Trains `network` on a data set.

    The learning rate is annealed per step, as in NAS-Bench-201's program. An epoch is cut into batches of equal
    size (to within one image) where that program leaves a short last one: small data has no batch of a single
    image, which batch normalisation refuses.

    Dropout in the network draws from (seed, epoch) too; torch's global generators are as they were after each call.

    Args:
        network: moved to the data's device; images (n, C, H, W) -> logits (n, classes). With an auxiliary tower it
            has a module `auxiliary` and returns (logits, the tower's logits) in train mode. One with dropped paths
            has an attribute `drop_path`, their probability, which is set before each epoch.
        seed: of everything but the network's initial parameters, which the caller made.

    Raises: InvalidInput if `settings` ask for what the network lacks, an auxiliary tower or dropped paths, or leave a
    tower without weight; if `settings.compile` is asked for without CUDA.
    """

    def __init__(self, network: nn.Module, dataset: Dataset, settings: TrainingSettings, *, seed: int) -> None:
        device = dataset.train.images.device
        if settings.compile and device.type != "cuda":
            raise InvalidInput(
                f"compile needs a CUDA device, got {device.type}; set training.compile to false or use a GPU"
            )
        _check_network(network, settings)
        self._format = torch.channels_last if settings.channels_last else torch.contiguous_format
        self.network = network.to(device).to(memory_format=self._format)
        super().__init__(self.network, dataset, settings, seed=seed)
        self._forward: Callable[[Tensor], Any] = torch.compile(self.network) if settings.compile else self.network

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.dataset.train.labels) / self.settings.batch_size)

    @property
    def lr(self) -> float:
        """The learning rate of the next step; 0 when training has finished."""
        return self._lr(self.epochs_done * self.steps_per_epoch)

    def epoch(self) -> Metrics:
        """Trains one epoch. Loss and accuracy are the training batches' own, before each step, as augmented, and
        without the auxiliary tower's.

        A loss that is not finite is returned as it is: whether to stop is the caller's to say.
        Raises: RuntimeError when training has finished.
        """
        self._check_unfinished()
        train = self.dataset.train
        loss_sum = torch.zeros((), device=self.device)  # sums stay on the device: one synchronisation per epoch
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        self.network.train()
        if self.settings.drop_path > 0:
            probability = self.settings.drop_path * self.epochs_done / self.settings.epochs
            self.network.drop_path = probability  # type: ignore[assignment]  # torch's stubs know tensors and modules
        with own_randomness(self._stream(NETWORK), self.device):
            shuffling = torch.Generator(self.device).manual_seed(self._stream(ORDER))
            augmenting = torch.Generator(self.device).manual_seed(self._stream(AUGMENTATION))
            order = torch.randperm(len(train.labels), generator=shuffling, device=self.device)
            step = self.epochs_done * self.steps_per_epoch
            for batch in order.tensor_split(self.steps_per_epoch):
                images, labels = train.images[batch], train.labels[batch]  # (b, C, H, W), (b,)
                if self._augmentation is not None:
                    images = self._augmentation(images, augmenting)
                loss, logits = self._step(images, labels, self._lr(step))
                loss_sum += loss * len(batch)
                correct += (logits.argmax(1) == labels).sum()
                step += 1
        self.epochs_done += 1
        return Metrics(loss_sum.item() / len(train.labels), correct.item() / len(train.labels))

    def _step(self, images: Tensor, labels: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        with self._autocast():
            outputs = self._forward(images.contiguous(memory_format=self._format))
        logits, second = outputs if self.settings.auxiliary_weight > 0 else (outputs, None)
        loss = whole = self._loss(logits, labels)
        if second is not None:
            whole = loss + self.settings.auxiliary_weight * self._loss(second, labels)
        self._descend(whole, lr)
        return loss.detach(), logits.detach()

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels, label_smoothing=self.settings.label_smoothing)

    @torch.no_grad()
    def evaluate(self, split: Split) -> Metrics:
        """Loss (without label smoothing) and accuracy on a whole split, in evaluation mode."""
        count = len(split.labels)
        if count == 0:
            return NO_METRICS
        loss_sum = torch.zeros((), device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        self.network.eval()
        for images, labels in zip(
            split.images.split(EVALUATION_BATCH), split.labels.split(EVALUATION_BATCH), strict=True
        ):
            with self._autocast():
                logits = self._forward(images.contiguous(memory_format=self._format))
            loss_sum += F.cross_entropy(logits.float(), labels, reduction="sum")
            correct += (logits.argmax(1) == labels).sum()
        return Metrics(loss_sum.item() / count, correct.item() / count)

    def _parts(self) -> dict[str, Any]:
        return {"network": self.network, "optimizer": self.optimizer}

    def _lr(self, step: int) -> float:
        ends = [epoch * self.steps_per_epoch for epoch in self.settings.cycle_ends]
        cycle = next((number for number, end in enumerate(ends) if step < end), len(ends) - 1)
        begin = ends[cycle - 1] if cycle > 0 else 0
        return cosine(self.settings.lr, step - begin, ends[cycle] - begin)


def _check_network(network: nn.Module, settings: TrainingSettings) -> None:
    tower = getattr(network, "auxiliary", None) is not None
    if settings.auxiliary_weight > 0 and not tower:
        raise InvalidInput(
            f"expected auxiliary_weight 0, as the network has no auxiliary tower, got {settings.auxiliary_weight}; "
            "set network.auxiliary to true where the space has one, or training's auxiliary_weight to 0"
        )
    if tower and settings.auxiliary_weight == 0:
        raise InvalidInput(
            "expected auxiliary_weight above 0, as the network has an auxiliary tower, got 0; set training's "
            "auxiliary_weight to 0.4, or network.auxiliary to false"
        )
    if settings.drop_path > 0 and not hasattr(network, "drop_path"):
        raise InvalidInput(
            f"expected drop_path 0, as the network has no paths to drop, got {settings.drop_path}; set training's "
            "drop_path to 0"
        )
