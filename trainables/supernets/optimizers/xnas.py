"""The settings of XNAS: exponentiated gradient with clipping per data point and wipe-out. Nayman et al. 2019."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from archray.errors import InvalidInput
from archray.trainables.supernets.optimizer_settings import OPTIMIZERS, OptimizerSettings

if TYPE_CHECKING:
    from torch import Tensor

    from archray.trainables.supernets.learners.clipped_descent import PointLearner


@OPTIMIZERS.register("xnas")
class XNASSettings(OptimizerSettings):
    """Exponentiated gradient with clipping per image and wipe-out; needs the relaxation `simplex`.

    The number of rounds is that of the images that the architecture will see. It costs a backward pass per image.

    Attributes:
        lr: None is the rate of the regret bound for these rounds.
        clip: L, the bound on the gradient of one image for one weight.
    """

    domain = "simplex"
    looks_ahead = False

    name: Literal["xnas"] = "xnas"
    lr: float | None = Field(None, gt=0, allow_inf_nan=False)
    clip: float = Field(1.0, gt=0, allow_inf_nan=False)

    def learner(self, parameters: Mapping[str, Tensor]) -> PointLearner:
        from archray.trainables.supernets.learners.clipped_descent import PointLearner

        return PointLearner(parameters, self)

    def check_relaxation(self, relaxation: str) -> None:
        if relaxation != "simplex":
            raise InvalidInput(
                f"xnas needs the mixture by its own weights; choose the relaxation simplex, not {relaxation}"
            )
