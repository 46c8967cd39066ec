"""The sandwich rule: in each step the largest network, the smallest and random ones. Yu and Huang 2019, Algorithm 1.

A pure loop over tensors that lie on one device. It knows nothing of Ray or of files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from archray.trainables.data.dataset import Dataset
from archray.trainables.devices import own_randomness
from archray.trainables.epoch_trainer import Metrics, SGDTrainer, cosine
from archray.trainables.spaces import Architecture
from archray.trainables.supernets.batches import Batches
from archray.trainables.supernets.elastic.slices import SlicedSupernet, score_slices
from archray.trainables.supernets.sandwich_settings import SandwichSettings

ORDER, AUGMENTATION, NETWORK, DRAWS = 0, 1, 2, 3  # purposes of random streams


class SandwichTrainer(SGDTrainer[SandwichSettings]):
    """Trains a sliced supernet on a data set. In each step, of one batch,

    1. the largest network's loss is that of the labels,
    2. so is the smallest network's, and that of `draws` random ones, drawn uniformly from the space; with
       `distillation` it is the cross-entropy to the largest one's predictions,
    3. the gradients are added up, clipped, and one step of SGD is made, at a cosine learning rate.

    Layer normalisation has no statistics, so that nothing is calibrated after training as Yu and Huang must.

    Args:
        supernet: moved to the data's device.
        seed: of the order, the augmentation and the draws of every epoch.
    """

    def __init__(self, supernet: SlicedSupernet, dataset: Dataset, settings: SandwichSettings, *, seed: int) -> None:
        self.supernet = supernet.to(dataset.train.images.device)
        self.smallest, self.largest = supernet.extremes(supernet.space)
        super().__init__(self.supernet, dataset, settings, seed=seed)

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.dataset.train) / self.settings.batch_size)

    @property
    def lr(self) -> float:
        """The learning rate of the next step; 0 when training has finished."""
        return self._lr(0)

    def epoch(self) -> Metrics:
        """Trains one epoch. Loss and accuracy are the largest network's, of the batches, before each step.

        A loss that is not finite is returned as it is. Raises: RuntimeError when training has finished.
        """
        self._check_unfinished()
        self.supernet.train()
        train = self.dataset.train
        every = torch.arange(len(train), device=self.device)
        seeds = {"ordering": self._stream(ORDER), "augmenting": self._stream(AUGMENTATION)}
        batches = Batches(train, every, self.settings.batch_size, self._augmentation, **seeds)
        drawing = np.random.default_rng(self._stream(DRAWS))
        loss_sum = torch.zeros((), device=self.device)  # sums stay on the device: one synchronisation per epoch
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        with own_randomness(self._stream(NETWORK), self.device):
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
        """Adds the gradients of the sandwich to those that are there; loss and logits of the largest network.

        images: (b, C, H, W). labels: (b,).
        """
        logits = self._logits(self.supernet, images, self.largest)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        target = logits.detach().softmax(1) if self.settings.distillation else labels
        for architecture in (self.smallest, *drawn):
            F.cross_entropy(self._logits(self.supernet, images, architecture), target).backward()
        return loss.detach(), logits.detach()

    def score(self, architectures: Sequence[Architecture]) -> list[Metrics]:
        """Of each architecture with the shared weights, on the validation data."""
        settings = self.settings
        validation = self.dataset.validation
        return score_slices(self.supernet, architectures, validation, settings.evaluation_batch, amp=settings.amp)

    def _parts(self) -> Mapping[str, Any]:
        return {"supernet": self.supernet, "optimizer": self.optimizer}

    def _lr(self, step: int) -> float:
        steps = self.steps_per_epoch
        return cosine(self.settings.lr, self.epochs_done * steps + step, self.settings.epochs * steps)
