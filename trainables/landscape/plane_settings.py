"""What a plane of the loss is: how many points, how far, and on how many images."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from archray.settings import Settings

MOST_POINTS = 401  # to a side: a plane of 160 801 passes


class PlaneSettings(Settings):
    """A plane of points x points around the trained weights. The thesis gives no sizes (4.3.2.1).

    Attributes:
        points: points to a side.
        radius: how far alpha and beta go to either side. At 1 every filter moves by its own norm.
        images: test images that the loss is the mean over, the first ones; all, if there are fewer.
        variance: whether the variance of the gradient is computed too: about four times the work.
    """

    points: int = Field(41, ge=2, le=MOST_POINTS)
    radius: float = Field(1.0, gt=0)
    images: int = Field(256, ge=2)
    variance: bool = True

    def steps(self) -> list[float]:
        """The values of alpha, and of beta, ascending."""
        return [float(step) for step in np.linspace(-self.radius, self.radius, self.points)]

    def keys(self) -> list[str]:
        """The points by number, `3,7` the fourth alpha and the eighth beta, row by row."""
        return [f"{i},{j}" for i in range(self.points) for j in range(self.points)]

    def point(self, key: str) -> tuple[float, float]:
        """alpha and beta of a key."""
        steps = self.steps()
        first, second = key.split(",")
        return steps[int(first)], steps[int(second)]
