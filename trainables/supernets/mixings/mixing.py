"""Where the weights by which a supernet mixes its operations come from, step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from archray.trainables.supernets.networks import MixtureWeights
from archray.trainables.supernets.supernet_training_settings import SupernetTrainingSettings

Mixture = Mapping[str, MixtureWeights]  # group -> weights


class Outcome(NamedTuple):
    """What a mixture makes of one batch: the cross-entropy of each image, (b,), and whether it was right, (b,) bool."""

    losses: Tensor
    correct: Tensor


@dataclass(frozen=True)
class Lesson:
    """One batch of the architecture's data, and the ways to learn from it; nothing is computed unless called.

    Attributes:
        gradient: mixture -> the objective's loss, detached, and its gradient for each group's dense weights, which are
            leaves (`unrolled.as_leaves`). First order, or at weights one step ahead.
        outcome: mixture -> loss and success of each image at the present weights, differentiable for the mixture.
    """

    gradient: Callable[[Mixture], tuple[Tensor, dict[str, Tensor]]]
    outcome: Callable[[Mixture], Outcome]


class Mixing(ABC):
    """Gives each step its mixture, and learns from batches of the architecture's data if there is something to learn.

    What to take from a batch, a gradient for the mixture, one for each image or a reward, is the subclass' own affair.
    """

    learns: bool = False

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:  # noqa: B027, few need it
        """Told once before training how it will go. points: images that all calls of `learn` together will see.

        Raises: InvalidInput if this mixing cannot learn so.
        """

    @abstractmethod
    def reseed(self, seed: int) -> None:
        """Fixes the draws that follow; called before each epoch."""

    @abstractmethod
    def draw(self, progress: float) -> Mixture:
        """The mixture of one step. progress: the share of the training that is over, in [0, 1]."""

    @abstractmethod
    def evaluation(self, progress: float, seed: int) -> Callable[[], Mixture]:
        """A source of mixtures to evaluate by, without gradients; it takes nothing from this object's draws."""

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        """One update; the loss before it, detached. progress: as `draw`.

        Raises: FloatingPointError if what it is to learn from is NaN and the optimizer refuses it.
        """
        raise NotImplementedError(f"{type(self).__name__} learns nothing")

    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str | None:
        """The architecture that was learned so far; None if none is. Takes nothing from this object's draws.

        accuracies: of architectures, with shared weights on the validation data.
        """
        return None

    def entropies(self) -> dict[str, list[float]]:
        """name of a group of decisions -> the entropy of each of them, in nats."""
        return {}

    def results(self) -> dict[str, Any]:
        """Further entries of a trial's result; JSON-able."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data only."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`. Raises: ValueError if it is another kind of mixing's."""
        if state:
            raise ValueError(f"expected no state for {type(self).__name__}, got {', '.join(state)}")
