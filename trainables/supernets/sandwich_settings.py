"""How the weights of a sliced supernet are trained, and what its trial is told; importable without torch."""

from __future__ import annotations

from pydantic import Field

from archray.settings import Seed, Settings
from archray.trainables.data import DataSettings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.training_settings import Count, NotNegative, Positive, SGDSettings


class SandwichSettings(SGDSettings):
    """How shared weights are trained by the sandwich rule (Yu and Huang 2019, sec. 3.2).

    Attributes:
        epochs: passes over the training images. Each step trains several networks, so an epoch takes as many times as
            long as a network's own.
        draws: random networks in a step, beside the smallest and the largest; 2 in the paper (n = 4).
        distillation: whether all but the largest learn from its predictions of the same step (sec. 3.3, in-place
            distillation), in the place of the labels. Off, unlike there: in trainings of a few dozen epochs these
            predictions say nothing for long, and the shared weights learnt digits much later.
        evaluation_batch: images in a forward pass of an evaluation.
    """

    epochs: Count = 100
    batch_size: Count = 64
    lr: Positive = 0.1
    nesterov: bool = True
    weight_decay: NotNegative = 5e-4
    grad_clip: Positive | None = 1.0
    draws: int = Field(2, ge=0)
    distillation: bool = False
    evaluation_batch: Count = 512


class SlicedSettings(Settings):
    """All options of a `SlicedTrainable`; they stand in its Tune config under the key `settings`.

    Args:
        space: a registered name of a space whose supernet is sliced.
        network: the skeleton of every network in the supernet.
        device: "auto" (a GPU if the trial was given one, else the CPU), or torch's own word.
        seed: of a trial whose config has no `seed` of its own.
    """

    space: str = "vit"
    data: DataSettings = DataSettings()
    network: NetworkSettings = NetworkSettings()
    training: SandwichSettings = SandwichSettings()
    device: str = "auto"
    seed: Seed = 0
