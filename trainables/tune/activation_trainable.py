"""The Tune trainable of activations with shared weights, with several instances at once. Roberts et al. 2022."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.seeds import first_seeds
from archray.trainables.activations import two_layer
from archray.trainables.activations.instances import Instances, Pool, SharedRisks, make_instances
from archray.trainables.activations.settings import LABELS, ActivationSettings
from archray.trainables.activations.two_layer import SharedState, component_outputs, get_activations, squared_risks
from archray.trainables.tune.trial import Result, TrialTrainable, read_whole_number

SEARCH_BLOCKS, BLOCKS = 40, 4  # Tune's steps of a search, whose alpha is plotted, and of another training run
# Columns per activation: with alpha, risks of single activations and distances (D_i).
OF_ACTIVATIONS = (
    "alpha", "shared", "distance", "best_alpha", "best_distance", "initial", "uniform", "standalone", "teacher_alpha",
)  # fmt: skip
OF_INSTANCES = ("mixture_risk", "best_risk", "training_risk", "label_risk")


@dataclass(frozen=True)
class Work:
    """One step: `search`, `uniform` and `standalone` train, `instance` reports an instance.

    Attributes:
        number: Number of the instance, or of the single trained activation.
        steps: Number of training steps.
    """

    phase: str
    number: int = 0
    steps: int = 0
    last: bool = False


class ActivationTrainable(TrialTrainable):
    """Trains a stack of instances: the search, weights at uniform alpha, each single activation. Then reports each.

    Config: `labels`, the kind of labels; `first`, the number of its first instance; `seed`, the root of all instances'
    seeds.

    Every result has the columns of `column_names`, of instance `number`; `phase`, `epoch` of `epochs`, `seconds`.
    Results of the search have the current alpha and risks of the first instance; those of the phase `instance` have
    all columns.
    """

    settings_type = ActivationSettings
    failures = (*TrialTrainable.failures, FloatingPointError)

    _settings: ActivationSettings
    _instances: Instances | None
    _state_now: SharedState | None
    _kept: dict[str, Tensor]

    def _read(self, config: dict[str, Any]) -> None:
        labels = config.get("labels")
        if labels not in LABELS:
            raise InvalidInput(f"expected {' or '.join(LABELS)} as `labels` in the config, got {labels!r}")
        self._labels = str(labels)
        self._first = read_whole_number(config, "first", 0, least=0)
        total = self._settings.instances
        self._number = self._settings.seeds if total is None else min(self._settings.seeds, total - self._first)
        if self._number < 1:
            raise InvalidInput(f"expected `first` below {total} in the config, got {self._first}")
        self._work = list(works(self._settings, self._number))
        self._done = 0

    def _build(self) -> None:
        settings = self._settings
        get_activations(settings.activations)
        pool = Pool.load(settings.data)
        if pool is not None:
            pool.check(settings, settings.data.name, labeled=self._labels == "data")
        seeds = first_seeds(self._seed, self._first + self._number)[self._first :]
        self._instances = make_instances(settings, self._labels, seeds, pool, self._device)
        initial = self._discrete(self._instances.initial)
        self._kept = {"initial": initial, "standalone": torch.full_like(initial, torch.nan)}

    def _step(self) -> Result:
        work, start = self._work[self._done], time.perf_counter()
        values = self._values(work)
        self._done += 1
        return self._results(values, work, seconds=time.perf_counter() - start)

    def _values(self, work: Work) -> dict[str, float]:
        if work.phase == "instance":
            return self._instance(work.number)
        state = self._train(work)
        if work.phase == "search":
            self._keep_search(state)
            return self._instance(0)
        if work.last:
            risks = self._discrete(state.weights)
            if work.phase == "uniform":
                self._kept["uniform"] = risks
            else:
                self._kept["standalone"][:, work.number] = risks[:, work.number]
        return self._no_values()

    def _train(self, work: Work) -> SharedState:
        settings, instances = self._settings, self.instances
        names = settings.activations if work.phase != "standalone" else (settings.activations[work.number],)
        if self._state_now is None:
            rates = settings.rate / instances.largest
            self._state_now = two_layer.uniform_alpha(instances.initial, len(names), rates)
        validation, functions = instances.validation if work.phase == "search" else None, get_activations(names)
        problem = two_layer.Problem(instances.training, validation, instances.output, functions, settings.alpha_rate)
        self._state_now = two_layer.train(self._state_now, work.steps, problem)
        return self._state_now

    def _keep_search(self, state: SharedState) -> None:
        """Stores the search's current alpha, risks and distances, and the values of the best alpha for its weights."""
        instances = self.instances
        functions, labels = get_activations(self._settings.activations), instances.risk.labels
        components = component_outputs(instances.risk.inputs, state.weights, instances.output, functions)
        best = two_layer.best_alpha(components, labels)
        risks, best_risks = (SharedRisks.of(components, labels, alpha) for alpha in (state.alpha, best))
        in_training = component_outputs(instances.training.inputs, state.weights, instances.output, functions)
        mixture = two_layer.mixture_outputs(in_training, state.alpha)
        self._kept |= {
            "alpha": state.alpha,
            "shared": risks.discrete,
            "distance": risks.distances,
            "best_alpha": best,
            "best_distance": best_risks.distances,
            "teacher_alpha": instances.teacher,
            "mixture_risk": risks.mixture,
            "best_risk": best_risks.mixture,
            "training_risk": squared_risks(mixture, instances.training.labels),
            "label_risk": labels.var(1, correction=0) / 2,
        }

    def _discrete(self, weights: Tensor) -> Tensor:
        """Computes L(f_{sigma_i}(W)) of every activation: (S, h)."""
        functions, risk = get_activations(self._settings.activations), self.instances.risk
        return squared_risks(component_outputs(risk.inputs, weights, self.instances.output, functions), risk.labels)

    def _instance(self, number: int) -> dict[str, float]:
        values = self._no_values()
        for name, kept in self._kept.items():
            if kept.ndim == 1:
                values[name] = kept[number].item()
            else:
                names = [f"{name}_{activation}" for activation in self._settings.activations]
                values |= zip(names, kept[number].tolist(), strict=True)
        return values

    @property
    def instances(self) -> Instances:
        assert self._instances is not None  # a step starts after building
        return self._instances

    def _no_values(self) -> dict[str, float]:
        return dict.fromkeys(column_names(self._settings.activations), math.nan)

    def _results(
        self, values: dict[str, float], work: Work | None, *, seconds: float, failure: str | None = None
    ) -> Result:
        if work is not None and work.last:
            self._state_now = None  # the next training run starts from the initial weights
        return {
            **values,
            "labels": self._labels,
            "number": self._first + (work.number if work is not None and work.phase == "instance" else 0),
            "phase": work.phase if work else "failed",
            "search_steps": sum(step.steps for step in self._work[: self._done] if step.phase == "search"),
            "epoch": self._done,
            "epochs": len(self._work),
            "seconds_epoch": seconds,
            "failure": failure,
            "done": failure is not None or self._done == len(self._work),
        }

    def _failed(self, reason: str) -> Result:
        return self._results(self._no_values(), None, seconds=math.nan, failure=reason)

    def _state(self) -> dict[str, Any]:
        training = None if self._state_now is None else vars(self._state_now)
        return {"step": self._done, "training": training, "kept": self._kept}

    def _load(self, state: dict[str, Any]) -> None:
        self._done, self._kept = state["step"], state["kept"]
        self._state_now = None if state["training"] is None else SharedState(**state["training"])

    def _release(self) -> None:
        self._instances = self._state_now = None
        self._kept = {}


def works(settings: ActivationSettings, instances: int) -> Iterator[Work]:
    """Yields the steps of a trial, in order. instances: number of instances."""
    alone = (("standalone", number, BLOCKS) for number in range(len(settings.activations)))
    for phase, number, blocks in (("search", 0, SEARCH_BLOCKS), ("uniform", 0, BLOCKS), *alone):
        ends = [settings.steps * (block + 1) // blocks for block in range(blocks)]
        sizes = [end - start for start, end in zip([0, *ends], ends, strict=False) if end > start]
        for block, size in enumerate(sizes):
            yield Work(phase, number, size, last=block == len(sizes) - 1)
    yield from (Work("instance", number) for number in range(instances))


def column_names(activations: tuple[str, ...]) -> list[str]:
    """Returns the columns of every result: `alpha_relu`, ...; `mixture_risk`, ..."""
    return [*(f"{name}_{activation}" for name in OF_ACTIVATIONS for activation in activations), *OF_INSTANCES]
