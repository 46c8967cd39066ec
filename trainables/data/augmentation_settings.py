"""What is done to training images; importable without torch."""

from __future__ import annotations

from pydantic import Field

from archray.settings import Settings


class AugmentationSettings(Settings):
    """What is done to training images.

    Attributes:
        crop: pixels of padding before the crop; 0 does not crop. None is an eighth of the image's size (4 of 32).
        flip: mirror half of the images; None asks the data set whether a mirrored image keeps its label.
        cutout: side of the blanked square in pixels; 0 blanks nothing.
    """

    crop: int | None = Field(None, ge=0)
    flip: bool | None = None
    cutout: int = Field(0, ge=0)
