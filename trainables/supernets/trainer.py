"""Weights and architecture parameters trained side by side. DARTS, Liu et al. 2019; GAEA, Li et al. 2021, Algorithm 1.

A pure loop over tensors that lie on one device. It knows nothing of Ray, of files, or of how mixtures are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from archray.seeds import stream_seed
from archray.trainables.data.dataset import Dataset, Split
from archray.trainables.data.raw import stratified_split
from archray.trainables.devices import own_randomness
from archray.trainables.epoch_trainer import NO_METRICS, Metrics, SGDTrainer, cosine
from archray.trainables.supernets.batches import Batch, Batches, Block, both_blocks
from archray.trainables.supernets.cost_penalty import CostPenalty
from archray.trainables.supernets.evaluation import evaluate, score_architectures
from archray.trainables.supernets.mixings.mixing import Mixing, Mixture, lesson_of, unrolled_gradient
from archray.trainables.supernets.networks import Supernet
from archray.trainables.supernets.supernet_training_settings import SECOND_ORDER, SupernetTrainingSettings
from archray.trainables.supernets.updates import UpdateCounter

# Purposes of random streams
WEIGHT_ORDER, WEIGHT_AUGMENTATION, ARCHITECTURE_ORDER, ARCHITECTURE_AUGMENTATION = 0, 1, 2, 3
BLOCKS, MIXTURES, NETWORK, EVALUATION, HALVES, DERIVATION = 4, 5, 6, 7, 8, 9


class Diverged(ArithmeticError):
    """A loss or a gradient that is not finite; the message says which, and when."""


class SupernetTrainer(SGDTrainer[SupernetTrainingSettings]):
    """Trains a supernet on a data set.

    In each step, while the architecture is not in its warm-up and there is something to learn (`blocks` alternating):

    1. theta <- what the mixing learns from a batch of the architecture's data (`erm`: of all training data): by
       grad_theta L(w, theta), at these weights or (second order) one step ahead; by one for each image; or by reward;
    2. w <- SGD by grad_w L_train(w, theta) on a batch of the weights' data, clipped, at a cosine learning rate.

    With `random` blocks, an epoch has twice as many steps, each 1. or 2. with equal chances; in `phases` all 2. of an
    epoch come before all 1. The result is the last iterate (note G1). The learning rate is annealed per step, where
    DARTS' program does so per epoch. A mixing that learns nothing leaves all training data to the weights.

    torch's global generators are as they were after each call.

    Args:
        supernet: moved to the data's device.
        mixing: where each step's mixture comes from; its tensors lie on that device too.
        seed: of everything but initial weights and architecture parameters, which the caller made.
        penalty: what the cost of the mixture adds to the architecture's loss; None: nothing.

    Raises: InvalidInput if the training data cannot be divided, or the mixing cannot learn by these settings.
    """

    def __init__(
        self,
        supernet: Supernet,
        dataset: Dataset,
        mixing: Mixing,
        settings: SupernetTrainingSettings,
        *,
        seed: int,
        penalty: CostPenalty | None = None,
    ) -> None:
        self.penalty = penalty
        self.supernet, self.mixing = supernet.to(dataset.train.images.device), mixing
        super().__init__(self.supernet, dataset, settings, seed=seed)
        self.updates = UpdateCounter(supernet.groups)
        count = len(dataset.train)
        own = other = np.arange(count)
        self._architecture_split = dataset.train
        if settings.architecture_data == "validation":
            self._architecture_split, other = dataset.validation, np.arange(len(dataset.validation))
        elif mixing.learns and settings.objective != "erm":
            own, other = stratified_split(
                dataset.train.labels.cpu().numpy(), settings.architecture_fraction, stream_seed(seed, 0, HALVES)
            )
        self.weight_images = torch.from_numpy(own).to(self.device)  # indices of training images
        self.architecture_images = torch.from_numpy(other).to(self.device)  # of `_architecture_split`
        # The images that all steps of the architecture in the whole training see
        architecture_batches = self._batches()[1]
        steps = [sum(block.architecture for block in self._blocks(epoch)) for epoch in range(settings.epochs)]
        mixing.prepare(settings, sum(map(architecture_batches.images_in, steps)))

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one pass over the weights' data."""
        return math.ceil(len(self.weight_images) / self.settings.batch_size)

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return self._lr(0)

    def epoch(self) -> Metrics:
        """Trains one epoch. Loss and accuracy are the weights' batches' own, before each step, as augmented.

        NaN in the rare epoch of random blocks that trains no weights.
        Raises: RuntimeError when training has finished; Diverged if a loss is not finite: the state is then of no use.
        """
        self._check_unfinished()
        self.supernet.train()
        self.mixing.reseed(self._stream(MIXTURES))
        weight_batches, architecture_batches = self._batches()
        # Sums stay on the device: one synchronisation per epoch.
        loss_sum, architecture_loss = torch.zeros(2, device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        count = 0
        with own_randomness(self._stream(NETWORK), self.device):
            for architecture, step in self._blocks(self.epochs_done):
                if architecture:
                    architecture_loss += self._architecture_step(
                        architecture_batches.take(), weight_batches.upcoming, step
                    )
                else:
                    batch = weight_batches.take()
                    loss, logits = self._weight_step(batch, step)
                    loss_sum += loss * len(batch.labels)
                    correct += (logits.argmax(1) == batch.labels).sum()
                    count += len(batch.labels)
        self.epochs_done += 1
        for block, loss in (("training", loss_sum), ("architecture's", architecture_loss)):
            if not math.isfinite(loss.item()):
                raise Diverged(f"the {block} loss is not finite in epoch {self.epochs_done}")
        if count == 0:
            return NO_METRICS
        return Metrics(loss_sum.item() / count, correct.item() / count)

    def _blocks(self, epoch: int) -> list[Block]:
        if not self.mixing.learns or epoch < self.settings.warmup_epochs:
            return [Block(False, step) for step in range(self.steps_per_epoch)]
        return both_blocks(self.settings.blocks, self.steps_per_epoch, stream_seed(self.seed, epoch, BLOCKS))

    def _architecture_step(self, batch: Batch, upcoming: Callable[[], Batch], step: int) -> Tensor:
        """One update of the architecture; the loss before it. upcoming: gives the batch that the weights see next."""
        lesson = lesson_of(partial(self._logits, self.supernet, batch.images), batch.labels)
        if self.settings.objective == SECOND_ORDER:
            lesson = replace(lesson, gradient=lambda leaves: self._gradient_ahead(batch, upcoming(), leaves, step))
        if self.penalty is not None:
            lesson = self.penalty.added(lesson)
        try:
            return self.mixing.learn(lesson, self._progress(step))
        except FloatingPointError as error:
            raise Diverged(f"{error}, in epoch {self.epochs_done + 1}") from error

    def _gradient_ahead(
        self, batch: Batch, ahead: Batch, leaves: Mixture, step: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """As `Lesson.gradient`, at weights one step on the batch `ahead`."""
        momenta = {w: state.get("momentum_buffer") for w, state in self.optimizer.state.items()}
        return unrolled_gradient(
            lambda mixture: self._loss(batch, mixture)[0],
            lambda mixture: self._loss(ahead, mixture)[0],
            leaves,
            self._weights,
            lr=self._lr(step),
            buffers={w: momentum for w, momentum in momenta.items() if momentum is not None},
            momentum=self.settings.momentum,
            nesterov=self.settings.nesterov,
            weight_decay=self.settings.weight_decay,
        )

    def _weight_step(self, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """One update of the weights; the loss and the logits before it."""
        with torch.no_grad():
            mixture = self.mixing.draw(self._progress(step))
        loss, logits = self._loss(batch, mixture)
        self._descend(loss, self._lr(step))
        self.updates.add(mixture)
        return loss.detach(), logits.detach()

    def _loss(self, batch: Batch, mixture: Mixture) -> tuple[Tensor, Tensor]:
        logits = self._logits(self.supernet, batch.images, mixture)
        return F.cross_entropy(logits, batch.labels), logits

    def evaluate(self, split: Split) -> Metrics:
        """Loss and accuracy on a whole split, in evaluation mode, under the mixture of the present parameters.

        Where the mixing draws, each batch has a draw of its own, fixed by (seed, epoch).
        """
        draw = self.mixing.evaluation(self._progress(0), self._stream(EVALUATION))
        [metrics] = evaluate(self.supernet, [draw], split, self.settings.evaluation_batch, self.settings.amp)
        return metrics

    def score(self, architectures: Sequence[str]) -> list[Metrics]:
        """Of each architecture with the shared weights, on the validation data."""
        settings = self.settings
        return score_architectures(
            self.supernet, architectures, self.dataset.validation, settings.evaluation_batch, amp=settings.amp
        )

    def derive(self) -> str | None:
        """The architecture that was learned so far; None if nothing is. Where it is drawn, (seed, epoch) fix it."""
        return self.mixing.derive(
            lambda architectures: [metrics.accuracy for metrics in self.score(architectures)], self._stream(DERIVATION)
        )

    def _parts(self) -> dict[str, Any]:
        parts = {"supernet": self.supernet, "optimizer": self.optimizer, "mixing": self.mixing, "updates": self.updates}
        return parts if self.penalty is None else parts | {"penalty": self.penalty}

    def _lr(self, step: int) -> float:
        """The rate of a step of the coming epoch; a step is one pass's share of the weights' batches."""
        steps = self.steps_per_epoch
        least = self.settings.lr_min
        return least + cosine(self.settings.lr - least, self.epochs_done * steps + step, self.settings.epochs * steps)

    def _progress(self, step: int) -> float:
        """The share of the training that is over before a step of the coming epoch."""
        return (self.epochs_done + step / self.steps_per_epoch) / self.settings.epochs

    def _batches(self) -> tuple[Batches, Batches]:
        """The coming epoch's for the weights and for the architecture."""

        def batches(split: Split, images: Tensor, order: int, augmentation: int) -> Batches:
            seeds = {"ordering": self._stream(order), "augmenting": self._stream(augmentation)}
            return Batches(split, images, self.settings.batch_size, self._augmentation, **seeds)

        return (
            batches(self.dataset.train, self.weight_images, WEIGHT_ORDER, WEIGHT_AUGMENTATION),
            batches(self._architecture_split, self.architecture_images, ARCHITECTURE_ORDER, ARCHITECTURE_AUGMENTATION),
        )
