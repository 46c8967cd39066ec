"""Settings of SGD training, of a network or of a supernet's weights. Imports no torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from archray.settings import Settings
from archray.trainables.data.settings import AugmentationSettings

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class SGDSettings(Settings):
    """Training of a network or of shared weights by SGD. Subclasses set the defaults of their paper.

    Attributes:
        epochs: Number of passes over the training images.
        batch_size: Number of images per step.
        lr: Initial learning rate.
        momentum: Momentum of SGD.
        nesterov: Whether to use Nesterov momentum.
        weight_decay: Weight decay of SGD, on every parameter.
        augmentation: Augmentation of training images by crop, flip and cutout; null disables it.
        grad_clip: Upper bound on the L2 norm of the gradient of all weights; null disables clipping.
        amp: Whether forward passes run in bfloat16 (autocast), which needs no loss scaling.
        tf32: Whether float32 convolutions and matrix products may use TF32 on a GPU, which rounds their inputs to 10
            bits.
        cuda_graphs: Whether a GPU launches all kernels of a pass at once, as a CUDA graph, which is faster for small
            networks; not with dropped paths, nor for single paths of a supernet.
        threads: Number of torch threads per trial (default: the number of CPUs that Tune assigned to the trial).
    """

    epochs: Count
    batch_size: Count
    lr: Positive
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool
    weight_decay: NotNegative
    grad_clip: Positive | None
    augmentation: AugmentationSettings | None = AugmentationSettings()
    amp: bool = False
    tf32: bool = True
    cuda_graphs: bool = False
    threads: Count | None = None

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("expected momentum above 0 with nesterov, got 0. Set nesterov to false or momentum to 0.9")
        return self


class TrainingSettings(SGDSettings):
    """Training of a network. The defaults are NAS-Bench-201's, for its 12-epoch schedule.

    Sources: lr 0.1, Nesterov momentum 0.9, weight decay 5e-4 on every parameter, batch 256, cosine to zero, random
    flip and pad-crop (Dong & Yang 2020, table 2); 12 epochs are a separate training run, not the start of a longer one.
    Cutout (DeVries & Taylor 2017), label smoothing (Szegedy 2016) and clipping are off there.

    Attributes:
        epochs: Number of passes over the training images.
        cycles: Number of cosine cycles of the learning rate, from `lr` to zero: cyclic cosine annealing (Huang et al.
            2017, Eq. 2), in cycles of whole epochs whose lengths differ by at most one.
        label_smoothing: Share of a label that is spread over all classes.
        auxiliary_weight: Weight of the loss of the network's auxiliary classifier; 0.4 in DARTS.
        drop_path: Final probability p of dropping an edge of a cell for an image. It rises linearly over the epochs:
            p e / epochs in epoch e = 0, 1, ... (Zoph et al. 2018; 0.2 in DARTS).
        channels_last: Whether to use the channels-last memory layout (default: on CPUs, up to twice as fast).
        compile: Whether to use `torch.compile`, on CUDA only.
        micro_batch_size: Maximum number of images per forward pass of a worker (default: the worker's part of the
            batch). The gradients of the passes are accumulated before a step; each pass has its own batch statistics.
        sync_batch_norm: Whether the workers share the statistics of a batch. Otherwise each worker uses those of its
            part, and the running statistics are averaged at the end of each epoch.
    """

    epochs: Count = 12
    cycles: Count = 1
    batch_size: Count = 256
    lr: Positive = 0.1
    nesterov: bool = True
    weight_decay: NotNegative = 5e-4
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    grad_clip: Positive | None = None
    auxiliary_weight: NotNegative = 0.0
    drop_path: float = Field(0.0, ge=0, lt=1)
    channels_last: bool | None = None
    compile: bool = False
    micro_batch_size: Count | None = None
    sync_batch_norm: bool = True

    @model_validator(mode="after")
    def _cycles_have_epochs(self) -> Self:
        if self.cycles > self.epochs:
            raise ValueError(
                f"expected cycles of at most the number of epochs, {self.epochs}, got {self.cycles}. Lower cycles"
            )
        return self

    @property
    def cycle_ends(self) -> list[int]:
        """The epochs after which a cycle finishes, counted from 1; the last is `epochs`."""
        return [cycle * self.epochs // self.cycles for cycle in range(1, self.cycles + 1)]


def with_values(training: TrainingSettings, values: Mapping[str, Any]) -> TrainingSettings:
    """Returns the settings with other values, by path: `lr`, `augmentation.cutout`.

    Raises: ValidationError of pydantic for an unknown path or an invalid value.
    """
    content = training.model_dump()
    for path, value in values.items():
        *groups, last = path.split(".")
        level = content
        for group in groups:
            level[group] = level[group] or {}  # null disables a group, and a value in it enables the group
            level = level[group]
        level[last] = value
    return type(training).model_validate(content)
