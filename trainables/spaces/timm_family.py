"""What the spaces of timm's families have in common: their package, and the members that timm publishes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archray.trainables.spaces.space import Architecture, Space

# Sides of the image that a network sees, per side of the image that it is given.
RESOLUTIONS = ("0.5", "0.75", "1", "1.25")
STAGES = 4


class TimmFamily(Space):
    """A family of timm's networks: four stages of blocks, each half as large and twice as wide as the one before.

    Widths are of the first stage, in channels C; timm's members are those of C = 16. The space itself needs no timm,
    its networks do.
    """

    standalone: ClassVar[bool] = True
    package: ClassVar[str | None] = "timm"
    published: ClassVar[Mapping[str, Architecture]]  # timm's name -> the architecture, at C = 16

    def chosen(self, architecture: Architecture) -> dict[str, str]:
        """The choices by the names of their decisions. Raises: InvalidArchitecture."""
        self.check(architecture)
        return {decision.name: choice for decision, choice in zip(self.decisions, architecture, strict=True)}
