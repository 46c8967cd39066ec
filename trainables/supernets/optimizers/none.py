"""No architecture optimizer: the weights of a supernet alone are trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from archray.trainables.supernets.optimizer_settings import OPTIMIZERS, OptimizerSettings

if TYPE_CHECKING:
    from torch import Tensor


@OPTIMIZERS.register("none")
class NoOptimizerSettings(OptimizerSettings):
    """Architecture parameters stay as they are: the weights alone are trained, on all training data."""

    domain = None

    name: Literal["none"] = "none"

    def learner(self, parameters: Mapping[str, Tensor]) -> None:
        return None
