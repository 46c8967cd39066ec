"""The settings of mirror descent on the simplex. GAEA, Li et al. 2021, section 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from archray.trainables.supernets.optimizer_settings import OPTIMIZERS, OptimizerSettings

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim.optimizer import Optimizer

GAEA_RATE = 0.1  # App. C.1.1 and C.3
GAEA_FLOOR = 1e-5  # in the authors' code: an operation whose weight falls to zero could never come back (note G1)


@OPTIMIZERS.register("mirror-descent")
class MirrorDescentSettings(OptimizerSettings):
    """Mirror descent on simplices: exponentiated gradient, or projected gradient for comparison. GAEA (note G1).

    Attributes:
        lr: the learning rate.
        dgf: the distance-generating function: `entropy` is exponentiated gradient, `euclidean` projected gradient.
        log_space: keeps logarithms of the weights, so that none becomes zero.
        floor: of weights; None is the authors' 1e-5 for the entropy, and none in log space or for `euclidean`.
    """

    domain = "simplex"

    name: Literal["mirror-descent"] = "mirror-descent"
    lr: float = Field(GAEA_RATE, gt=0, allow_inf_nan=False)
    dgf: Literal["entropy", "euclidean"] = "entropy"
    floor: float | None = Field(None, ge=0, lt=1)
    log_space: bool = False

    @model_validator(mode="after")
    def _one_geometry(self) -> MirrorDescentSettings:
        if self.dgf == "euclidean" and (self.floor or self.log_space):
            raise ValueError("floor and log_space belong to dgf entropy; leave them out")
        if self.floor and self.log_space:
            raise ValueError("in log space there is no floor; choose one of floor and log_space")
        return self

    def make(self, parameters: list[Tensor]) -> Optimizer:
        floor = self.floor
        if floor is None:
            floor = GAEA_FLOOR if self.dgf == "entropy" and not self.log_space else 0.0
        from archray.trainables.supernets.learners.simplex_descent import MirrorDescent

        return MirrorDescent(parameters, self.lr, self.dgf, floor, self.log_space)
