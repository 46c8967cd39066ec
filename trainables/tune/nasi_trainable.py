"""The Tune trainable of NASI, search at initialization. Shu 2022, Algorithm 6.1."""

import json
import math
from typing import Any

import numpy as np
import torch
from pydantic import Field

from archray.trainables.costs import BoundSettings
from archray.trainables.data import load_images
from archray.trainables.nasi.one_step import reward
from archray.trainables.nasi.search import Constants, NASIBatches, NASISearch, NotFinite, NothingLearned
from archray.trainables.nasi.trace_norm import Approximation
from archray.trainables.nets import build, count_parameters
from archray.trainables.supernets.evaluation import feasible_architecture
from archray.trainables.tune.scorers import ScoredBatch
from archray.trainables.tune.settings import NASISettings
from archray.trainables.tune.trial import EpochTrainable, Result

SIZES = (4, 8, 16, 32, 64, 128)  # b of Table 6.7
NUMBERS = ("trace", "nu", "reward", "above", "entropy", "found_trace", "found_reward")
# Entries that only the last result fills.
NOT_YET = {"distribution": None, "samples": None, "constants": None, "found_trace": math.nan, "found_reward": math.nan}


def mini_batches(settings: NASISettings, seed: int, device: torch.device) -> NASIBatches:
    """Creates the mini-batches of a search. It opens the data set only if it is used. Raises: as `load_images`."""
    dataset = None if settings.without_data else load_images(settings.data, device=device)
    shape, classes = (settings.in_channels, settings.image_size, settings.image_size), settings.classes
    if dataset is not None:
        shape, classes = (dataset.in_channels, dataset.image_size, dataset.image_size), dataset.num_classes
    return NASIBatches(dataset, settings.inputs, settings.labels, shape, classes, settings.batch_size, seed, device)


class NASITrainable(EpochTrainable[NASISearch]):
    """Searches with a supernet at its initial weights. Config: see `TrialTrainable`.

    A step of Tune is `every` steps of NASI. Every result contains

    - `epoch`, `epochs`: completed steps of NASI, and T.
    - `trace`: the mean trace norm of the samples in this step; `above`: the share of samples above nu; `reward`: the
      mean of Eq. 6.8; `nu`: the constraint of the last sample.
    - `architecture`: the mode of p_alpha* so far, after the last step the nearest within `bounds`; `entropy`: of
      p_alpha*, the mean over decisions in nats.
    - `parameters`: of the supernet; `seconds_epoch`, `gpu_memory_peak`: as in an `EpochTrainable`.

    The last result also contains, where the others have NaN and None,

    - `found_trace`: trace norm of the most probable sample, over four batches; `found_reward`: its reward, in units of
      the mean trace norm of random architectures at the same weights (Eq. 6.14), so that seeds can be compared.
    - `distribution`: JSON of {decision: p_alpha* of each choice}; `samples`: JSON of the lists `trace` and `nu`, of all
      steps; `constants`: JSON of a list of {nu, mu, architecture, trace, parameters}, see `NASISearch.sweep`.

    An infinite or NaN trace norm is a failed result, and so is a search without a step that had a gradient.
    """

    settings_type = NASISettings
    failures = (NotFinite, NothingLearned)
    _settings: NASISettings

    def _read(self, config: dict[str, Any]) -> None:
        self._epochs = self._settings.steps

    def _build(self) -> None:
        settings = self._settings
        batches = mini_batches(settings, self._seed, self._device)
        shape = {"in_channels": batches.shape[0], "num_classes": batches.classes}
        supernet = settings.build(settings.space, seed=self._seed, **shape)
        self._parameters = count_parameters(supernet)
        self._trainer = NASISearch(
            supernet.to(self._device),
            batches,
            approximation=settings.approximation,
            temperature=settings.temperature,
            samples=settings.samples,
            seed=self._seed,
        )

    def _epoch(self) -> dict[str, Any]:
        search, settings = self.trainer, self._settings
        before, constants = search.steps_done, self._constants
        for _ in range(min(settings.every, settings.steps - before)):
            search.step()
        done = search.steps_done >= settings.steps
        architecture = search.architecture(constants)
        if done and architecture is None:
            raise NothingLearned(
                f"expected a step with a gradient, got none: the trace norm of every sample is above nu, "
                f"{constants.nu_0:.4g}, where mu {constants.mu:g} leaves no gradient; raise nu, or set mu to 2"
            )
        if done and architecture is not None and settings.bounds is not None:
            architecture = self._feasible(settings.bounds, constants, architecture)
        probabilities = search.probabilities(constants)
        traces, nus = search.traces[before:], search.nus(constants)[before:]
        return {
            "trace": float(traces.mean()),
            "nu": float(nus[-1]),
            "reward": float(search.rewards(constants)[before:].mean()),
            "above": float((traces > nus).mean()),
            "entropy": float(torch.special.entr(probabilities).sum(-1).mean()),
            "architecture": architecture,
            **(self._at_the_end(search, constants) if done else NOT_YET),
        }

    def _feasible(self, bounds: BoundSettings, constants: Constants, mode: str) -> str:
        """Returns the most probable feasible architecture near the mode; without one, the mode."""
        search, batches = self.trainer, self.trainer.batches
        channels, size, classes = self._settings.bounded_images or (*batches.shape[:2], batches.classes)
        violation = bounds.violation(self._settings.space, in_channels=channels, image_size=size, num_classes=classes)
        rows = search.probabilities(constants).to(search.alpha_0)
        learned = {name: weights.dense for name, weights in search.decisions.mixture(rows).items()}
        nearest = feasible_architecture(search.supernet, mode, learned, violation, self._seed)
        return nearest if violation(nearest) == 0.0 else mode

    @property
    def _constants(self) -> Constants:
        settings = self._settings
        nu_0 = self.trainer.nu_0(settings.nu_rule) if settings.nu is None else settings.nu
        return Constants(settings.mu, nu_0, settings.nu_rule, settings.xi)

    def _at_the_end(self, search: NASISearch, constants: Constants) -> dict[str, Any]:
        trace, nu = search.mode_trace(constants), float(search.nus(constants)[-1])
        decisions = zip(search.decisions.decisions, search.probabilities(constants).tolist(), strict=True)
        return {
            "found_trace": trace,
            "found_reward": float(reward(np.array([trace]), nu, constants.mu)[0]) / search.mean_trace(),
            "distribution": json.dumps({d.name: row[: len(d.choices)] for d, row in decisions}),
            "samples": json.dumps({"trace": search.traces.tolist(), "nu": search.nus(constants).tolist()}),
            "constants": json.dumps(search.sweep(constants, self._size)),
        }

    def _size(self, architecture: str) -> int:
        """Counts the parameters of a standalone network with the width and depth of the supernet, without memory."""
        batches, settings = self.trainer.batches, self._settings
        shape = {"in_channels": batches.shape[0], "num_classes": batches.classes}
        with torch.device("meta"):
            alone = build(settings.space, architecture, network=settings.network, seed=None, for_scoring=True, **shape)
        return count_parameters(alone)

    def _no_values(self) -> dict[str, Any]:
        return dict.fromkeys(NUMBERS, math.nan) | {"architecture": None} | NOT_YET

    def _progress(self) -> dict[str, Any]:
        return {"epoch": self._trainer.steps_done if self._trainer else 0, "epochs": self._epochs}

    def _state(self) -> dict[str, Any]:
        return {"trainer": self._trainer.state_dict() if self._trainer else None}


def scored_batch(settings: NASISettings, seed: int) -> ScoredBatch:
    """Returns the first mini-batch of a search (section 6.6.2), for a `PoolScorer`, on the CPU.

    It opens the data set only if it is used. Raises: as `load_images`.
    """
    batches = mini_batches(settings, seed, torch.device("cpu"))
    return ScoredBatch(*batches.take(0), batches.classes)


class NASIAgreementSettings(NASISettings):
    """All options of a `NASIAgreementTrainable`.

    Attributes:
        architectures: Number of architectures, drawn uniformly.
        exact_images: Number of images for the exact trace norm and the sum of samples.
    """

    architectures: int = Field(3, ge=3)
    exact_images: int = Field(8, ge=2)


class NASIAgreementTrainable(NASITrainable):
    """Measures trace norms of random architectures at initial weights of one supernet, one per step. Sec. 6.3, 6.6.4.

    Every result contains `exact` and `samples` on `exact_images` images; `batch_4` ... for mini-batches with the sizes
    of Table 6.7 up to `batch_size`, and `batch`, the largest; and for that batch `random_labels` and `random_inputs`,
    where one of them is random; NaN if it is random anyway.
    """

    settings_type = NASIAgreementSettings
    _settings: NASIAgreementSettings

    def _step(self) -> Result:
        search, settings = self.trainer, self._settings
        path = search.random_path(self._scored)
        values: dict[str, Any] = dict.fromkeys(trace_columns(settings), math.nan)

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
        return self._results(values, seconds=math.nan)

    def _no_values(self) -> dict[str, Any]:
        return dict.fromkeys(trace_columns(self._settings), math.nan)

    def _progress(self) -> dict[str, Any]:
        return {"epoch": self._scored, "epochs": self._settings.architectures}

    def _load(self, state: dict[str, Any]) -> None:
        super()._load(state)
        self._scored = state["result"]["epoch"] if state["result"] else 0

    def _release(self) -> None:
        super()._release()
        self._scored = 0


def _sizes(settings: NASIAgreementSettings) -> list[int]:
    return [size for size in SIZES if size < settings.batch_size] + [settings.batch_size]


def trace_columns(settings: NASIAgreementSettings) -> list[str]:
    """Returns the names of the trace norms in every result."""
    by_size = [f"batch_{size}" for size in _sizes(settings)]
    return ["exact", "samples", *by_size, "batch", "random_labels", "random_inputs"]
