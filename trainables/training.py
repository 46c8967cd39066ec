"""Training by SGD: what every trainer shares, and the trainer of one network. Dong and Yang 2020, section 2.4.

Pure loops over tensors that lie on one device. They know nothing of Ray, of files or of search spaces.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.plurals import count
from archray.seeds import stream_seed
from archray.trainables.data.dataset import Dataset, Split
from archray.trainables.data_parallel import ALONE, Team, synchronised
from archray.trainables.devices import own_randomness
from archray.trainables.training_settings import SGDSettings, TrainingSettings

EVALUATION_BATCH = 512  # images per forward pass of an evaluation; it changes no result, only memory and speed
ORDER, AUGMENTATION, NETWORK = 0, 1, 2  # purposes of random streams


class Metrics(NamedTuple):
    """Mean cross-entropy (nats) and accuracy (a fraction) over the images of a split; NaN where it has none."""

    loss: float
    accuracy: float


NO_METRICS = Metrics(math.nan, math.nan)


def cosine(lr: float, step: int, steps: int) -> float:
    """The learning rate of step `step` of `steps`: `lr` at step 0, exactly 0 once all steps are done."""
    return lr * 0.5 * (1 + math.cos(math.pi * step / steps))


class EpochTrainer(ABC):
    """One epoch per call, on the device of the data, and bit-exactly on from a saved state on the CPU.

    All randomness of an epoch is seeded anew from (seed, epoch), so a state holds no generator.
    """

    def __init__(self, dataset: Dataset, *, epochs: int, seed: int, amp: bool) -> None:
        self.dataset, self.seed = dataset, seed
        self.device = dataset.train.device
        self.epochs_done = 0
        self._epochs, self._amp = epochs, amp

    @property
    def finished(self) -> bool:
        return self.epochs_done >= self._epochs

    @property
    @abstractmethod
    def lr(self) -> float:
        """The learning rate of the next step."""

    @abstractmethod
    def _parts(self) -> Mapping[str, Any]:
        """What has a state that training changes, by its name in this trainer's."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data only; the tensors are the live ones, as with torch's own state dicts."""
        return {name: part.state_dict() for name, part in self._parts().items()} | {"epochs_done": self.epochs_done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`; the settings, the data and the seed are this trainer's own."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.epochs_done = state["epochs_done"]

    def _check_unfinished(self) -> None:
        if self.finished:
            raise RuntimeError(
                f"training has finished after {count(self.epochs_done, 'epoch')}; there is no further epoch"
            )

    def _stream(self, *purpose: int) -> int:
        """The seed of one purpose in the coming epoch."""
        return stream_seed(self.seed, self.epochs_done, *purpose)

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if self._amp else nullcontext()

    def _logits(self, network: nn.Module, *inputs: Any) -> Tensor:
        """(b, classes) float32."""
        with self._autocast():
            logits: Tensor = network(*inputs)
        return logits.float()


SettingsT = TypeVar("SettingsT", bound=SGDSettings)


class SGDTrainer(EpochTrainer, Generic[SettingsT]):
    """An `EpochTrainer` of a module's weights, by SGD with momentum and a gradient that may be clipped."""

    def __init__(self, module: nn.Module, dataset: Dataset, settings: SettingsT, *, seed: int) -> None:
        super().__init__(dataset, epochs=settings.epochs, seed=seed, amp=settings.amp)
        self.settings = settings
        self._weights = list(module.parameters())
        self._augmentation = None
        if settings.augmentation is not None:
            self._augmentation = dataset.augmentation(settings.augmentation)
        self.optimizer = torch.optim.SGD(
            self._weights,
            lr=settings.lr,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            weight_decay=settings.weight_decay,
        )

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.dataset.train) / self.settings.batch_size)

    @property
    def lr(self) -> float:
        return self._lr(0)

    @abstractmethod
    def _lr(self, step: int) -> float:
        """The learning rate of a step of the coming epoch."""

    def _descend(self, loss: Tensor, lr: float) -> None:
        """One step of the weights by the gradient of `loss`. What it does not depend on is not updated at all."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._update(lr)

    def _update(self, lr: float) -> None:
        """One step of the weights by the gradient that is there."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self.settings.grad_clip is not None:
            nn.utils.clip_grad_norm_(self._weights, self.settings.grad_clip)
        self.optimizer.step()


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
        team, ranks = self.team, [self.team.rank] if self.team.rank else []
        if self.settings.drop_path > 0:
            probability = self.settings.drop_path * self.epochs_done / self.settings.epochs
            self.network.drop_path = probability  # type: ignore[assignment]  # torch's stubs know tensors and modules
        with own_randomness(self._stream(NETWORK, *ranks), self.device):
            shuffling = torch.Generator(self.device).manual_seed(self._stream(ORDER))
            augmenting = torch.Generator(self.device).manual_seed(self._stream(AUGMENTATION))
            order = torch.randperm(len(train.labels), generator=shuffling, device=self.device)
            batches = order.tensor_split(self.steps_per_epoch)
            parts = [batch[team.part(len(batch))] for batch in batches]  # this worker's
            view = None if self._augmentation is None else self._augmentation.view(self._stream(AUGMENTATION))
            for step, (batch, part, images) in enumerate(zip(batches, parts, train.batches(parts, view), strict=True)):
                labels = train.labels[part]  # (b,); images (b, C, H, W)
                if self._augmentation is not None:
                    images = self._augmentation(images, augmenting, team.part(len(batch)), len(batch))
                loss, right = self._step(images, labels, self._lr(step), of=len(batch))
                loss_sum += loss
                correct += right
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
        step += self.epochs_done * self.steps_per_epoch
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
