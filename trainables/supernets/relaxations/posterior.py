"""The settings of the variational posterior over architectures. Shu 2022 (thesis), 5.2.2, 5.3.3, Eq. 5.4-5.7."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from archray.errors import InvalidInput
from archray.trainables.spaces import Space
from archray.trainables.supernets.optimizer_settings import OptimizerSettings
from archray.trainables.supernets.relaxation_settings import RELAXATIONS, RelaxationSettings

if TYPE_CHECKING:
    import torch

    from archray.trainables.supernets.mixings.variational_posterior import VariationalPosterior
    from archray.trainables.supernets.networks import Group, Supernet


@RELAXATIONS.register("posterior")
class VariationalSettings(RelaxationSettings):
    """A categorical distribution per decision, learned by variational inference, `VariationalPosterior`. Thesis 5.3.3.

    Attributes:
        scale: s of the ELBO, -s (mean cross-entropy) - KL: 1 in the paper, "data" the number of images learned from,
            which is Bayes' (note E5).
        kl: whether the KL is part of the objective. The best-response posterior of SNAS has none (section 5.2.2).
        temperature: tau of Eq. 5.6.
        estimator: of the gradient of the expected loss. `straight-through` is the paper's, Gumbel-softmax with all
            operations evaluated. It takes the loss for linear in the weights of operations, which with trained
            weights cost more than half of the possible gain of the ELBO (seen on one supernet of 25 cells, enumerated).
            `score-function` has no bias, and evaluates paths alone.
        gumbel_temperature: of the straight-through gradient. The less, the less its bias and the larger its variance.
        samples: architectures drawn in each step, 1 in the paper. Each one's baseline for the score function is the
            others' mean loss, so that it needs two.
    """

    further_results = ("updates", "posterior")

    name: Literal["posterior"] = "posterior"
    scale: float | Literal["data"] = 1.0
    kl: bool = True
    temperature: float = Field(1.0, gt=0)
    estimator: Literal["straight-through", "score-function"] = "straight-through"
    gumbel_temperature: float = Field(1.0, gt=0)
    samples: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> VariationalSettings:
        if self.scale != "data" and not 0 < self.scale < math.inf:
            raise ValueError(f"expected a scale above 0 or data, got {self.scale}")
        if self.estimator == "score-function" and self.samples == 1:
            raise ValueError("the score function's baseline is the mean of the other samples; set samples to 2 or more")
        return self

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> VariationalPosterior:
        assert self.scale != "data"  # `check_optimizer` refuses it
        from archray.trainables.supernets.mixings.variational_posterior import VariationalPosterior

        return VariationalPosterior(supernet, self, optimizer, scale=self.scale, device=device)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        from archray.trainables.supernets.mixings.drawn_paths import DECISIONS

        return {DECISIONS: len(space.posterior_decisions)}

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        if optimizer.domain != "logits":
            raise InvalidInput(f"the relaxation posterior has logits; set the optimizer to adam, not {optimizer.name}")
        if self.scale == "data":
            raise InvalidInput(
                "the scale of a posterior that is learned with the weights is a number; data is for trained weights"
            )
