"""Training by SGD: the base class of all trainers, and the trainer of one network. Dong and Yang 2020, section 2.4.

Loops over tensors on one device, without Ray, files or search spaces.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.nn.functional import all_reduce
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from archray.errors import InvalidInput
from archray.plurals import count
from archray.seeds import stream_seed
from archray.trainables.cuda_graphs import GraphedPasses
from archray.trainables.data.dataset import Dataset, Split
from archray.trainables.devices import restored_randomness, tf32
from archray.trainables.training_settings import SGDSettings, TrainingSettings

EVALUATION_BATCH = 512  # images per forward pass of an evaluation; it changes only memory and speed, no result
ORDER, AUGMENTATION, NETWORK = 0, 1, 2  # purposes of random streams


class Metrics(NamedTuple):
    """Mean cross-entropy (nats) and accuracy (a fraction) over the images of a split; NaN without images."""

    loss: float
    accuracy: float


NO_METRICS = Metrics(math.nan, math.nan)


def cosine(lr: float, step: int, steps: int) -> float:
    """Returns the learning rate of step `step` of `steps`: `lr` at step 0, exactly 0 after all steps."""
    return lr * 0.5 * (1 + math.cos(math.pi * step / steps))


# Workers that train one network together. torch.distributed divides the data set. Here batches are divided, so that the
# images of a step are the same for any number of workers.


class Team:
    """One of `size` workers. If there are several, they must have joined the default process group.

    Raises: ValueError for a rank out of range.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"expected a rank of 0 to {size - 1}, got {rank}")
        self.rank, self.size = rank, size

    def part(self, count: int) -> slice:
        """Returns this worker's part of `count` items. Parts differ by at most one item, in the order of ranks."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def shared(self, network: nn.Module) -> nn.Module:
        """Wraps `network`, so that a backward pass computes the mean of the workers' gradients."""
        if self.size == 1:
            return network
        # Some architectures have operations with unused output, whose weights have no gradient.
        return DistributedDataParallel(network, broadcast_buffers=False, find_unused_parameters=True)

    def apart(self, network: Any) -> AbstractContextManager[Any]:
        """Makes passes of a `shared` network add only to this worker's gradient, within the context."""
        return nullcontext() if self.size == 1 else network.no_sync()

    def total(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Sums each tensor over the workers, in place."""
        for tensor in tensors if self.size > 1 else ():
            dist.all_reduce(tensor)
        return tensors

    @torch.no_grad()
    def average_buffers(self, network: nn.Module) -> None:
        """Sets the running statistics of all workers to their mean."""
        for buffer in network.buffers() if self.size > 1 else ():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer.div_(self.size)


ALONE = Team()


class SynchronizedBatchNorm2d(nn.BatchNorm2d):
    """Like `nn.BatchNorm2d`; in training, statistics and their gradient are computed over all workers' images.

    torch's `SyncBatchNorm` needs CUDA. This class also runs on CPUs, where it can be tested against one worker.
    """

    def forward(self, x: Tensor) -> Tensor:  # (n, C, H, W)
        if not self.training:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
            count = wide.new_full((1,), x.numel() / x.shape[1])
            mean, count = self._sums(wide.sum((0, 2, 3)), count)
            centered = wide - (mean / count)[:, None, None]
            # In a second round, of centered values: the difference of two large sums loses digits.
            squares, _ = self._sums(centered.square().sum((0, 2, 3)), count.new_zeros(1))
            variance = squares / count  # (C,)
            self._track((mean / count).detach(), variance.detach() * count / (count - 1).clamp(min=1))
            out = centered * (variance + self.eps).rsqrt()[:, None, None]
            if self.weight is not None:
                out = out * self.weight[:, None, None] + self.bias[:, None, None]
        return out.to(x.dtype)

    def _sums(self, values: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Sums (C,) and (1,) over all workers."""
        both = all_reduce(torch.cat([values, count]))
        return both[:-1], both[-1:].detach()

    @torch.no_grad()
    def _track(self, mean: Tensor, unbiased: Tensor) -> None:
        """Updates the running statistics with the unbiased variance, as torch does."""
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None  # set with the others
        self.num_batches_tracked.add_(1)
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), rate)
        self.running_var.lerp_(unbiased.to(self.running_var), rate)


def synchronized(network: nn.Module, team: Team) -> nn.Module:
    """Replaces batch normalization by one over all workers of `team`, with the same parameters and state keys."""
    if team.size == 1:
        return network
    if isinstance(network, nn.BatchNorm2d):
        return _synchronized_norm(network)
    for name, child in network.named_children():
        setattr(network, name, synchronized(child, team))
    return network


def _synchronized_norm(norm: nn.BatchNorm2d) -> SynchronizedBatchNorm2d:
    new = SynchronizedBatchNorm2d(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    new.weight, new.bias = norm.weight, norm.bias
    new.running_mean, new.running_var = norm.running_mean, norm.running_var
    new.num_batches_tracked = norm.num_batches_tracked
    return new.train(norm.training)


class EpochTrainer(ABC):
    """Base class: trains one epoch per call, on the device of the data; on the CPU it resumes bit-exactly from a state.

    All randomness of an epoch is seeded from (seed, epoch), so that a state contains no generator.
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
        """Learning rate of the next step."""

    @abstractmethod
    def _parts(self) -> Mapping[str, Any]:
        """Returns the objects whose state changes in training, by name."""

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors and plain data only. Tensors are not copied, as in torch's state dicts."""
        return {name: part.state_dict() for name, part in self._parts().items()} | {"epochs_done": self.epochs_done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes from `state`, with the settings, the data and the seed of this trainer."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.epochs_done = state["epochs_done"]

    def _check_unfinished(self) -> None:
        if self.finished:
            raise RuntimeError(
                f"expected an unfinished training run, got one that finished after {count(self.epochs_done, 'epoch')}"
            )

    def _stream(self, *purpose: int) -> int:
        """Returns the seed of one purpose in the next epoch."""
        return stream_seed(self.seed, self.epochs_done, *purpose)

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if self._amp else nullcontext()

    def _logits(self, network: nn.Module, *inputs: Any) -> Tensor:
        """Computes (b, classes) float32."""
        with self._autocast():
            logits: Tensor = network(*inputs)
        return logits.float()


SettingsT = TypeVar("SettingsT", bound=SGDSettings)


class SGDTrainer(EpochTrainer, Generic[SettingsT]):
    """Base class: an `EpochTrainer` of a module's weights, by SGD with momentum and optional gradient clipping."""

    def __init__(self, module: nn.Module, dataset: Dataset, settings: SettingsT, *, seed: int) -> None:
        super().__init__(dataset, epochs=settings.epochs, seed=seed, amp=settings.amp)
        self.settings = settings
        self._weights = list(module.parameters())
        self._augmentation = None if settings.augmentation is None else dataset.augmentation(settings.augmentation)
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
        """Returns the learning rate of a step of the next epoch."""

    def _descend(self, loss: Tensor, lr: float) -> None:
        """Makes one step by the gradient of `loss`, for the weights on which it depends."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._update(lr)

    def _update(self, lr: float) -> None:
        """Makes one step of the weights by their current gradient."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self.settings.grad_clip is not None:
            nn.utils.clip_grad_norm_(self._weights, self.settings.grad_clip)
        self.optimizer.step()


class Trainer(SGDTrainer[TrainingSettings]):
    """Trains `network` on a data set.

    The learning rate is annealed per step, as in NAS-Bench-201's program. The program has a short last batch. Here an
    epoch is divided into batches of equal size (to within one image), so that small data has no batch of a single
    image, for which batch normalization raises an error.

    Dropout in the network also draws from (seed, epoch). Each call restores torch's global generators.

    A team of workers divides each batch: its images, their order, augmentation and learning rate are those of one
    worker, and the step uses the gradient of the whole batch. Only draws of the network itself (dropped paths) differ
    by worker. Every worker returns the metrics of all.

    Args:
        network: Moved to the data's device; images (n, C, H, W) -> logits (n, classes). With an auxiliary classifier it
            has a module `auxiliary` and returns (logits, auxiliary logits) in train mode. With dropped paths it has an
            attribute `drop_path`, their probability, which is set before each epoch.
        seed: Seed of all random choices except the network's initial parameters.
        team: Workers that train the network together, with the same arguments except the device.

    Raises: InvalidInput if a batch has fewer images than the team has workers; if `settings` need an auxiliary
        classifier or dropped paths that the network lacks, or give an auxiliary classifier no weight; for
        `settings.compile` or `settings.cuda_graphs` without CUDA.

    Example:
        ```python
        data = load_data(DataSettings(name="digits"))
        shape = {"in_channels": data.in_channels, "num_classes": data.num_classes}
        network = build("nasbench201", cell, network=NetworkSettings(channels=8, cells=1), seed=0, **shape)
        trainer = Trainer(network, data, TrainingSettings(epochs=2), seed=0)
        for _ in range(2):
            print(trainer.epoch())
        print(trainer.evaluate(data.test))
        ```
    """

    def __init__(
        self, network: nn.Module, dataset: Dataset, settings: TrainingSettings, *, seed: int, team: Team = ALONE
    ) -> None:
        device = dataset.train.device
        if settings.compile and device.type != "cuda":
            raise InvalidInput(
                f"expected a CUDA device with compile, got {device.type}. Set training.compile to false or use a GPU"
            )
        # A graph repeats the passes of the first epoch, which drop no path; and gradients share its memory.
        excluded = settings.compile, settings.micro_batch_size is not None, settings.drop_path > 0, team.size > 1
        if settings.cuda_graphs and any(excluded):
            raise InvalidInput(
                "expected cuda_graphs false with compile, micro_batch_size, drop_path or several workers, got true. "
                "Set only one"
            )
        _check_network(network, settings)
        self.team = team
        if team.size > 1 and settings.sync_batch_norm:
            network = synchronized(network, team)
        last = device.type == "cpu" if settings.channels_last is None else settings.channels_last
        self._format = torch.channels_last if last else torch.contiguous_format
        self.network = network.to(device).to(memory_format=self._format)
        super().__init__(self.network, dataset, settings, seed=seed)
        smallest = len(dataset.train.labels) // self.steps_per_epoch
        if smallest < team.size:
            raise InvalidInput(
                f"expected at most as many workers as a batch has images, {smallest}, got {team.size}. Lower "
                "train_workers or raise batch_size"
            )
        shared = team.shared(self.network)
        self._forward: Callable[[Tensor], Any] = torch.compile(shared) if settings.compile else shared
        self._passes = GraphedPasses(self.network, amp=settings.amp) if settings.cuda_graphs else self._forward

    def epoch(self) -> Metrics:
        """Trains one epoch. Returns loss and accuracy on the augmented training batches, before each step.

        They exclude the auxiliary classifier. The loss may be infinite or NaN.

        Raises: RuntimeError when training has finished.
        """
        self._check_unfinished()
        train = self.dataset.train
        loss_sum = torch.zeros((), device=self.device)  # sums stay on the device: one synchronization per epoch
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        self.network.train()
        team, ranks = self.team, [self.team.rank] if self.team.rank else []
        if self.settings.drop_path > 0:
            probability = self.settings.drop_path * self.epochs_done / self.settings.epochs
            self.network.drop_path = probability  # type: ignore[assignment]  # torch's stubs allow tensors and modules
        with restored_randomness(self._stream(NETWORK, *ranks), self.device), tf32(self.settings.tf32):
            shuffling = torch.Generator(self.device).manual_seed(self._stream(ORDER))
            augmenting = torch.Generator(self.device).manual_seed(self._stream(AUGMENTATION))
            order = torch.randperm(len(train.labels), generator=shuffling, device=self.device)
            batches = order.tensor_split(self.steps_per_epoch)
            parts = [batch[team.part(len(batch))] for batch in batches]  # of this worker
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
        """Makes one step by a batch of `of` images, from this worker's images.

        The gradient belongs to the mean over the whole batch: workers' gradients are averaged, so each pass weights its
        images by the number of workers.

        Returns: The summed loss of this worker's images, and the number of correct ones.
        """
        passes = passes_of(of, self.team.size, self.settings.micro_batch_size)
        loss_sum = torch.zeros((), device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        self.optimizer.zero_grad(set_to_none=True)
        pairs = zip(images.tensor_split(passes), labels.tensor_split(passes), strict=True)
        for number, (inputs, targets) in enumerate(pairs, start=1):
            with nullcontext() if number == passes else self.team.apart(self._forward):
                with self._autocast():
                    outputs = self._passes(inputs.contiguous(memory_format=self._format))
                logits, auxiliary = outputs if self.settings.auxiliary_weight > 0 else (outputs, None)
                loss = total = self._loss(logits, targets)
                if auxiliary is not None:
                    total = loss + self.settings.auxiliary_weight * self._loss(auxiliary, targets)
                (total * (len(targets) * self.team.size / of)).backward()
            loss_sum += loss.detach() * len(targets)
            correct += (logits.detach().argmax(1) == targets).sum()
        self._update(lr)
        return loss_sum, correct

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels, label_smoothing=self.settings.label_smoothing)

    @torch.no_grad()
    def evaluate(self, split: Split) -> Metrics:
        """Computes loss (without label smoothing) and accuracy on a whole split, in evaluation mode."""
        count, part = len(split.labels), self.team.part(len(split.labels))
        if count == 0:
            return NO_METRICS
        loss_sum = torch.zeros((), device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        self.network.eval()
        for images, labels in split.in_order(EVALUATION_BATCH, part):
            with self._autocast(), tf32(self.settings.tf32):
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
        start = ends[cycle - 1] if cycle > 0 else 0
        return cosine(self.settings.lr, step - start, ends[cycle] - start)


def passes_of(images: int, workers: int, micro_batch_size: int | None) -> int:
    """Returns the number of passes of each worker over its part of a batch: equal for all workers, none empty.

    A pass has one image more than `micro_batch_size` if parts differ by one and a pass would be empty.
    """
    if micro_batch_size is None:
        return 1
    return min(math.ceil(math.ceil(images / workers) / micro_batch_size), images // workers)


def _check_network(network: nn.Module, settings: TrainingSettings) -> None:
    tower = getattr(network, "auxiliary", None) is not None
    if settings.auxiliary_weight > 0 and not tower:
        raise InvalidInput(
            "expected auxiliary_weight 0, as the network has no auxiliary classifier, got "
            f"{settings.auxiliary_weight}. "
            "Set network.auxiliary to true if the space supports it, or training's auxiliary_weight to 0"
        )
    if tower and settings.auxiliary_weight == 0:
        raise InvalidInput(
            "expected auxiliary_weight above 0, as the network has an auxiliary classifier, got 0. Set training's "
            "auxiliary_weight to 0.4, or network.auxiliary to false"
        )
    if settings.drop_path > 0 and not hasattr(network, "drop_path"):
        raise InvalidInput(
            f"expected drop_path 0, as the network has no paths to drop, got {settings.drop_path}. Set training's "
            "drop_path to 0"
        )
