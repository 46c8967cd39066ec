"""The settings of a policy learned by reward. ENAS, Pham et al. 2018, section 3.2."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from archray.errors import InvalidInput
from archray.trainables.supernets.optimizer_settings import OPTIMIZERS, OptimizerSettings


@OPTIMIZERS.register("reinforce")
class ReinforceSettings(OptimizerSettings):
    """REINFORCE with Adam for the relaxation `controller`. ENAS, Pham et al. 2018, section 3.2.

    Defaults are the paper's; its program for the cell search has lr 3.5e-3.

    Attributes:
        lr: the learning rate, of Adam.
        entropy: weight of the policy's entropy in the reward.
        baseline_decay: of the moving average of rewards.
    """

    domain = None
    looks_ahead = False

    name: Literal["reinforce"] = "reinforce"
    lr: float = Field(3.5e-4, gt=0)
    entropy: float = Field(1e-4, ge=0)
    baseline_decay: float = Field(0.99, ge=0, lt=1)

    def check_relaxation(self, relaxation: str) -> None:
        if relaxation != "controller":
            raise InvalidInput(
                f"the relaxation controller and the optimizer reinforce need each other; got {relaxation} and reinforce"
            )
