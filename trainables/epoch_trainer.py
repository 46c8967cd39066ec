"""What every trainer shares: epochs that are counted, seeded anew and carried on from a saved state."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from archray.plurals import count
from archray.seeds import stream_seed
from archray.trainables.training_settings import SGDSettings

if TYPE_CHECKING:
    from archray.trainables.data import Dataset


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
