"""The settings of a controller that learns by reward. ENAS, Pham et al. 2018, section 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from archray.errors import InvalidInput
from archray.trainables.spaces import Space
from archray.trainables.supernets.optimizer_settings import OptimizerSettings
from archray.trainables.supernets.optimizers.reinforce import ReinforceSettings
from archray.trainables.supernets.relaxation_settings import RELAXATIONS, RelaxationSettings

if TYPE_CHECKING:
    import torch

    from archray.trainables.supernets.mixings.lstm_controller import ReinforcedController
    from archray.trainables.supernets.networks import Group, Supernet


@RELAXATIONS.register("controller")
class ControllerSettings(RelaxationSettings):
    """Whole architectures from an LSTM's policy. ENAS, Pham et al. 2018, section 2; needs the optimizer `reinforce`.

    Defaults are those of the paper's search on CIFAR-10. Its program for the cell search has tanh_constant 1.1, a
    further 2.5 times less for operations, and no temperature.

    Attributes:
        units: of the one layer, and of its embeddings.
        temperature, tanh_constant: logits are tanh_constant tanh(logits / temperature); None leaves either step out.
        samples: drawn to derive the architecture, the best of which by accuracy with shared weights is taken. Each is
            evaluated on the validation data after every epoch.
    """

    name: Literal["controller"] = "controller"
    units: int = Field(100, ge=1)
    temperature: float | None = Field(5.0, gt=0)
    tanh_constant: float | None = Field(2.5, gt=0)
    samples: int = Field(10, ge=1)

    @property
    def draws_one(self) -> bool:
        return True

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> ReinforcedController:
        assert isinstance(optimizer, ReinforceSettings)  # `check_optimizer` refuses others
        from archray.trainables.supernets.mixings.lstm_controller import ReinforcedController

        return ReinforcedController(supernet, self, optimizer, seed=seed)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        from archray.trainables.supernets.mixings.drawn_paths import DECISIONS, OpenDecisions

        return {DECISIONS: len(OpenDecisions(space, groups).decisions)}

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        if not isinstance(optimizer, ReinforceSettings):
            raise InvalidInput(
                f"the relaxation controller and the optimizer reinforce need each other; got controller and "
                f"{optimizer.name}"
            )
