"""The Tune trainable of NESBS' post-training posterior over architectures. Shu 2022 (thesis), 5.2.2 and 5.3.3."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import Field

from archray.settings import Settings
from archray.trainables.checkpoint import load_weights
from archray.trainables.data import DataSettings, load_images
from archray.trainables.spaces import get_space
from archray.trainables.supernets import PosteriorTrainer, read_weights
from archray.trainables.supernets.optimizers.adam import AdamSettings
from archray.trainables.supernets.relaxations.drawn_paths import DECISIONS
from archray.trainables.supernets.relaxations.variational_posterior import VariationalPosterior, VariationalSettings
from archray.trainables.supernets.trainer import Diverged
from archray.trainables.tune.epoch_trainable import EpochTrainable
from archray.trainables.tune.supernet_settings import SupernetOptions


class PosteriorOptions(Settings):
    """How a posterior is learnt, whatever the supernet, its space and data.

    Defaults are the paper's (thesis 5.3.3), but for the batch, which it does not say: that of the supernet's training.

    Args:
        posterior: the distribution and its objective.
        optimizer: of its parameters; the weights of the supernet stay as they are.
        epochs: passes over the validation images.
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
    seed: int = Field(0, ge=0)


class PosteriorTrainable(EpochTrainable[PosteriorTrainer]):
    """Learns p_alpha(A) with a supernet's weights. Every result holds, beside what `EpochTrainable` says,

    - `elbo`, `kl`, `expected_loss`: see `PosteriorEpoch`; `scale`: s, as a number.
    - `entropies`: of each decision in the order of `posterior`, in nats, after the epoch; `entropy`: their mean over
      the decisions with two choices or more.
    - `posterior`: JSON of {decision: log-probabilities, None where impossible}, what the `Posterior` of
      `archray.searchers.nesbs` takes; a string, as Tune flattens dicts. `architecture`: the most probable one.
    - `parameters`: choices that are possible.

    Raises: InvalidInput for weights of another supernet, too; FileNotFoundError.
    """

    settings_type = PosteriorSettings
    failures = (Diverged,)
    _settings: PosteriorSettings

    def _read(self, config: dict[str, Any]) -> None:
        settings = self._settings
        self._epochs = settings.epochs
        space = get_space(settings.space)
        self._decisions = space.posterior_decisions
        settings.supernet.groups(space)  # raises

    def _build(self) -> None:
        settings, options = self._settings, self._settings.supernet
        dataset = load_images(settings.data, device=self._device)
        supernet = options.build(
            settings.space, in_channels=dataset.in_channels, num_classes=dataset.num_classes, seed=self._seed
        )
        load_weights(supernet, read_weights(settings.weights), f"the weights in {settings.weights}")
        scale = settings.posterior.scale
        self._scale = float(len(dataset.validation) if scale == "data" else scale)
        posterior = VariationalPosterior(
            supernet, settings.posterior, settings.optimizer, scale=self._scale, device=self._device
        )
        self._parameters = int(posterior.relaxed.allowed.sum())
        self._trainer = PosteriorTrainer(
            supernet,
            dataset,
            posterior,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            seed=self._seed,
            amp=options.training.amp,
        )

    def _epoch(self) -> dict[str, Any]:
        trainer = self.trainer
        measured = trainer.epoch()
        posterior = trainer.posterior
        return {
            **measured._asdict(),
            "scale": self._scale,
            **self._entropies(posterior.entropies()[DECISIONS]),
            "posterior": json.dumps(posterior.log_probs()),
            "architecture": posterior.mode(),
        }

    def _no_values(self) -> dict[str, Any]:
        values: dict[str, Any] = dict.fromkeys(("elbo", "kl", "expected_loss", "scale"), math.nan)
        return values | self._entropies([math.nan] * len(self._decisions)) | {"posterior": None, "architecture": None}

    def _entropies(self, entropies: list[float]) -> dict[str, Any]:
        of = zip(self._decisions, entropies, strict=True)
        free = [value for decision, value in of if len(decision.choices) > 1]
        return {"entropy": sum(free) / len(free) if free else math.nan, "entropies": entropies}
