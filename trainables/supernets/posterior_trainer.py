"""The post-training posterior: learned with trained shared weights, which stay. Shu 2022 (thesis), 5.2.2, 5.3.3."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch

from archray.trainables.data.dataset import Dataset
from archray.trainables.epoch_trainer import EpochTrainer
from archray.trainables.supernets.batches import Batches
from archray.trainables.supernets.mixings.mixing import lesson_of
from archray.trainables.supernets.mixings.variational_posterior import VariationalPosterior
from archray.trainables.supernets.networks import Supernet
from archray.trainables.supernets.trainer import Diverged

ORDER, DRAWS = 0, 1  # purposes of random streams


class PosteriorEpoch(NamedTuple):
    """Means over the steps of an epoch, each of the parameters before the step, in nats."""

    elbo: float  # -s expected_loss - kl, also where the KL is not part of the objective
    kl: float  # of the posterior from the uniform prior, exact
    expected_loss: float  # the cross-entropy of drawn architectures, an estimate


class PosteriorTrainer(EpochTrainer):
    """Maximises the ELBO on the validation data.

    The thesis trains the weights on 70 % of the training images, and learns the posterior from the other 30 %
    (section 5.3.2). The supernet is in evaluation mode, as where architectures are scored by shared weights, and images
    are not augmented. The weights are not in its state: they do not change.

    Args:
        supernet: with trained weights; moved to the data's device and frozen.
        posterior: on that device, of this supernet.
        epochs, batch_size: passes over the validation data, and images per step.
    """

    def __init__(
        self,
        supernet: Supernet,
        dataset: Dataset,
        posterior: VariationalPosterior,
        *,
        epochs: int,
        batch_size: int,
        seed: int,
        amp: bool = False,
    ) -> None:
        super().__init__(dataset, epochs=epochs, seed=seed, amp=amp)
        self.posterior, self._batch_size = posterior, batch_size
        self.supernet = supernet.to(self.device).eval().requires_grad_(False)

    @property
    def lr(self) -> float:
        return float(self.posterior.optimizer.param_groups[0]["lr"])

    def epoch(self) -> PosteriorEpoch:
        """One pass over the validation data. Raises: Diverged if a loss is not finite; RuntimeError after the last."""
        self._check_unfinished()
        validation = self.dataset.validation
        every = torch.arange(len(validation), device=self.device)
        order_seed = self._stream(ORDER)
        batches = Batches(validation, every, self._batch_size, None, ordering=order_seed, augmenting=order_seed)
        self.posterior.reseed(self._stream(DRAWS))
        steps = math.ceil(len(validation) / self._batch_size)
        losses, kl = [], 0.0
        for step in range(steps):
            kl += self.posterior.kl() / steps
            progress = (self.epochs_done + step / steps) / self._epochs
            batch = batches.take()
            lesson = lesson_of(partial(self._logits, self.supernet, batch.images), batch.labels)
            losses.append(self.posterior.learn(lesson, progress))
        self.epochs_done += 1
        loss = float(torch.stack(losses).mean())
        if not math.isfinite(loss):
            raise Diverged(f"the loss of drawn architectures is {loss} in epoch {self.epochs_done}")
        return PosteriorEpoch(-self.posterior.scale * loss - kl, kl, loss)

    def _parts(self) -> dict[str, Any]:
        return {"posterior": self.posterior}
