"""What a `PosteriorTrainable` is told. Shu 2022 (thesis), 5.3.3."""

from __future__ import annotations

from pydantic import Field

from archray.settings import Seed, Settings
from archray.trainables.data.data_settings import DataSettings
from archray.trainables.supernets.optimizers.adam import AdamSettings
from archray.trainables.supernets.relaxations.posterior import VariationalSettings
from archray.trainables.tune.supernet_settings import SupernetOptions


class PosteriorOptions(Settings):
    """How a posterior is learnt, whatever the supernet, its space and data.

    Defaults are the paper's (thesis 5.3.3), but for the batch, which it does not say: that of the supernet's training.

    Args:
        posterior: the distribution and its objective.
        optimizer: of its parameters; the weights of the supernet stay as they are.
        epochs: passes over the validation images.
        batch_size: images in a step.
        threads: torch threads of a trial; None: as many as the CPUs that Tune gave it.
    """

    posterior: VariationalSettings = VariationalSettings()
    optimizer: AdamSettings = AdamSettings(lr=0.01, betas=(0.9, 0.999), weight_decay=3e-4)
    epochs: int = Field(20, ge=1)
    batch_size: int = Field(128, ge=1)
    threads: int | None = Field(None, ge=1)


class PosteriorSettings(PosteriorOptions):
    """All options of a `PosteriorTrainable`; they stand in its Tune config under the key `settings`.

    Args:
        space, data: those that the weights were trained with. The posterior learns from the validation part, 30 % of
            the training images in the paper (section 5.3.2: `validation_fraction` 0.3), without augmentation.
        supernet: the options that the weights were trained with; of `training` only `amp` is read.
        weights: path or pyarrow URI of the trained weights, as `write_weights` writes a supernet's state (alone, or
            under the key `supernet`).
        device: "auto" (a GPU if the trial was given one, else the CPU), or torch's own word.
        seed: of a trial whose config has no `seed` of its own.
    """

    space: str = "darts"
    data: DataSettings = DataSettings()
    supernet: SupernetOptions
    weights: str
    device: str = "auto"
    seed: Seed = 0
