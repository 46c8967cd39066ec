"""Training one network: SGD with momentum and a cosine schedule. NAS-Bench-201 (Dong & Yang 2020), section 2.4.

A pure loop over tensors that lie on one device. It knows nothing of Ray, of files or of search spaces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.seeds import stream_seed
from archray.trainables.data.augment import Augmentation, AugmentationSettings
from archray.trainables.randomness import own_randomness

if TYPE_CHECKING:
    from archray.trainables.data import Dataset, Split

EVALUATION_BATCH = 512  # images per forward pass of an evaluation; it changes no result, only memory and speed
ORDER, AUGMENTATION, NETWORK = 0, 1, 2  # purposes of random streams


class TrainingSettings(BaseModel):
    """How a network is trained. The defaults are NAS-Bench-201's, for its 12-epoch schedule.

    Sources: lr 0.1, Nesterov momentum 0.9, weight decay 5e-4 on every parameter, batch 256, cosine to zero, random
    flip and pad-crop (Dong & Yang 2020, table 2); 12 epochs are a training of their own, not the start of a longer
    one. Cutout (DeVries & Taylor 2017), label smoothing (Szegedy 2016) and clipping are off there.

    Attributes:
        epochs: passes over the training images.
        cycles: how often the learning rate falls from `lr` to zero within the epochs: cyclic cosine annealing (Huang
            et al. 2017, Eq. 2), here in cycles of whole epochs, whose lengths differ by one at most.
        augmentation: of training images, crop, flip and cutout; None leaves them as they are.
        grad_clip: bound on the L2 norm of the whole gradient; None does not clip.
        auxiliary_weight: what the loss of the network's auxiliary tower counts; DARTS has 0.4.
        drop_path: probability of dropping an edge of a cell per image that training rises to, linearly over the
            epochs: p e / epochs in epoch e = 0, 1, ... (Zoph et al. 2018; 0.2 in DARTS).
        amp: forward passes in bfloat16 (autocast), which needs no loss scaling.
        compile: `torch.compile`, on CUDA only.
        threads: torch threads of a trial; None: as many as the CPUs that Tune gave it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(12, ge=1)
    cycles: int = Field(1, ge=1)
    batch_size: int = Field(256, ge=1)
    lr: float = Field(0.1, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = True
    weight_decay: float = Field(5e-4, ge=0)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    augmentation: AugmentationSettings | None = AugmentationSettings()
    grad_clip: float | None = Field(None, gt=0)
    auxiliary_weight: float = Field(0.0, ge=0)
    drop_path: float = Field(0.0, ge=0, lt=1)
    amp: bool = False
    channels_last: bool = False
    compile: bool = False
    threads: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> TrainingSettings:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum above 0; set nesterov to false or momentum to 0.9")
        return self

    @model_validator(mode="after")
    def _cycles_have_epochs(self) -> TrainingSettings:
        if self.cycles > self.epochs:
            raise ValueError(
                f"expected at most as many cycles as epochs, {self.epochs}, got {self.cycles}; lower cycles"
            )
        return self

    @property
    def cycle_ends(self) -> list[int]:
        """The epochs after which a cycle ends, counted from 1; the last is `epochs`."""
        return [cycle * self.epochs // self.cycles for cycle in range(1, self.cycles + 1)]


class Metrics(NamedTuple):
    """Mean cross-entropy (nats) and accuracy (a fraction) over the images of a split; NaN where it has none."""

    loss: float
    accuracy: float


def cosine(lr: float, step: int, steps: int) -> float:
    """The learning rate of step `step` of `steps`: `lr` at step 0, exactly 0 once all steps are done."""
    return lr * 0.5 * (1 + math.cos(math.pi * step / steps))


class Trainer:
    """Trains `network` on a data set, one epoch per call, and carries on bit-exactly from a saved state on the CPU.

    The learning rate is annealed per step, as in NAS-Bench-201's program. An epoch is cut into batches of equal
    size (to within one image) where that program leaves a short last one: small data has no batch of a single
    image, which batch normalisation refuses.

    All randomness of an epoch (order, augmentation, dropout in the network) is seeded anew from (seed, epoch), so a
    state holds no generator; torch's global generators are as they were after each call.

    Args:
        network: moved to the data's device; images (n, C, H, W) -> logits (n, classes). With an auxiliary tower it
            has a module `auxiliary` and returns (logits, the tower's logits) in train mode. One with dropped paths
            has an attribute `drop_path`, their probability, which is set before each epoch.
        dataset: its tensors lie on the device to train on.
        seed: of everything but the network's initial parameters, which the caller made.

    Raises: InvalidInput if `settings` ask for what the network lacks, an auxiliary tower or dropped paths, or leave a
    tower without weight; if `settings.compile` is asked for without CUDA.
    """

    def __init__(self, network: nn.Module, dataset: Dataset, settings: TrainingSettings, *, seed: int) -> None:
        self.device = dataset.train.images.device
        if settings.compile and self.device.type != "cuda":
            raise InvalidInput(
                f"compile needs a CUDA device, got {self.device.type}; set training.compile to false or use a GPU"
            )
        _check_network(network, settings)
        self.settings = settings
        self.dataset = dataset
        self.seed = seed
        self.epochs_done = 0
        self._format = torch.channels_last if settings.channels_last else torch.contiguous_format
        self.network = network.to(self.device).to(memory_format=self._format)
        self._augmentation = _augmentation(settings, dataset)
        self._forward: Callable[[Tensor], Any] = torch.compile(self.network) if settings.compile else self.network
        self.optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=settings.lr,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            weight_decay=settings.weight_decay,
        )

    @property
    def finished(self) -> bool:
        return self.epochs_done >= self.settings.epochs

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
        if self.finished:
            raise RuntimeError(f"training has finished after {self.epochs_done} epochs; there is no further epoch")
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
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        with self._autocast():
            outputs = self._forward(images.contiguous(memory_format=self._format))
        logits, second = outputs if self.settings.auxiliary_weight > 0 else (outputs, None)
        loss = whole = self._loss(logits, labels)
        if second is not None:
            whole = loss + self.settings.auxiliary_weight * self._loss(second, labels)
        self.optimizer.zero_grad(set_to_none=True)
        whole.backward()
        if self.settings.grad_clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.grad_clip)
        self.optimizer.step()
        return loss.detach(), logits.detach()

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels, label_smoothing=self.settings.label_smoothing)

    @torch.no_grad()
    def evaluate(self, split: Split) -> Metrics:
        """Loss (without label smoothing) and accuracy on a whole split, in evaluation mode."""
        count = len(split.labels)
        if count == 0:
            return Metrics(math.nan, math.nan)
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

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data only; the tensors are the live ones, as with torch's own state dicts."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epochs_done": self.epochs_done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from `state`; the settings, the data and the seed are this trainer's own."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epochs_done = state["epochs_done"]

    def _lr(self, step: int) -> float:
        ends = [epoch * self.steps_per_epoch for epoch in self.settings.cycle_ends]
        cycle = next((number for number, end in enumerate(ends) if step < end), len(ends) - 1)
        begin = ends[cycle - 1] if cycle > 0 else 0
        return cosine(self.settings.lr, step - begin, ends[cycle] - begin)

    def _stream(self, purpose: int) -> int:
        """The seed of one purpose in the coming epoch."""
        return stream_seed(self.seed, self.epochs_done, purpose)

    def _autocast(self) -> AbstractContextManager[Any]:
        if not self.settings.amp:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


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


def _augmentation(settings: TrainingSettings, dataset: Dataset) -> Augmentation | None:
    if settings.augmentation is None:
        return None
    return Augmentation(settings.augmentation, image_size=dataset.image_size, flip=dataset.flip, black=dataset.black)
