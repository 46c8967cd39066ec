"""The settings of a network besides its architecture: width, depth, stem, initialisation, normalisation (note P5)."""

from typing import Literal

from pydantic import Field

from archray.settings import Settings

Initialisation = Literal["pytorch-default", "lecun-normal", "xavier", "he"]
Stem = Literal["cifar", "imagenet"]


class NetworkSettings(Settings):
    """Defaults are NAS-Bench-201's network, as thesis 7.5 uses it.

    Attributes:
        channels: C, channels of the first stage.
        cells: N, cells per stage. DARTS has two reduction cells besides, 3 N + 2 in all: 20 cells (its network for
            CIFAR-10) are N = 6, 14 (for ImageNet) 4, 8 (its supernet) 2.
        stem: `cifar`, or `imagenet`: convolutions that make the map smaller before the first cell, by 4 and by 8 in
            DARTS. Spaces with a single stem have `cifar`.
        auxiliary: a second classifier amid the network, for training alone (`TrainingSettings.auxiliary_weight`);
            of DARTS, and of a user's space whose `build` takes `auxiliary`.
        init: initialisation of convolutions and linear layers; `pytorch-default` leaves torch's own.
        normalisation: `auto` is `scoring` when the network is built to be scored and `training` otherwise.
    """

    channels: int = Field(16, ge=1)
    cells: int = Field(5, ge=1)
    stem: Stem = "cifar"
    auxiliary: bool = False
    init: Initialisation = "pytorch-default"
    normalisation: Literal["auto", "training", "scoring"] = "auto"
