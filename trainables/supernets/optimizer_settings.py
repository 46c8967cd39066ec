"""What every architecture optimizer says of itself; importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from archray.errors import InvalidInput
from archray.registry import PackageRegistry
from archray.settings import RegisteredSettings
from archray.trainables.supernets.supernet_training_settings import SECOND_ORDER

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim.optimizer import Optimizer

    from archray.trainables.supernets.learners.learner import Learner

Domain = Literal["logits", "simplex"]  # what parameters are: unconstrained, or the probabilities themselves

OPTIMIZERS: PackageRegistry[type[OptimizerSettings]] = PackageRegistry(
    "architecture optimizer", "archray.trainables.supernets.optimizers", separator="-"
)


class OptimizerSettings(RegisteredSettings):
    """The settings of an architecture optimizer, which make it. A subclass registers itself, by its `name`.

    One that needs no more than the gradient of the parameters says `domain` and `make`. Another one says `learner`.
    """

    registry = OPTIMIZERS
    domain: ClassVar[Domain | None]  # what it keeps parameters on; None if it changes none, or not those of a mixture
    looks_ahead: ClassVar[bool] = True  # whether it takes the gradient one step of the weights ahead

    def make(self, parameters: list[Tensor]) -> Optimizer:
        """The optimizer of parameters that are in its domain, rows (last dimension) on the simplex or any logits."""
        raise NotImplementedError(f"the architecture optimizer {self.name} does not learn from a gradient")

    def learner(self, parameters: Mapping[str, Tensor]) -> Learner | None:
        """What learns the parameters of each group; None if nothing does."""
        from archray.trainables.supernets.learners.learner import GradientLearner

        return GradientLearner(self.make(list(parameters.values())))

    def check_relaxation(self, relaxation: str) -> None:
        """Raises: InvalidInput if it is for other relaxations than the one of this name."""

    def check_objective(self, objective: str) -> None:
        """Raises: InvalidInput if it cannot learn by this objective of `SupernetTrainingSettings`."""
        if objective == SECOND_ORDER and not self.looks_ahead:
            raise InvalidInput(
                f"{self.name} does not look one step ahead; choose the objective bilevel or erm, not {objective}"
            )
