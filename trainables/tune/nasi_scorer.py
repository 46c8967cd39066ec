"""The worker that scores architectures as NASI does: on true or random images and labels. Shu 2022, section 6.6.2."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from archray.trainables.data import DataSettings
from archray.trainables.tune.nasi_settings import NASISettings
from archray.trainables.tune.pool_scorer import PoolScorer


class NASIScorer(PoolScorer):
    """A `PoolScorer` whose batch is one of NASI's; of random images with random labels no data set is opened.

    nasi: fields of `NASISettings`. The others are those of a `PoolScorer`.
    """

    def __init__(self, nasi: dict[str, Any], **options: Any) -> None:
        self.nasi = NASISettings.model_validate(nasi)
        super().__init__(**options)

    def batch(self, data: DataSettings) -> tuple[Tensor, Tensor, int]:
        batches = self.nasi.batches(self.settings.seed, self.device)
        return *batches.take(0), batches.classes
