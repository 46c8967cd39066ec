"""Architecture parameters learned image by image: XNAS. Nayman et al. 2019; GAEA, Li et al. 2021, App. C.4."""

from __future__ import annotations

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.nets.supernet import Supernet
from archray.trainables.optimizers import XNAS, point_gradients
from archray.trainables.supernet_training.architecture import ArchitectureParameters
from archray.trainables.supernet_training.mixing import Lesson
from archray.trainables.supernet_training.settings import (
    NoOptimizerSettings,
    SimplexSettings,
    SupernetTrainingSettings,
    XNASSettings,
    mismatch,
)


class PointParameters(ArchitectureParameters):
    """The simplex mixture, learned by `XNAS` from the gradient of each image's own loss.

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
        self._xnas = settings
        for parameter in self.parameters.values():
            parameter.requires_grad_()

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:
        """Raises: InvalidInput if the architecture sees no image, or the objective is second order."""
        wrong = mismatch(SimplexSettings(), self._xnas, 1, training.objective)
        if points == 0:
            wrong = f"xnas needs epochs after the warm-up of {training.warmup_epochs}, got {training.epochs} in all"
        if wrong is not None:
            raise InvalidInput(wrong)
        self.optimizer = XNAS(list(self.parameters.values()), points, self._xnas.clip, self._xnas.lr)

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        """Raises: FloatingPointError if a gradient is NaN; RuntimeError before `prepare`."""
        if self.optimizer is None:
            raise RuntimeError("xnas must be told by `prepare` how many images it will see before it can learn")
        losses = lesson.outcome(self.draw(progress)).losses  # (b,)
        self.optimizer.add_points(point_gradients(losses, list(self.parameters.values())))
        self.optimizer.step()
        return losses.detach().mean()
