"""Architectures of a space together with training hyperparameters, such as `train.lr`, as further decisions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.spaces.space import Architecture, Decision, Space

SEPARATOR = ";"  # between the parts of a string: ARCHITECTURE;train.lr=0.05;train.weight_decay=0.0005


class JointSpace(Space):
    """The product of a space and of training decisions, which follow the decisions of the space.

    Its strings are the string of an architecture, and `;name=choice` for each training decision in order. The canonical
    form of an architecture keeps its training decisions: networks with different training are different.

    Args:
        space: The space of architectures.
        training: One or more decisions, each with two or more choices.

    Raises: InvalidInput if names coincide, a decision has a single choice, or a part contains a separator.

    Example:
        >>> from archray.trainables.spaces import get_space
        >>> space = JointSpace(get_space("nasbench201"), [Decision("train.lr", ("0.01", "0.1"))])
        >>> space.size
        31250
    """

    def __init__(self, space: Space, training: Sequence[Decision]) -> None:
        names = [decision.name for decision in training]
        if not names or len(set(names)) < len(names) or not {d.name for d in space.decisions}.isdisjoint(names):
            raise InvalidInput(
                f"expected one or more training decisions with distinct names that are not decisions of {space.name}, "
                f"got {', '.join(names) or 'none'}"
            )
        for decision in training:
            texts = (decision.name, *decision.choices)
            if len(decision.choices) < 2 or "=" in decision.name or any(SEPARATOR in text for text in texts):
                raise InvalidInput(
                    f"expected two or more choices for {decision.name}, without {SEPARATOR!r}, and a name without '=', "
                    f"got {', '.join(decision.choices)}"
                )
        self.architectures, self.training = space, tuple(training)
        described = [f"{decision.name}={','.join(decision.choices)}" for decision in training]
        self.name = SEPARATOR.join([space.name, *described])  # type: ignore[misc]  # differs between instances
        self.kind, self.data_kind = space.kind, space.data_kind  # type: ignore[misc]
        self.decisions = (*space.decisions, *self.training)

    def parts(self, architecture: Architecture) -> tuple[Architecture, Architecture]:
        """Splits the choices into the choices of the architecture and of the training decisions."""
        number = len(architecture) - len(self.training)
        return architecture[:number], architecture[number:]

    # The interface of a space --------------------------------------------------------------------------------------

    @property
    def size(self) -> int | float:
        return self.architectures.size * math.prod(len(decision.choices) for decision in self.training)

    def sample(self, rng: np.random.Generator) -> Architecture:
        architecture = self.architectures.sample(rng)
        return (*architecture, *(decision.choices[rng.integers(len(decision.choices))] for decision in self.training))

    def enumerate(self) -> Iterator[Architecture]:
        trainings = list(product(*(decision.choices for decision in self.training)))
        return ((*architecture, *chosen) for architecture in self.architectures.enumerate() for chosen in trainings)

    def mutate(self, architecture: Architecture, rng: np.random.Generator) -> Architecture:
        """Changes one decision, drawn uniformly from all decisions with two or more choices.

        The space itself mutates the architecture, if the decision is one of its decisions.
        """
        inner, chosen = self.parts(architecture)
        free = sum(len(decision.choices) > 1 for decision in self.architectures.decisions)
        index = int(rng.integers(free + len(self.training))) - free
        if index < 0:
            return (*self.architectures.mutate(inner, rng), *chosen)
        others = [choice for choice in self.training[index].choices if choice != chosen[index]]
        return (*inner, *chosen[:index], others[rng.integers(len(others))], *chosen[index + 1 :])

    def check_mutable(self) -> None:
        """Does nothing, as every training decision has another choice."""

    def mutations(self, architecture: Architecture) -> Iterator[Architecture] | None:
        inner, chosen = self.parts(architecture)
        mutations = self.architectures.mutations(inner)
        if mutations is None:
            return None
        others = (
            (*inner, *chosen[:index], choice, *chosen[index + 1 :])
            for index, decision in enumerate(self.training)
            for choice in decision.choices
            if choice != chosen[index]
        )
        return chain(((*mutation, *chosen) for mutation in mutations), others)

    def canonical(self, architecture: Architecture) -> Architecture:
        inner, chosen = self.parts(architecture)
        return (*self.architectures.canonical(inner), *chosen)

    def rank(self, architecture: Sequence[str]) -> tuple[int, ...]:
        inner, chosen = self.parts(tuple(architecture))
        ranks = (decision.choices.index(choice) for decision, choice in zip(self.training, chosen, strict=True))
        return (*self.architectures.rank(inner), *ranks)

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        return (*self.architectures.posterior_decisions, *self.training)

    def architecture_of_decisions(self, chosen: Mapping[str, str]) -> Architecture:
        inner = self.architectures.architecture_of_decisions(chosen)
        return (*inner, *(chosen[decision.name] for decision in self.training))

    def condition(self, decision: str) -> tuple[str, tuple[str, ...]] | None:
        return None if decision in self._names else self.architectures.condition(decision)

    def check_packages(self) -> None:
        self.architectures.check_packages()

    def encode(self, architecture: Architecture) -> str:
        self.check(architecture)
        inner, chosen = self.parts(architecture)
        described = [f"{name}={choice}" for name, choice in zip(self._names, chosen, strict=True)]
        return SEPARATOR.join([self.architectures.encode(inner), *described])

    def decode(self, text: str) -> Architecture:
        inner, choices = split_training(text, self._names)
        architecture = (*self.architectures.decode(inner), *choices.values())
        self.check(architecture)
        return architecture

    def check(self, architecture: Architecture) -> None:
        inner, chosen = self.parts(architecture)
        self.architectures.check(inner)
        for decision, choice in zip(self.training, chosen, strict=True):
            if choice not in decision.choices:
                raise InvalidArchitecture(
                    f"expected one of {', '.join(decision.choices)} for {decision.name}, got {choice!r}"
                )

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(decision.name for decision in self.training)


def split_training(text: str, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Splits the string of a `JointSpace` into the string of the architecture and the choices by name.

    The parts are counted from the end, so that the string of an architecture may contain the separator.

    Args:
        names: Names of the training decisions in order; without names, `text` is the string of the architecture.

    Raises: InvalidArchitecture for another string.
    """
    if not names:
        return text, {}
    inner, *parts = text.rsplit(SEPARATOR, len(names))
    choices = dict(part.partition("=")[::2] for part in parts)
    if list(choices) != list(names):
        form = SEPARATOR.join(["ARCHITECTURE", *(f"{name}=VALUE" for name in names)])
        raise InvalidArchitecture(f"expected {form}, got {text!r}")
    return inner, choices
