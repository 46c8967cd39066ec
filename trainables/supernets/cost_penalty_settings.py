"""How much the expected cost of a supernet's mixture counts."""

from __future__ import annotations

from pydantic import Field

from archray.settings import Settings


class CostPenaltySettings(Settings):
    """How much the expected cost of the mixture counts while the architecture learns.

    Attributes:
        cost: which; None: the first that is looked at or bounded, or flops.
        weight: of the expected cost, as a part of the uniform mixture's, beside the loss.
        target: the expected cost to come down to, in the cost's unit; the weight then begins at `weight`, and rises
            while the mixture costs more, and falls while it costs less.
        rate: by how much the weight changes in a step, times the part by which the target is missed.
    """

    cost: str | None = None
    weight: float = Field(0.0, ge=0)
    target: float | None = Field(None, gt=0)
    rate: float = Field(0.05, gt=0)

    @property
    def active(self) -> bool:
        return self.weight > 0 or self.target is not None
