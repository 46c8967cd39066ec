"""The search space: named categorical decisions, and strings for architectures."""

import itertools
import math
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput, MissingExtra
from archray.plurals import count
from archray.registry import Registry

Architecture = tuple[str, ...]  # one choice per decision, in the order of the space's decisions


@dataclass(frozen=True)
class Decision:
    """One categorical decision of a space: its name and its choices, in order.

    Raises: InvalidInput unless the choices are distinct strings, at least one.
    """

    name: str
    choices: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.choices or len(set(self.choices)) != len(self.choices):
            raise InvalidInput(
                f"expected distinct choices for the decision {self.name!r}, at least one, got {self.choices}"
            )
        if not all(isinstance(text, str) for text in (self.name, *self.choices)):
            raise InvalidInput(f"decision {self.name!r}: expected strings as name and choices, got {self.choices}")


class Space(ABC):
    """A search space: immutable, pure Python.

    A subclass sets `name` and `decisions`, which suffices for a search. It may override `encode` and `decode` for the
    strings of a benchmark, and `canonical` to give isomorphic architectures one form. A user's space also defines
    `build(self, architecture, *, in_channels, num_classes, **options) -> nn.Module`.
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "network"  # of its architectures: "network" or "feature map"
    data_kind: ClassVar[str] = "images"  # of its architectures' data: "images" or "text"
    sliced: ClassVar[bool] = False  # whether its supernet shares slices of weights, and mixes no operations
    standalone: ClassVar[bool] = False  # without a supernet in archray
    named: ClassVar[Mapping[str, str]] = MappingProxyType({})  # published architectures: their names and strings
    package: ClassVar[str | None] = None  # of its networks, if an extra of this name installs it
    # Options of methods in this space that differ from a method's own: `training` of every training run, the `proxy` of
    # searches by one, and by family those of `supernets`, `nasi` and `ensembles`, as in a configuration.
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    decisions: tuple[Decision, ...]

    def __eq__(self, other: object) -> bool:
        """Spaces are equal if their classes and arguments are."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @property
    def size(self) -> int | float:
        """The number of architectures, isomorphic ones included; infinite with a continuous constant."""
        return math.prod(len(decision.choices) for decision in self.decisions)

    def sample(self, rng: np.random.Generator) -> Architecture:
        """An architecture drawn uniformly from the space."""
        return tuple(decision.choices[rng.integers(len(decision.choices))] for decision in self.decisions)

    def enumerate(self) -> Iterator[Architecture]:
        """Every architecture once, the last decision varying fastest."""
        return itertools.product(*(decision.choices for decision in self.decisions))

    def mutate(self, architecture: Architecture, rng: np.random.Generator) -> Architecture:
        """`architecture` with one decision, drawn uniformly among those with two choices or more, changed."""
        free = [i for i, decision in enumerate(self.decisions) if len(decision.choices) > 1]
        index = free[rng.integers(len(free))]
        others = [choice for choice in self.decisions[index].choices if choice != architecture[index]]
        return (*architecture[:index], others[rng.integers(len(others))], *architecture[index + 1 :])

    def check_mutable(self) -> None:
        """Raises: InvalidInput if the space has a single architecture."""
        if self.size < 2:
            raise InvalidInput(f"expected a space of 2 architectures or more, got {self.name} with 1")

    def mutations(self, architecture: Architecture) -> Iterator[Architecture] | None:
        """Every result of one mutation of `architecture`, once; None if a subclass overrides `mutate` alone."""
        if type(self).mutate is not Space.mutate:
            return None
        return (
            (*architecture[:index], choice, *architecture[index + 1 :])
            for index, decision in enumerate(self.decisions)
            for choice in decision.choices
            if choice != architecture[index]
        )

    def canonical(self, architecture: Architecture) -> Architecture:
        """The form that all architectures isomorphic to `architecture` share; by default itself."""
        return architecture

    def rank(self, architecture: Sequence[str]) -> tuple[int, ...]:
        """The numbers of an architecture's choices, or of its first ones, which compare in the order of `enumerate`."""
        return tuple(d.choices.index(choice) for d, choice in zip(self.decisions, architecture, strict=False))

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        """The independent decisions of a product distribution over the space.

        The space's decisions, unless choices have a meaning only together (note E6). Raises: InvalidInput for a space
        with a continuous constant.
        """
        return self.decisions

    def architecture_of_decisions(self, chosen: Mapping[str, str]) -> Architecture:
        """The architecture with a choice for each of `posterior_decisions`."""
        return tuple(chosen[decision.name] for decision in self.decisions)

    def condition(self, decision: str) -> tuple[str, tuple[str, ...]] | None:
        """The other decision and its choices under which a decision matters; None: always."""
        return None

    def check_packages(self) -> None:
        """Raises: MissingExtra if its networks need a package that is not installed."""
        if self.package is not None and find_spec(self.package) is None:
            raise MissingExtra(
                f"the networks of {self.name} are made of {self.package}'s modules, and {self.package} cannot be "
                f"imported; install it, on every node, with: pip install 'archray[{self.package}]'"
            )

    def check_strings(self) -> None:
        """Raises: InvalidInput if `decode` cannot read what `encode` writes, because of the decisions' names.

        A subclass with a `decode` of its own is not checked.
        """
        if type(self).decode is not Space.decode:
            return
        if len(set(self._entries)) != len(self.decisions):
            raise InvalidInput(
                f"the space {self.name}: expected a name of its own for each decision, got {self._entries}"
            )
        for decision in self.decisions:
            if "=" in decision.name or any("|" in text for text in (decision.name, *decision.choices)):
                raise InvalidInput(
                    f"the space {self.name}: expected names without '=' and '|', and choices without '|': these "
                    f"separate the parts of an architecture's string, got {decision.name!r} of {decision.choices}"
                )

    @property
    def _entries(self) -> list[str]:
        """The names of an architecture's entries in its string, in order: those of the decisions."""
        return [decision.name for decision in self.decisions]

    def encode(self, architecture: Architecture) -> str:
        """The string of an architecture: `decision=choice|decision=choice`."""
        self.check(architecture)
        return "|".join(f"{name}={choice}" for name, choice in zip(self._entries, architecture, strict=True))

    def decode(self, text: str) -> Architecture:
        """The architecture of a string. Raises: InvalidArchitecture, with the expected form."""
        parts = dict(part.partition("=")[::2] for part in text.split("|"))
        names = self._entries
        if list(parts) != names:
            raise InvalidArchitecture(
                f"{self.name}: expected a choice for each of {', '.join(names)} as name=choice|..., got {text!r}"
            )
        architecture = tuple(parts[name] for name in names)
        self.check(architecture)
        return architecture

    def check(self, architecture: Architecture) -> None:
        """Raises: InvalidArchitecture if `architecture` is not one of this space."""
        if len(architecture) != len(self.decisions):
            raise InvalidArchitecture(
                f"{self.name} has {count(len(self.decisions), 'decision')}, "
                f"got {count(len(architecture), 'choice')}: {architecture!r}"
            )
        for decision, choice in zip(self.decisions, architecture, strict=True):
            if choice not in decision.choices:
                raise InvalidArchitecture(
                    f"{self.name} has no choice {choice!r} for {decision.name}; "
                    f"choose one of {', '.join(decision.choices)}"
                )


SPACES: Registry[type[Space]] = Registry("space")
