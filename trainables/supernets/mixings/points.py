"""Architecture parameters learned image by image: XNAS. Nayman et al. 2019; GAEA, Li et al. 2021, App. C.4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.supernets.mixings.mixing import Lesson
from archray.trainables.supernets.mixings.relaxed_parameters import ArchitectureParameters
from archray.trainables.supernets.networks import Supernet, discretise
from archray.trainables.supernets.optimizers import XNAS, point_gradients
from archray.trainables.supernets.optimizers.xnas import xnas_rate
from archray.trainables.supernets.search_settings import (
    NoOptimizerSettings,
    SimplexSettings,
    SupernetTrainingSettings,
    XNASSettings,
    mismatch,
)


class PointParameters(ArchitectureParameters):
    """The simplex mixture, learned by `XNAS` from the gradient of each image's own loss.

    Wipe-out leaves an edge with one operation of weight 1, which may be `none`: no edge is then stronger than another,
    and no second operation is known. `discretised` therefore goes by the weights without wipe-out, by the sums of all
    clipped gradients. Their strongest operation is the same, as only what cannot win is wiped out.

    A batch costs one forward pass and a backward pass for every image in it: with b images some b times the backward
    pass of `ArchitectureParameters`. A smaller `batch_size`, or a smaller `architecture_fraction`, is what helps.

    Args:
        supernet, seed, device: as `ArchitectureParameters`.
        settings: rate and clipping; the rounds come with `prepare`.
    """

    optimizer: XNAS | None  # None until `prepare`

    def __init__(
        self, supernet: Supernet, settings: XNASSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(supernet, SimplexSettings(), NoOptimizerSettings(), seed=seed, device=device)
        self.learns = True
        self._xnas, self._rounds = settings, 1
        self._sums = {name: torch.zeros_like(each, dtype=torch.float64) for name, each in self.parameters.items()}
        for parameter in self.parameters.values():
            parameter.requires_grad_()

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:
        """Raises: InvalidInput if the architecture sees no image, or the objective is second order."""
        wrong = mismatch(SimplexSettings(), self._xnas, 1, training.objective)
        if points == 0:
            wrong = f"xnas needs epochs after the warm-up of {training.warmup_epochs}, got {training.epochs} in all"
        if wrong is not None:
            raise InvalidInput(wrong)
        self._rounds = points
        self.optimizer = XNAS(list(self.parameters.values()), points, self._xnas.clip, self._xnas.lr)

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        """Raises: FloatingPointError if a gradient is NaN; RuntimeError before `prepare`."""
        if self.optimizer is None:
            raise RuntimeError("xnas must be told by `prepare` how many images it will see before it can learn")
        losses = lesson.outcome(self.draw(progress)).losses  # (b,)
        gradients = point_gradients(losses, list(self.parameters.values()))  # (b, edges, operations) of each group
        self.optimizer.add_points(gradients)
        self.optimizer.step()
        for total, gradient in zip(self._sums.values(), gradients, strict=True):
            total += gradient.clamp(-self._xnas.clip, self._xnas.clip).sum(0)
        return losses.detach().mean()

    def discretised(self) -> str:
        """The architecture of the strongest operations (note G4) by the weights without wipe-out."""
        return discretise(self.space, {name: self._unwiped(total) for name, total in self._sums.items()})

    def _unwiped(self, total: Tensor) -> Tensor:
        """(edges, operations): exponentiated gradient from the uniform point."""
        lr, clip = self._xnas.lr, self._xnas.clip
        rate = xnas_rate(total.shape[1], self._rounds, clip) if lr is None else lr
        return (-rate * total).softmax(-1)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"sums": self._sums}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for name, total in self._sums.items():
            total.copy_(state["sums"][name])
