"""Training one network: SGD with momentum and a cosine schedule. NAS-Bench-201 (Dong & Yang 2020), section 2.4.

A pure loop over tensors that lie on one device. It knows nothing of Ray, of files or of search spaces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.data_parallel import ALONE, Team
from archray.trainables.devices import own_randomness
from archray.trainables.epoch_trainer import NO_METRICS, Metrics, SGDTrainer, cosine
from archray.trainables.synchronised_batch_norm import synchronised
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

    A team of workers divides each batch: its images, their order, augmentation and learning rate are those of one
    worker, and the step is by the gradient of the whole batch. Only what the network itself draws (dropped paths) is
    drawn by each for its part. Every worker returns the metrics of all.

    Args:
        network: moved to the data's device; images (n, C, H, W) -> logits (n, classes). With an auxiliary tower it
            has a module `auxiliary` and returns (logits, the tower's logits) in train mode. One with dropped paths
            has an attribute `drop_path`, their probability, which is set before each epoch.
        seed: of everything but the network's initial parameters, which the caller made.
        team: whose workers train the network together; each is given the same arguments but its own device's.

    Raises: InvalidInput if a batch has fewer images than the team workers; if `settings` ask for what the network
    lacks, an auxiliary tower or dropped paths, or leave a
    tower without weight; if `settings.compile` is asked for without CUDA.
    """

    def __init__(
        self, network: nn.Module, dataset: Dataset, settings: TrainingSettings, *, seed: int, team: Team = ALONE
    ) -> None:
        device = dataset.train.device
        if settings.compile and device.type != "cuda":
            raise InvalidInput(
                f"compile needs a CUDA device, got {device.type}; set training.compile to false or use a GPU"
            )
        _check_network(network, settings)
        self.team = team
        if team.size > 1 and settings.sync_batch_norm:
            network = synchronised(network, team)
        self._format = torch.channels_last if settings.channels_last else torch.contiguous_format
        self.network = network.to(device).to(memory_format=self._format)
        super().__init__(self.network, dataset, settings, seed=seed)
        smallest = len(dataset.train.labels) // self.steps_per_epoch
        if smallest < team.size:
            raise InvalidInput(
                f"expected at most as many workers as a batch has images, {smallest}, got {team.size}; lower "
                "train_workers or raise batch_size"
            )
        shared = team.shared(self.network)
        self._forward: Callable[[Tensor], Any] = torch.compile(shared) if settings.compile else shared

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
        team, own = self.team, [self.team.rank] if self.team.rank else []
        if self.settings.drop_path > 0:
            probability = self.settings.drop_path * self.epochs_done / self.settings.epochs
            self.network.drop_path = probability  # type: ignore[assignment]  # torch's stubs know tensors and modules
        with own_randomness(self._stream(NETWORK, *own), self.device):
            shuffling = torch.Generator(self.device).manual_seed(self._stream(ORDER))
            augmenting = torch.Generator(self.device).manual_seed(self._stream(AUGMENTATION))
            order = torch.randperm(len(train.labels), generator=shuffling, device=self.device)
            step = self.epochs_done * self.steps_per_epoch
            batches = order.tensor_split(self.steps_per_epoch)
            parts = [batch[team.part(len(batch))] for batch in batches]  # this worker's
            view = None if self._augmentation is None else self._augmentation.view(self._stream(AUGMENTATION))
            for batch, part, images in zip(batches, parts, train.batches(parts, view), strict=True):
                labels = train.labels[part]  # (b,); images (b, C, H, W)
                if self._augmentation is not None:
                    images = self._augmentation(images, augmenting, team.part(len(batch)), len(batch))
                loss, right = self._step(images, labels, self._lr(step), of=len(batch))
                loss_sum += loss
                correct += right
                step += 1
        loss_sum, correct = team.total(loss_sum, correct)
        if not self.settings.sync_batch_norm:
            team.average_buffers(self.network)
        self.epochs_done += 1
        return Metrics(loss_sum.item() / len(train.labels), correct.item() / len(train.labels))

    def _step(self, images: Tensor, labels: Tensor, lr: float, *, of: int) -> tuple[Tensor, Tensor]:
        """One step by a batch of `of` images, of which these are this worker's; their summed loss, and how many right.

        The gradient is that of the mean over the whole batch: workers' gradients are averaged, so that each pass
        counts its images times the workers.
        """
        passes = passes_of(of, self.team.size, self.settings.micro_batch_size)
        loss_sum = torch.zeros((), device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        self.optimizer.zero_grad(set_to_none=True)
        for number, (some, of_some) in enumerate(
            zip(images.tensor_split(passes), labels.tensor_split(passes), strict=True), start=1
        ):
            with nullcontext() if number == passes else self.team.apart(self._forward):
                with self._autocast():
                    outputs = self._forward(some.contiguous(memory_format=self._format))
                logits, second = outputs if self.settings.auxiliary_weight > 0 else (outputs, None)
                loss = whole = self._loss(logits, of_some)
                if second is not None:
                    whole = loss + self.settings.auxiliary_weight * self._loss(second, of_some)
                (whole * (len(of_some) * self.team.size / of)).backward()
            loss_sum += loss.detach() * len(of_some)
            correct += (logits.detach().argmax(1) == of_some).sum()
        self._update(lr)
        return loss_sum, correct

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels, label_smoothing=self.settings.label_smoothing)

    @torch.no_grad()
    def evaluate(self, split: Split) -> Metrics:
        """Loss (without label smoothing) and accuracy on a whole split, in evaluation mode."""
        count, part = len(split.labels), self.team.part(len(split.labels))
        if count == 0:
            return NO_METRICS
        loss_sum = torch.zeros((), device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        self.network.eval()
        for images, labels in split.in_order(EVALUATION_BATCH, part):
            with self._autocast():
                logits = self._forward(images.contiguous(memory_format=self._format))
            loss_sum += F.cross_entropy(logits.float(), labels, reduction="sum")
            correct += (logits.argmax(1) == labels).sum()
        loss_sum, correct = self.team.total(loss_sum, correct)
        return Metrics(loss_sum.item() / count, correct.item() / count)

    def _parts(self) -> dict[str, Any]:
        return {"network": self.network, "optimizer": self.optimizer}

    def _lr(self, step: int) -> float:
        ends = [epoch * self.steps_per_epoch for epoch in self.settings.cycle_ends]
        cycle = next((number for number, end in enumerate(ends) if step < end), len(ends) - 1)
        begin = ends[cycle - 1] if cycle > 0 else 0
        return cosine(self.settings.lr, step - begin, ends[cycle] - begin)


def passes_of(images: int, workers: int, micro_batch_size: int | None) -> int:
    """In how many passes each of `workers` goes through its part of a batch; the same for all, none is empty.

    A pass has one image more than `micro_batch_size` where parts differ by one and there would be none left.
    """
    if micro_batch_size is None:
        return 1
    return min(math.ceil(math.ceil(images / workers) / micro_batch_size), images // workers)


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
