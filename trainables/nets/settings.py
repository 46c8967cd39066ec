"""What a network is, apart from its architecture: width, depth, initialisation, normalisation (note P5)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Initialisation = Literal["pytorch-default", "lecun-normal", "xavier", "he"]


class NetworkSettings(BaseModel):
    """Defaults are NAS-Bench-201's network, as thesis 7.5 uses it.

    Attributes:
        channels: C, channels of the first stage.
        cells: N, cells per stage.
        init: initialisation of convolutions and linear layers; `pytorch-default` leaves torch's own.
        normalisation: `auto` is `scoring` when the network is built to be scored and `training` otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: int = Field(16, ge=1)
    cells: int = Field(5, ge=1)
    init: Initialisation = "pytorch-default"
    normalisation: Literal["auto", "training", "scoring"] = "auto"
