"""The Tune trainable of NESBS' post-training posterior over architectures. Shu 2022 (thesis), 5.2.2 and 5.3.3."""

from __future__ import annotations

import json
import math
from typing import Any

from archray.trainables.checkpoint import load_weights, read_weights
from archray.trainables.data import load_images
from archray.trainables.spaces import get_space
from archray.trainables.supernets import PosteriorTrainer
from archray.trainables.supernets.mixings.drawn_paths import DECISIONS
from archray.trainables.supernets.mixings.variational_posterior import VariationalPosterior
from archray.trainables.supernets.trainer import Diverged
from archray.trainables.tune.epoch_trainable import EpochTrainable
from archray.trainables.tune.posterior_settings import PosteriorSettings


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
