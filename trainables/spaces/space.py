"""The base class of search spaces: named categorical decisions, and strings for architectures."""

import itertools
import math
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput, MissingExtra, install_command
from archray.plurals import count
from archray.registry import Registry

Architecture = tuple[str, ...]  # one choice per decision, in the order of the space's decisions


@dataclass(frozen=True)
class Decision:
    """One categorical decision of a space: its name and its choices, in order.

    Raises: InvalidInput unless there are one or more distinct strings as choices.
    """

    name: str
    choices: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.choices or len(set(self.choices)) != len(self.choices):
            raise InvalidInput(
                f"expected one or more distinct choices for the decision {self.name!r}, got {self.choices}"
            )
        if not all(isinstance(text, str) for text in (self.name, *self.choices)):
            raise InvalidInput(
                f"expected strings as name and choices of the decision {self.name!r}, got {self.choices}"
            )


class Space(ABC):
    """Base class of search spaces; immutable, pure Python.

    A subclass sets `name` and `decisions`, which is enough for a search. It may override `encode` and `decode` for the
    strings of a benchmark, and `canonical` to give isomorphic architectures one form. A custom space also defines
    `build(self, architecture, *, in_channels, num_classes, **options) -> nn.Module`.

    Example:
        >>> import numpy as np
        >>> from archray.trainables.spaces import get_space
        >>> space = get_space("nasbench201")
        >>> space.size
        15625
        >>> architecture = space.sample(np.random.default_rng(0))
        >>> space.decode(space.encode(architecture)) == architecture
        True
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "network"  # kind of its architectures: "network" or "feature map"
    data_kind: ClassVar[str] = "images"  # kind of data: "images" or "text"
    supernets: ClassVar[tuple[str, ...]] = ()  # kinds of its supernets: `mixed` (operations), `sliced` (weights)
    all_valid: ClassVar[bool] = False  # whether a network that fails is an error of the space, found before a run
    named: ClassVar[Mapping[str, str]] = MappingProxyType({})  # published architectures: names and strings
    package: ClassVar[str | None] = None  # package of its networks, if an extra of this name installs it
    # Options in this space that differ from a method's defaults: `training` of every training run, the `proxy` of
    # searches by one, and those of the families `supernets`, `nasi` and `ensembles`, as in a configuration;
    # `paper-code`: of the scored network in this preset of HNAS.
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    decisions: tuple[Decision, ...]

    def __eq__(self, other: object) -> bool:
        """Spaces are equal if their classes and arguments are equal."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @property
    def family(self) -> str:
        """The name under which its networks and supernets are registered."""
        return self.name

    @property
    def extremes(self) -> tuple[Architecture, ...]:
        """The architectures with the fewest and the most parameters, if the space can name them."""
        return ()

    def parameter_counts(self, architectures: Sequence[Architecture], **shape: int) -> list[int] | None:
        """Returns the parameters of networks; None for a space that would have to build them.

        Args:
            shape: `in_channels` and `num_classes`.
        """
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about the space, for `archray check`."""
        return ()

    @property
    def size(self) -> int | float:
        """The number of architectures, including isomorphic ones; infinite with a continuous constant."""
        return math.prod(len(decision.choices) for decision in self.decisions)

    def sample(self, rng: np.random.Generator) -> Architecture:
        """Draws an architecture uniformly from the space."""
        return tuple(decision.choices[rng.integers(len(decision.choices))] for decision in self.decisions)

    def samples(self, number: int, rng: np.random.Generator) -> list[Architecture]:
        """Draws `number` architectures: those of `number` calls of `sample`, in less time."""
        if type(self).sample is not Space.sample or not self.decisions:
            return [self.sample(rng) for _ in range(number)]
        sizes = [len(decision.choices) for decision in self.decisions]
        indices = rng.integers(sizes, size=(number, len(sizes))).T.tolist()  # (D, number)
        choices = (
            map(decision.choices.__getitem__, row) for decision, row in zip(self.decisions, indices, strict=True)
        )
        return list(zip(*choices, strict=True))

    def enumerate(self) -> Iterator[Architecture]:
        """Yields every architecture once; the last decision changes fastest."""
        return itertools.product(*(decision.choices for decision in self.decisions))

    def canonical_forms(self) -> Sequence[Architecture]:
        """Returns the canonical form of every architecture once, in the order of `enumerate`."""
        return list(dict.fromkeys(self.canonical(architecture) for architecture in self.enumerate()))

    def mutate(self, architecture: Architecture, rng: np.random.Generator) -> Architecture:
        """Changes one decision of `architecture`, drawn uniformly among those with two or more choices."""
        free = [i for i, decision in enumerate(self.decisions) if len(decision.choices) > 1]
        index = free[rng.integers(len(free))]
        others = [choice for choice in self.decisions[index].choices if choice != architecture[index]]
        return (*architecture[:index], others[rng.integers(len(others))], *architecture[index + 1 :])

    def check_mutable(self) -> None:
        """Raises: InvalidInput if the space has a single architecture."""
        if self.size < 2:
            raise InvalidInput(f"expected a space with 2 or more architectures, got {self.name} with 1")

    def mutations(self, architecture: Architecture) -> Iterator[Architecture] | None:
        """Yields every result of one mutation of `architecture` once; None if a subclass overrides only `mutate`."""
        if type(self).mutate is not Space.mutate:
            return None
        return self._changes(architecture)

    def _changes(self, architecture: Architecture) -> Iterator[Architecture]:
        """Yields every architecture that differs in one decision."""
        for index, decision in enumerate(self.decisions):
            for choice in decision.choices:
                if choice != architecture[index]:
                    yield (*architecture[:index], choice, *architecture[index + 1 :])

    def canonical(self, architecture: Architecture) -> Architecture:
        """Returns the form that all architectures isomorphic to `architecture` share; by default `architecture`."""
        return architecture

    def rank(self, architecture: Sequence[str]) -> tuple[int, ...]:
        """Returns the indices of an architecture's (first) choices. They compare in the order of `enumerate`."""
        return tuple(d.choices.index(choice) for d, choice in zip(self.decisions, architecture, strict=False))

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        """The independent decisions of a product distribution over the space.

        These are the space's decisions, unless choices have a meaning only together (note E6).

        Raises: InvalidInput for a space with a continuous constant.
        """
        return self.decisions

    def architecture_of_decisions(self, chosen: Mapping[str, str]) -> Architecture:
        """Returns the architecture with a choice for each of `posterior_decisions`."""
        return tuple(chosen[decision.name] for decision in self.decisions)

    def condition(self, decision: str) -> tuple[str, tuple[str, ...]] | None:
        """Returns another decision and the choices of it for which this decision matters; None if it always does."""
        return None

    def check_packages(self) -> None:
        """Raises: MissingExtra if the space's networks need a package that is not installed."""
        if self.package is not None and find_spec(self.package) is None:
            raise MissingExtra(
                f"expected the package {self.package} for networks of the space {self.name}, and Python cannot import "
                "it. "
                f"Run {install_command(self.package)}, on every node"
            )

    def check_model(self, images: Any, *, num_classes: int, **sizes: Any) -> None:  # noqa: B027, few need it
        """Raises: InvalidInput if the model from which a space is read is inconsistent. Args: see `ModelSpace`."""

    def check_strings(self) -> None:
        """Raises: InvalidInput if `decode` cannot parse what `encode` writes, because of the decisions' names.

        A subclass that overrides `decode` is not checked.
        """
        if type(self).decode is not Space.decode:
            return
        if len(set(self._entries)) != len(self.decisions):
            raise InvalidInput(f"the space {self.name}: expected distinct names of decisions, got {self._entries}")
        for decision in self.decisions:
            if "=" in decision.name or any("|" in text for text in (decision.name, *decision.choices)):
                raise InvalidInput(
                    f"the space {self.name}: expected names without '=' and '|', and choices without '|', because "
                    f"these separate the parts of an architecture's string, got {decision.name!r} with "
                    f"{decision.choices}"
                )

    @property
    def _entries(self) -> list[str]:
        """The names of an architecture's entries in its string, in order: the names of the decisions."""
        return [decision.name for decision in self.decisions]

    def encode(self, architecture: Architecture) -> str:
        """Returns the string of an architecture: `decision=choice|decision=choice`."""
        self.check(architecture)
        return "|".join(f"{name}={choice}" for name, choice in zip(self._entries, architecture, strict=True))

    def decode(self, text: str) -> Architecture:
        """Parses the string of an architecture. Raises: InvalidArchitecture, with the expected format."""
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
        """Raises: InvalidArchitecture if `architecture` is not in this space."""
        if len(architecture) != len(self.decisions):
            raise InvalidArchitecture(
                f"{self.name}: expected {count(len(self.decisions), 'choice')}, "
                f"got {count(len(architecture), 'choice')}: {architecture!r}"
            )
        for decision, choice in zip(self.decisions, architecture, strict=True):
            if choice not in decision.choices:
                raise InvalidArchitecture(
                    f"{self.name} has no choice {choice!r} for {decision.name}. "
                    f"Choose one of {', '.join(decision.choices)}"
                )


SPACES: Registry[type[Space]] = Registry("space")
