"""Settings of a network apart from its architecture: width, depth, stem, initialization, normalization (note P5)."""

from typing import Literal, Self

from pydantic import Field, model_validator

from archray.errors import InvalidInput
from archray.files import Folder
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
        normalization: Mode of batch normalization. `auto` is `scoring` if the network is built for training-free
            metrics, and `training` otherwise.
        biases: Whether the convolutions of NAS-Bench-201's cells have biases, as in the authors' program of HNAS (note
            P5). Other spaces need false.
        weights: File of `torch.save` with a state dict, a path or URI that every node can read. Supernets and
            standalone networks inherit its tensors, by name and shape. Needs a space that is read from a model
            (`ModelSpace`).
    """

    channels: int = Field(16, ge=1)
    cells: int = Field(5, ge=1)
    stem: Stem = "cifar"
    auxiliary: bool = False
    init: Initialisation = "pytorch-default"
    normalization: Literal["auto", "training", "scoring"] = "auto"
    biases: bool = False
    weights: str | None = None

    @model_validator(mode="after")
    def _one_source_of_weights(self) -> Self:
        if self.weights is not None and self.init != "pytorch-default":
            raise ValueError(
                f"expected init pytorch-default with weights, which replace the initial weights, got {self.init}. "
                "Remove init or weights"
            )
        return self

    def check_weights(self) -> None:
        """Raises: InvalidInput if the file of the weights does not exist."""
        if self.weights is not None:
            file = Folder(self.weights)
            if not file.parent.exists(file.name):
                raise InvalidInput(
                    f"expected a file of torch.save as network.weights, got {self.weights}. Check the path"
                )
