"""Spaces without networks: feature maps with a log-uniform constant, and activations of two-layer networks.

Khodak et al. 2020, section 2, B.2; Roberts et al. 2022, section 3.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput
from archray.plurals import count
from archray.trainables.spaces.space import SPACES, Architecture, Decision, Space


@dataclass(frozen=True)
class LogUniform:
    """A positive constant whose logarithm is uniform on [log low, log high], as text with 6 significant digits."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < math.inf:
            raise ValueError(f"expected 0 < low < high for the constant {self.name!r}, got {self.low} and {self.high}")
        for bound in (self.low, self.high):
            if float(spelling(bound)) != bound:
                raise ValueError(f"expected 6 significant digits in the bounds of {self.name!r}, got {bound!r}")

    def sample(self, rng: np.random.Generator) -> str:
        value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return spelling(min(max(value, self.low), self.high))  # exp(log(high)) may round beyond high


def spelling(value: float) -> str:
    """Formats a constant for an architecture: `0.0123`, `1e-05`."""
    return f"{value:.6g}"


class FeatureMapSpace(Space):
    """Base class of spaces of feature maps: fixed functions of a data point, the input of a linear model.

    An architecture has one choice per decision and, as its last entry, the constant. Its string is
    `decision=choice|...|constant=0.0123`. A subclass sets `name`, `decisions`, `constant` and `data_kind`.
    """

    kind: ClassVar[str] = "feature map"
    constant: LogUniform

    @property
    def size(self) -> float:
        """Infinite, because the constant is continuous."""
        return math.inf

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        raise InvalidInput(
            f"posterior: expected a space with categorical decisions only, got {self.name}, which has a continuous "
            "constant. Leave space out, and give log-probabilities of the values that you choose"
        )

    def enumerate(self) -> Iterator[Architecture]:
        """Raises: InvalidInput, because a continuous space cannot be enumerated."""
        raise InvalidInput(
            f"expected a finite space to enumerate, got {self.name}, which is continuous in {self.constant.name}; "
            "sample it"
        )

    def sample(self, rng: np.random.Generator) -> Architecture:
        """Draws the choices uniformly and the constant log-uniformly."""
        return (*super().sample(rng), self.constant.sample(rng))

    def mutate(self, architecture: Architecture, rng: np.random.Generator) -> Architecture:
        """Changes the choice of one decision, or the constant. Which one is drawn uniformly."""
        free = sum(len(decision.choices) > 1 for decision in self.decisions)
        if rng.integers(free + 1) < free:
            return (*super().mutate(architecture[:-1], rng), architecture[-1])
        constant = self.constant.sample(rng)
        while constant == architecture[-1]:
            constant = self.constant.sample(rng)
        return (*architecture[:-1], constant)

    @property
    def _entries(self) -> list[str]:
        return [*super()._entries, self.constant.name]

    def decode(self, text: str) -> Architecture:
        """Parses a string; a constant may have another spelling (`1e-2`). Raises: InvalidArchitecture."""
        parts = [part.partition("=")[::2] for part in text.split("|")]
        if [name for name, _ in parts] != self._entries:
            raise InvalidArchitecture(
                f"{self.name}: expected {'|'.join(f'{name}=...' for name in self._entries)}, got {text!r}"
            )
        *choices, constant = (choice for _, choice in parts)
        architecture = (*choices, spelling(self._value(constant)))
        self.check(architecture)
        return architecture

    def check(self, architecture: Architecture) -> None:
        """Raises: InvalidArchitecture if `architecture` is not in this space."""
        if len(architecture) != len(self.decisions) + 1:
            raise InvalidArchitecture(
                f"{self.name}: expected {count(len(self.decisions), 'choice')} and the constant {self.constant.name}, "
                f"got {count(len(architecture), 'entry', 'entries')}: {architecture!r}"
            )
        super().check(architecture[:-1])
        if spelling(self._value(architecture[-1])) != architecture[-1]:
            raise InvalidArchitecture(
                f"{self.name}: expected {self.constant.name} as text with 6 significant digits, "
                f"{spelling(float(architecture[-1]))!r}, got {architecture[-1]!r}"
            )

    def configuration(self, text: str) -> dict[str, str | int | float]:
        """Returns the values of a string by name: choices as text, whole numbers as int, the constant as float."""
        *choices, constant = self.decode(text)
        values: dict[str, str | int | float] = {
            decision.name: int(choice) if choice.isdecimal() else choice
            for decision, choice in zip(self.decisions, choices, strict=True)
        }
        return {**values, self.constant.name: float(constant)}

    def _value(self, text: str) -> float:
        """Parses the constant. Raises: InvalidArchitecture unless it is a number within the bounds."""
        low, high = self.constant.low, self.constant.high
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise InvalidArchitecture(
                f"{self.name}: expected {self.constant.name} as a number in [{low:g}, {high:g}], got {text!r}"
            )
        return value


@SPACES.register("fourier")
class Fourier(FeatureMapSpace):
    """Random Fourier features of images: the kernel, the preprocessing and the bandwidth gamma.

    Khodak et al. 2020, appendix B.2.1; Rahimi and Recht 2008.
    The kernels are exp(-gamma ||x - y||_2^2) (gaussian) and exp(-gamma ||x - y||_1) (laplace). Pixels are unchanged
    (none), scaled to 0..1 per pixel (minmax), scaled to length 1 per image (normalize), or standardized per pixel
    (standard). gamma is continuous, because a grid has only 56 maps, fewer than the paper's 256 candidates.
    """

    name: ClassVar[str] = "fourier"
    decisions = (
        Decision("kernel", ("gaussian", "laplace")),
        Decision("preprocess", ("none", "minmax", "normalize", "standard")),
    )
    constant = LogUniform("gamma", 1e-5, 10.0)


UNUSED = spelling(1.0)  # alpha in the canonical form without weights


@SPACES.register("ngrams")
class NGrams(FeatureMapSpace):
    """Hashed bags of n-grams: the tokens, the counted n-grams and the weights of the counts.

    Khodak et al. 2020, appendix B.2.2; Wang and Manning 2012; Arora et al. 2017.
    tokens: split at spaces (spaces); also between word characters and punctuation (punctuation); or nearly as in NLTK,
    with separate contractions and single marks (words). order: n-grams of 1 to this many tokens. counts: numbers (all),
    or presence (binary). weights: none, Naive-Bayes log-ratios (two classes only), or SIF; alpha smooths both. scale:
    none, length 1 (normalize), or divided by the sum of the counts (average).
    """

    name: ClassVar[str] = "ngrams"
    data_kind: ClassVar[str] = "text"
    decisions = (
        Decision("tokens", ("spaces", "punctuation", "words")),
        Decision("stop_words", ("keep", "drop")),
        Decision("case", ("keep", "lower")),
        Decision("order", ("1", "2", "3")),
        Decision("counts", ("all", "binary")),
        Decision("weights", ("none", "naive-bayes", "sif")),
        Decision("scale", ("none", "normalize", "average")),
    )
    constant = LogUniform("alpha", 1e-5, 10.0)

    def canonical(self, architecture: Architecture) -> Architecture:
        """Sets alpha to 1 without weights, where it has no effect."""
        self.check(architecture)
        return (*architecture[:-1], UNUSED) if architecture[-3] == "none" else architecture


# The activation of the hidden layer of a two-layer network. Roberts et al. 2022, section 3.

ACTIVATION_NAMES = (
    "relu", "leaky-relu", "elu", "softplus", "gelu", "silu", "sigmoid", "tanh", "erf", "sin", "cos", "quadratic",
    "identity",
)  # fmt: skip


@SPACES.register("activations")
class Activations(Space):
    """Two-layer networks v^T sigma(W x). The activation sigma is the only decision.

    Args:
        names: The h activations to choose from, in order (default: all of archray's).

    Raises: InvalidInput for fewer than two, or for duplicates.
    """

    name: ClassVar[str] = "activations"
    kind: ClassVar[str] = "activation"

    def __init__(self, names: Sequence[str] = ACTIVATION_NAMES) -> None:
        if len(names) < 2 or len(set(names)) < len(names):
            raise InvalidInput(f"expected two or more distinct activations, got {', '.join(names) or 'none'}")
        self.decisions = (Decision("activation", tuple(names)),)
