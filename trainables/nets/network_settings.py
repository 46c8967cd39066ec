"""Settings of a network apart from its architecture: width, depth, stem, initialization, normalization (note P5)."""

from typing import Literal

from pydantic import Field

from archray.settings import Settings

Initialisation = Literal["pytorch-default", "lecun-normal", "xavier", "he"]
Stem = Literal["cifar", "imagenet"]


class NetworkSettings(Settings):
    """Width, depth, stem, initialization and normalization. Defaults: NAS-Bench-201's network (Shu 2022, sec. 7.5).

    Attributes:
        channels: Number of channels of the first stage, C.
        cells: Number of cells per stage, N. DARTS has 3 N + 2 cells, with two reduction cells: N = 6 gives its 20 cells
            for CIFAR-10, N = 4 the 14 for ImageNet, N = 2 the 8 of its supernet.
        stem: Layers before the first cell: `cifar`, or `imagenet`, convolutions that shrink the image, by 4 and in
            DARTS by 8. Spaces with a single stem need `cifar`.
        auxiliary: Whether to add an auxiliary classifier that is used in training only
            (`TrainingSettings.auxiliary_weight`). Needs DARTS, or a custom space whose `build` takes `auxiliary`.
        init: Initialization of convolutions and linear layers. `pytorch-default` keeps the initialization of torch.
        normalisation: Mode of batch normalization. `auto` is `scoring` if the network is built for training-free
            metrics, and `training` otherwise.
    """

    channels: int = Field(16, ge=1)
    cells: int = Field(5, ge=1)
    stem: Stem = "cifar"
    auxiliary: bool = False
    init: Initialisation = "pytorch-default"
    normalisation: Literal["auto", "training", "scoring"] = "auto"
