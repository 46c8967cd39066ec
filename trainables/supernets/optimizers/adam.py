"""Adam on the logits of a mixture. DARTS, Liu et al. 2019, App. A.1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from archray.trainables.supernets.optimizer_settings import OPTIMIZERS, OptimizerSettings

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim.optimizer import Optimizer

Beta = Annotated[float, Field(ge=0, lt=1)]


@OPTIMIZERS.register("adam")
class AdamSettings(OptimizerSettings):
    """Adam on logits, as in DARTS' program (Liu et al. 2019, App. A.1).

    Attributes:
        lr: the learning rate.
        betas: decay of the running means of the gradient and of its square.
        weight_decay: of the logits.
    """

    domain = "logits"

    name: Literal["adam"] = "adam"
    lr: float = Field(3e-4, gt=0)
    betas: tuple[Beta, Beta] = (0.5, 0.999)
    weight_decay: float = Field(1e-3, ge=0)

    def make(self, parameters: list[Tensor]) -> Optimizer:
        from torch.optim import Adam

        return Adam(parameters, lr=self.lr, betas=self.betas, weight_decay=self.weight_decay)
