"""How a network, or a supernet's weights, are trained by SGD; importable without torch."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from archray.settings import Settings
from archray.trainables.data.settings import AugmentationSettings

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class SGDSettings(Settings):
    """How the weights of a network, its own or shared ones, are trained. What has no default here is the paper's.

    Attributes:
        epochs: passes over the training images.
        batch_size: images in a step.
        lr: the learning rate at the beginning.
        momentum: of SGD.
        nesterov: whether the momentum is Nesterov's.
        weight_decay: of SGD, on every parameter.
        augmentation: of training images, crop, flip and cutout; None leaves them as they are.
        grad_clip: bound on the L2 norm of the weights' whole gradient; None does not clip.
        amp: forward passes in bfloat16 (autocast), which needs no loss scaling.
        threads: torch threads of a trial; None: as many as the CPUs that Tune gave it.
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
    threads: Count | None = None

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum above 0; set nesterov to false or momentum to 0.9")
        return self


class TrainingSettings(SGDSettings):
    """How a network is trained. The defaults are NAS-Bench-201's, for its 12-epoch schedule.

    Sources: lr 0.1, Nesterov momentum 0.9, weight decay 5e-4 on every parameter, batch 256, cosine to zero, random
    flip and pad-crop (Dong & Yang 2020, table 2); 12 epochs are a training of their own, not the start of a longer
    one. Cutout (DeVries and Taylor 2017), label smoothing (Szegedy 2016) and clipping are off there.

    Attributes:
        epochs: passes over the training images.
        cycles: how often the learning rate falls from `lr` to zero within the epochs: cyclic cosine annealing (Huang
            et al. 2017, Eq. 2), here in cycles of whole epochs, whose lengths differ by one at most.
        label_smoothing: share of a label that is spread over all classes.
        auxiliary_weight: what the loss of the network's auxiliary tower counts; DARTS has 0.4.
        drop_path: probability of dropping an edge of a cell per image that training rises to, linearly over the
            epochs: p e / epochs in epoch e = 0, 1, ... (Zoph et al. 2018; 0.2 in DARTS).
        channels_last: memory in channels-last layout, which some kernels are faster with.
        compile: `torch.compile`, on CUDA only.
        micro_batch_size: images in a forward pass of a worker at most; the gradients of a batch's passes are added up
            before the step, and each pass has batch statistics of its own. None: a worker's whole part of the batch.
        sync_batch_norm: whether the workers of one training have the statistics of a batch in common, as one worker
            has; else each its own part's, and the mean of the running ones at the end of each epoch.
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
    channels_last: bool = False
    compile: bool = False
    micro_batch_size: Count | None = None
    sync_batch_norm: bool = True

    @model_validator(mode="after")
    def _cycles_have_epochs(self) -> "TrainingSettings":
        if self.cycles > self.epochs:
            raise ValueError(
                f"expected at most as many cycles as epochs, {self.epochs}, got {self.cycles}; lower cycles"
            )
        return self

    @property
    def cycle_ends(self) -> list[int]:
        """The epochs after which a cycle ends, counted from 1; the last is `epochs`."""
        return [cycle * self.epochs // self.cycles for cycle in range(1, self.cycles + 1)]
