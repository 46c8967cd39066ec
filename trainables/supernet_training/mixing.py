"""Where the weights by which a supernet mixes its operations come from, step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from archray.trainables.relaxations import MixtureWeights

Mixture = Mapping[str, MixtureWeights]  # group -> weights


class Mixing(ABC):
    """Gives each step its mixture, and learns from gradients if there is something to learn."""

    learns: bool = False

    @abstractmethod
    def reseed(self, seed: int) -> None:
        """Fixes the draws that follow; called before each epoch."""

    @abstractmethod
    def draw(self, progress: float) -> Mixture:
        """The mixture of one step. progress: the share of the training that is over, in [0, 1]."""

    @abstractmethod
    def evaluation(self, progress: float, seed: int) -> Callable[[], Mixture]:
        """A source of mixtures to evaluate by, without gradients; it takes nothing from this object's draws."""

    def update(self, drawn: Mixture, gradients: Mapping[str, Tensor]) -> None:
        """One step by the gradients of a loss for the dense weights in `drawn`, a mixture of `draw`."""
        raise NotImplementedError(f"{type(self).__name__} learns nothing")

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data only."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`. Raises: ValueError if it is another kind of mixing's."""
        if state:
            raise ValueError(f"expected no state for {type(self).__name__}, got {', '.join(state)}")
