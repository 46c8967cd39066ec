"""The Tune trainable of NASI, search at initialisation. Shu 2022 (thesis), Algorithm 6.1."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from archray.trainables.checkpoint import read_state
from archray.trainables.data import DataSettings
from archray.trainables.nasi.one_step import reward
from archray.trainables.nasi.search import Constants, NASIBatches, NASISearch, NotFinite, NothingLearnt
from archray.trainables.nasi.trace_norm import Approximation
from archray.trainables.nets import build, count_parameters
from archray.trainables.supernets.evaluation import feasible_architecture
from archray.trainables.tune.scorers import PoolScorer
from archray.trainables.tune.settings import NASISettings
from archray.trainables.tune.trial import Result, TrialTrainable

# The constants that are tried at the end on the same gradients (Figures 6.4 and 6.6): multiples of nu, and mu.
MULTIPLES, PENALTIES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0), (0.0, 1.0, 2.0, 4.0)
NOTHING = dict.fromkeys(("trace", "nu", "reward", "above", "entropy", "found_trace", "found_reward"), math.nan)


class NASITrainable(TrialTrainable):
    """Searches with a supernet at its initial weights. Config: see `TrialTrainable`.

    A step of Tune is `every` steps of NASI, and every result holds

    - `epoch`, `epochs`: steps of NASI done, and T.
    - `trace`: the mean trace norm of the samples of this step; `above`: the share of them above nu; `reward`: the mean
      of Eq. 6.8; `nu`: the constraint of the last of them.
    - `architecture`: the mode of p_alpha* so far, after the last step within `bounds`, if something near it is;
      `entropy`: of p_alpha*, the mean over decisions in nats.
    - `parameters`: of the supernet; `seconds_epoch`; `gpu_memory_peak`: as of an `EpochTrainable`.

    After the last step it holds further, and before it NaN and None,

    - `found_trace`: of the most probable sample, over four batches; `found_reward`: its reward, in units of the mean
      trace norm of random architectures at the same weights (Eq. 6.14), so that seeds can be compared.
    - `distribution`: JSON of {decision: p_alpha* of each choice}; `samples`: JSON of the lists `trace` and `nu`, of all
      steps; `constants`: JSON of a list of {nu, mu, architecture, trace, parameters}, what other constants make
      of the same gradients and its own network's parameters, None where that is nothing.

    A trace norm that is not finite is a failed result, and so is a search none of whose steps had a gradient.
    """

    settings_type = NASISettings
    failures = (NotFinite, NothingLearnt)
    _settings: NASISettings
    _search: NASISearch | None

    @property
    def search(self) -> NASISearch:
        """The search at work. Raises: RuntimeError for a trial that failed."""
        if self._result is None:
            self.begin()
        if self._search is None:
            raise RuntimeError("the trial failed and holds no search; see `failure` in its result")
        return self._search

    def load_checkpoint(self, checkpoint: Any) -> None:  # the folder that `save_checkpoint` was given
        state = read_state(checkpoint, self._device)
        if state["search"] is None:  # the trial had failed
            self._result = state["result"]
            return
        self.begin()
        if self._search is not None:  # else building it failed here and now, which `_result` says
            self._search.load_state_dict(state["search"])
            self._result = state["result"]

    def _read(self, config: dict[str, Any]) -> None:
        pass

    def _build(self) -> None:
        settings = self._settings
        batches = settings.batches(self._seed, self._device)
        supernet = settings.build(
            settings.space, in_channels=batches.shape[0], num_classes=batches.classes, seed=self._seed
        )
        self._parameters = count_parameters(supernet)
        self._search = NASISearch(
            supernet.to(self._device),
            batches,
            approximation=settings.approximation,
            temperature=settings.temperature,
            samples=settings.samples,
            seed=self._seed,
        )

    def _step(self) -> Result:
        search, settings = self.search, self._settings
        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self._device)
        start, before = time.perf_counter(), search.steps_done
        constants = self._constants
        for _ in range(min(settings.every, settings.steps - before)):
            search.step()
        done = search.steps_done >= settings.steps
        architecture = search.architecture(constants)
        if done and architecture is None:
            raise NothingLearnt(
                f"no step had a gradient: the trace norm of every sample is above nu, {constants.nu_0:.4g}, where "
                f"mu {constants.mu:g} leaves none; raise nu, or set mu to 2"
            )
        if done and architecture is not None:
            architecture = self._bounded(search, constants, architecture)
        probabilities = search.probabilities(constants)
        traces, nus = search.traces[before:], search.nus(constants)[before:]
        values = {
            "trace": float(traces.mean()),
            "nu": float(nus[-1]),
            "reward": float(search.rewards(constants)[before:].mean()),
            "above": float((traces > nus).mean()),
            "entropy": float(torch.special.entr(probabilities).sum(-1).mean()),
            "architecture": architecture,
            **(self._at_the_end(search, constants) if done else _not_yet()),
        }
        seconds = time.perf_counter() - start
        memory = float(torch.cuda.max_memory_allocated(self._device)) if on_gpu else math.nan
        return self._results(values, done=done, seconds=seconds, memory=memory)

    def _bounded(self, search: NASISearch, constants: Constants, mode: str) -> str:
        """The mode, or, where it violates the bounds, what meets them near it and is most probable; the mode again if
        there is none."""
        settings = self._settings
        if settings.bounds is None:
            return mode
        batches = search.batches
        shape = (*batches.shape[:2], batches.classes) if settings.bounded_images is None else settings.bounded_images
        channels, size, classes = shape
        violation = settings.bounds.violation(
            settings.space, in_channels=channels, image_size=size, num_classes=classes
        )
        rows = search.probabilities(constants).to(search.alpha_0)
        learnt = {name: weights.dense for name, weights in search.decisions.mixture(rows).items()}
        found = feasible_architecture(search.supernet, mode, learnt, violation, self._seed)
        return found if violation(found) == 0.0 else mode

    @property
    def _constants(self) -> Constants:
        settings = self._settings
        nu_0 = self.search.nu_0(settings.nu_rule) if settings.nu is None else settings.nu
        return Constants(settings.mu, nu_0, settings.nu_rule, settings.xi)

    def _at_the_end(self, search: NASISearch, constants: Constants) -> dict[str, Any]:
        trace, nu = search.mode_trace(constants), float(search.nus(constants)[-1])
        tried = [
            constants._replace(nu_0=multiple * constants.nu_0, mu=mu) for mu in PENALTIES for multiple in MULTIPLES
        ]
        found = {each: search.architecture(each) for each in tried}
        traces = {name: search.mode_trace(each) for each, name in found.items() if name is not None}
        sizes = {name: self._size(name) for name in traces}
        decisions = zip(search.decisions.decisions, search.probabilities(constants).tolist(), strict=True)
        return {
            "found_trace": trace,
            "found_reward": float(reward(np.array([trace]), nu, constants.mu)[0]) / search.mean_trace(),
            "distribution": json.dumps({d.name: row[: len(d.choices)] for d, row in decisions}),
            "samples": json.dumps({"trace": search.traces.tolist(), "nu": search.nus(constants).tolist()}),
            "constants": json.dumps(
                [
                    {
                        "nu": each.nu_0,
                        "mu": each.mu,
                        "architecture": name,
                        "trace": traces.get(name or ""),
                        "parameters": sizes.get(name or ""),
                    }
                    for each, name in found.items()
                ]
            ),
        }

    def _size(self, architecture: str) -> int:
        """The parameters of an architecture's own network, as wide and deep as the supernet, without memory."""
        batches, settings = self.search.batches, self._settings
        shape = {"in_channels": batches.shape[0], "num_classes": batches.classes}
        with torch.device("meta"):
            alone = build(settings.space, architecture, network=settings.network, seed=None, for_scoring=True, **shape)
        return count_parameters(alone)

    def _failed(self, reason: str) -> Result:
        values = NOTHING | {"architecture": None} | _not_yet()
        return self._results(values, done=True, seconds=math.nan, failure=reason)

    def _results(
        self,
        values: dict[str, Any],
        *,
        done: bool,
        seconds: float,
        memory: float = math.nan,
        failure: str | None = None,
    ) -> Result:
        return {
            **values,
            "epoch": self._search.steps_done if self._search else 0,
            "epochs": self._settings.steps,
            "parameters": self._parameters,
            "seconds_epoch": seconds,
            "gpu_memory_peak": memory,
            "failure": failure,
            "done": done,
        }

    def _state(self) -> dict[str, Any]:
        return {"search": self._search.state_dict() if self._search else None}

    def _release(self) -> None:
        self._search = None
        self._parameters = 0


def _not_yet() -> dict[str, Any]:
    """What is known after the last step."""
    nothing: dict[str, Any] = dict.fromkeys(("distribution", "samples", "constants"))
    return nothing | dict.fromkeys(("found_trace", "found_reward"), math.nan)


# The worker that scores architectures as NASI does: on true or random images and labels. Shu 2022, section 6.6.2.


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


# How approximations of the trace norm agree, and random labels and inputs with the data's. Shu 2022, 6.3 and 6.6.4.


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
