"""Adam on the logits of a mixture. DARTS, Liu et al. 2019, App. A.1."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.optim.optimizer import Optimizer

from archray.trainables.supernets.optimizers.optimizer_settings import OPTIMIZERS, OptimizerSettings

Beta = Annotated[float, Field(ge=0, lt=1)]


@OPTIMIZERS.register("adam")
class AdamSettings(OptimizerSettings):
    """Adam on logits, as in DARTS' program (Liu et al. 2019, App. A.1)."""

    domain = "logits"

    name: Literal["adam"] = "adam"
    lr: float = Field(3e-4, gt=0)
    betas: tuple[Beta, Beta] = (0.5, 0.999)
    weight_decay: float = Field(1e-3, ge=0)

    def make(self, parameters: list[Tensor]) -> Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, betas=self.betas, weight_decay=self.weight_decay)
