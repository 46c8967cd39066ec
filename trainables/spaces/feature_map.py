"""Spaces of feature maps: categorical decisions and one log-uniform constant. Khodak et al. 2020, section 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.spaces.space import Architecture, Decision, Space


@dataclass(frozen=True)
class LogUniform:
    """A positive constant whose logarithm is uniform on [log low, log high]. It is text of 6 significant digits."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"constant {self.name!r} needs 0 < low < high, got {self.low} and {self.high}")
        for bound in (self.low, self.high):
            if float(spelling(bound)) != bound:
                raise ValueError(f"constant {self.name!r} needs bounds of 6 significant digits, got {bound!r}")

    def sample(self, rng: np.random.Generator) -> str:
        value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return spelling(min(max(value, self.low), self.high))  # exp(log(high)) may round beyond high


def spelling(value: float) -> str:
    """A constant as it stands in an architecture: `0.0123`, `1e-05`."""
    return f"{value:.6g}"


class FeatureMapSpace(Space):
    """Feature maps: fixed functions of a data point whose values go into a linear model.

    An architecture is one choice per decision and, as its last entry, the constant as text of 6 significant digits;
    its string is `decision=choice|...|constant=0.0123`. A subclass sets `name`, `decisions`, `constant` and
    `data_kind`.
    """

    kind: ClassVar[str] = "feature map"
    constant: LogUniform

    @property
    def size(self) -> float:
        """Infinite: the constant is continuous."""
        return math.inf

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        raise InvalidInput(
            f"posterior: expected a space of categorical decisions, got {self.name}, which has a continuous constant; "
            "leave space out, and give the log-probabilities of values of your choosing"
        )

    def enumerate(self) -> Iterator[Architecture]:
        """Raises: InvalidInput; a continuous space has no list of its members."""
        raise InvalidInput(f"{self.name} is continuous in {self.constant.name} and cannot be enumerated; sample it")

    def sample(self, rng: np.random.Generator) -> Architecture:
        """Choices drawn uniformly, the constant log-uniformly."""
        return (*super().sample(rng), self.constant.sample(rng))

    def mutate(self, architecture: Architecture, rng: np.random.Generator) -> Architecture:
        """`architecture` with one decision or the constant, drawn uniformly, changed; a constant is drawn anew."""
        free = sum(len(decision.choices) > 1 for decision in self.decisions)
        if rng.integers(free + 1) < free:
            return (*super().mutate(architecture[:-1], rng), architecture[-1])
        constant = self.constant.sample(rng)
        while constant == architecture[-1]:
            constant = self.constant.sample(rng)
        return (*architecture[:-1], constant)

    def encode(self, architecture: Architecture) -> str:
        """The string of a feature map: `decision=choice|...|constant=value`."""
        self.check(architecture)
        names = (*(decision.name for decision in self.decisions), self.constant.name)
        return "|".join(f"{name}={choice}" for name, choice in zip(names, architecture, strict=True))

    def decode(self, text: str) -> Architecture:
        """The feature map of a string; a constant spelt otherwise (`1e-2`) is given its 6 digits.

        Raises: InvalidArchitecture, saying what the string should hold.
        """
        parts = [part.partition("=")[::2] for part in text.split("|")]
        names = [*(decision.name for decision in self.decisions), self.constant.name]
        if [name for name, _ in parts] != names:
            raise InvalidArchitecture(
                f"{self.name}: expected {'|'.join(f'{name}=...' for name in names)}, got {text!r}"
            )
        *choices, constant = (choice for _, choice in parts)
        architecture = (*choices, spelling(self._value(constant)))
        self.check(architecture)
        return architecture

    def check(self, architecture: Architecture) -> None:
        """Raises: InvalidArchitecture if `architecture` is not one of this space."""
        if len(architecture) != len(self.decisions) + 1:
            raise InvalidArchitecture(
                f"{self.name} has {len(self.decisions)} decisions and the constant {self.constant.name}, "
                f"got {len(architecture)} entries: {architecture!r}"
            )
        super().check(architecture[:-1])
        if spelling(self._value(architecture[-1])) != architecture[-1]:
            raise InvalidArchitecture(
                f"{self.name}: expected {self.constant.name} as text of 6 significant digits, "
                f"{spelling(float(architecture[-1]))!r}, got {architecture[-1]!r}"
            )

    def configuration(self, text: str) -> dict[str, str | int | float]:
        """What a string says, by name: choices as text, whole numbers as int, the constant as float.

        Raises: InvalidArchitecture.
        """
        *choices, constant = self.decode(text)
        values: dict[str, str | int | float] = {
            decision.name: int(choice) if choice.isdecimal() else choice
            for decision, choice in zip(self.decisions, choices, strict=True)
        }
        return {**values, self.constant.name: float(constant)}

    def _value(self, text: str) -> float:
        """The constant that `text` spells. Raises: InvalidArchitecture if that is no number within the bounds."""
        low, high = self.constant.low, self.constant.high
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise InvalidArchitecture(
                f"{self.name}: expected {self.constant.name} to be a number in [{low:g}, {high:g}], got {text!r}"
            )
        return value
