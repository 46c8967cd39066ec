"""How approximations of the trace norm agree, and random labels and inputs with the data's. Shu 2022, 6.3 and 6.6.4."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from archray.trainables.nasi.mini_batches import NASIBatches
from archray.trainables.nasi.trace_norm import Approximation
from archray.trainables.tune.nasi_settings import NASISettings
from archray.trainables.tune.nasi_trainable import NASITrainable
from archray.trainables.tune.trial import Result

SIZES = (4, 8, 16, 32, 64, 128)  # b of Table 6.7


class NASIAgreementSettings(NASISettings):
    """All options of a `NASIAgreementTrainable`.

    Attributes:
        architectures: how many, drawn uniformly.
        exact_images: on how many images the exact trace norm, and the sum of samples, is computed.
    """

    architectures: int = Field(3, ge=3)
    exact_images: int = Field(8, ge=2)


class NASIAgreementTrainable(NASITrainable):
    """Trace norms of random architectures at the initial weights of one supernet; a step is an architecture.

    Every result holds `exact` and `samples` on `exact_images` images; `batch_4` ... of mini-batches of the sizes of
    Table 6.7 up to `batch_size`, `batch` the largest of them; and of that batch `random_labels` and `random_inputs`,
    with the other as it is; NaN of what is random already.
    """

    settings_type = NASIAgreementSettings
    _settings: NASIAgreementSettings

    def _step(self) -> Result:
        search, settings = self.search, self._settings
        number = self._scored
        path = search.random_path(number)
        values: dict[str, Any] = dict.fromkeys(compared(settings), math.nan)

        def trace(size: int, approximation: Approximation, **source: str) -> float:
            batches = NASIBatches(**{**vars(search.batches), "size": size, **source})
            return search.trace_on(path, batches.take(0), approximation)

        values["exact"] = trace(settings.exact_images, "exact")
        values["samples"] = trace(settings.exact_images, "samples")
        for size in _sizes(settings):
            values[f"batch_{size}"] = values["batch"] = trace(size, "batch")
        if settings.labels == "true":
            values["random_labels"] = trace(settings.batch_size, "batch", labels="random")
        if settings.inputs == "true":
            values["random_inputs"] = trace(settings.batch_size, "batch", inputs="random")
        self._scored += 1
        done = self._scored >= settings.architectures
        counted = {"epoch": self._scored, "epochs": settings.architectures}
        return self._results(values, done=done, seconds=math.nan) | counted

    def load_checkpoint(self, checkpoint: Any) -> None:
        super().load_checkpoint(checkpoint)
        self._scored = self._result["epoch"] if self._result else 0

    def _build(self) -> None:
        super()._build()
        self._scored = 0

    def _failed(self, reason: str) -> Result:
        values = dict.fromkeys(compared(self._settings), math.nan)
        return self._results(values, done=True, seconds=math.nan, failure=reason)


def _sizes(settings: NASIAgreementSettings) -> list[int]:
    return [size for size in SIZES if size < settings.batch_size] + [settings.batch_size]


def compared(settings: NASIAgreementSettings) -> list[str]:
    """The names of the trace norms in every result."""
    by_size = [f"batch_{size}" for size in _sizes(settings)]
    return ["exact", "samples", *by_size, "batch", "random_labels", "random_inputs"]
