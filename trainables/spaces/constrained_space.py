"""Constraints on costs, `latency_ms <= 5`, and the architectures of a space that meet them."""

import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from archray.errors import InvalidArchitecture, InvalidInput
from archray.plurals import count
from archray.trainables.spaces.encodings import IntArray
from archray.trainables.spaces.space import Architecture, Decision, Space

Relation = Literal["<=", "<", ">=", ">"]
RELATIONS = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}
SUFFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
TEXT = re.compile(
    r"\s*(?P<cost>[^<>=]+?)\s*(?P<relation><=|>=|<|>)\s*(?P<number>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)"
    r"\s*(?P<suffix>[A-Za-z]*)\s*"
)
EXAMPLE = "a cost, one of <= < >= >, and a number: 'latency_ms <= 5', 'parameters < 1.5M'"


@dataclass(frozen=True)
class Constraint:
    """A bound on one cost.

    Args:
        cost: its name, or a reference to the user's own.
        relation: of the cost to the bound.
        bound: finite, in the cost's own unit.

    Raises: InvalidInput.
    """

    cost: str
    relation: Relation
    bound: float

    def __post_init__(self) -> None:
        if not self.cost or self.relation not in RELATIONS or not math.isfinite(self.bound):
            raise InvalidInput(f"expected a constraint of {EXAMPLE}; got {self.cost!r} {self.relation} {self.bound!r}")

    @classmethod
    def parse(cls, text: str) -> "Constraint":
        """`NAME <= NUMBER`; k, M, G after the number are thousands to billions, Ki, Mi, Gi powers of 1024.

        Raises: InvalidInput for another text.
        """
        match = TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidInput(f"expected a constraint of {EXAMPLE}; got {text!r}")
        suffix = match["suffix"]
        if suffix not in SUFFIXES:
            raise InvalidInput(
                f"{text!r}: expected a number with one of {', '.join(name for name in SUFFIXES if name)} behind it, or "
                f"nothing, got {suffix!r}; a bound is in the cost's own unit"
            )
        return cls(match["cost"], cast(Relation, match["relation"]), float(match["number"]) * SUFFIXES[suffix])

    @property
    def column(self) -> str:
        """The cost's column in a table: of a reference, `path.py:name`, the name."""
        return self.cost.rpartition(":")[2]

    def violation(self, costs: Mapping[str, float]) -> float:
        """The excess of a cost over the bound, relative to the bound; 0 if it is met, infinite for a NaN.

        For a bound of zero, the excess itself. For a cost equal to the bound of `<` or `>`, the least number above 0.

        Args:
            costs: by column. Raises: InvalidInput if the cost is not among them.
        """
        if self.column not in costs:
            raise InvalidInput(f"{self}: expected a cost {self.column}, got {', '.join(costs) or 'none'}")
        value = float(costs[self.column])
        if math.isnan(value):
            return math.inf
        if RELATIONS[self.relation](value, self.bound):
            return 0.0
        excess = abs(value - self.bound) / (abs(self.bound) or 1.0)
        return max(excess, math.ulp(0.0))

    def __str__(self) -> str:
        return f"{self.cost} {self.relation} {self.bound:g}"


def parse_constraints(texts: str | Iterable[str]) -> tuple[Constraint, ...]:
    """The constraints in several texts, or in one text, separated by commas.

    Raises: InvalidInput for a text that is none, one that comes twice, or two that nothing can meet.
    """
    constraints = tuple(Constraint.parse(text) for text in (texts.split(",") if isinstance(texts, str) else texts))
    for first, second in itertools.combinations(constraints, 2):
        _check_pair(first, second)
    return constraints


def violation(constraints: Sequence[Constraint], costs: Mapping[str, float]) -> float:
    """The sum of the constraints' violations: 0 if all are met."""
    return sum((constraint.violation(costs) for constraint in constraints), 0.0)


def costs_named(constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """The costs that constraints bound, each once, in their order."""
    return tuple(dict.fromkeys(constraint.cost for constraint in constraints))


def _check_pair(first: Constraint, second: Constraint) -> None:
    """Raises: InvalidInput if nothing meets both, or they are equal."""
    if first == second:
        raise InvalidInput(f"the constraint '{first}' comes twice; give it once")
    above = {">=", ">"}
    if first.column != second.column or (first.relation in above) == (second.relation in above):
        return
    low, high = (first, second) if first.relation in above else (second, first)
    strict = ">" in (low.relation, high.relation) or "<" in (low.relation, high.relation)
    if low.bound > high.bound or (low.bound == high.bound and strict):
        raise InvalidInput(f"nothing meets both '{first}' and '{second}'; change one of the bounds")


def even_architectures(space: Space) -> list[Architecture]:
    """Architecture i takes the choice i of every decision, or its last one where it has fewer; canonical, each once.

    They have one operation on every edge, or the least and the most of every size, so the cheapest and the most
    expensive architectures are among them or near. One that a space lacks, such as a table without its row, is left
    out.
    """
    most = max((len(decision.choices) for decision in space.decisions), default=0)
    forms: dict[Architecture, None] = {}
    for number in range(most):
        choices = tuple(decision.choices[min(number, len(decision.choices) - 1)] for decision in space.decisions)
        try:
            space.check(choices)
            forms[space.canonical(choices)] = None
        except InvalidArchitecture:
            continue
    return list(forms)


DRAWS = 100  # rejected at random before the nearest of them is repaired
REPAIRS = 500  # mutations tried on the way from an architecture that violates to one that does not
PATIENCE = 100  # mutations in a row that bring it no nearer, before the repair stops
NEAR_END = 40  # the same on the walk from an end of the space, which starts near its goal
DIGITS = 4  # significant digits of the violation in an error


class ConstrainedSpace(Space):
    """The architectures of another space whose violation is 0, with its strings, decisions and canonical forms.

    A draw that violates is rejected; after 100 rejected draws, the one that violates least is repaired. A mutation that
    violates is repaired too: mutated again, without the steps that violate more, until one does not violate; if none
    does, the mutation is the parent. `size` is that of the whole space.

    Args:
        space: the whole space.
        violation: string of a canonical form -> by how much it violates, 0 or more; infinite of one that has no costs.
            It must pickle, and return the same in a resumed run. Its optional attribute `one_sided`: whether all its
            bounds are from above, or all from below.
        description: the constraint in words.
    """

    def __init__(self, space: Space, violation: Callable[[str], float], description: str) -> None:
        self.unconstrained, self.violation, self.description = space, violation, description
        self.name = f"{space.name}, {description}"  # type: ignore[misc]  # each has its own
        self.kind, self.data_kind = space.kind, space.data_kind  # type: ignore[misc]
        self.decisions = space.decisions

    def violation_of(self, architecture: Architecture) -> float:
        """By how much it violates the constraint; 0 if it meets it."""
        space = self.unconstrained
        return self.violation(space.encode(space.canonical(architecture)))

    def meets(self, architecture: Architecture) -> bool:
        return self.violation_of(architecture) == 0.0

    def repair(self, architecture: Architecture, rng: np.random.Generator, patience: int = PATIENCE) -> Architecture:
        """The first on a walk of mutations from `architecture` that meets the constraint; itself if it does.

        A mutation that violates more is no step. If none of 500 meets it, or `patience` in a row came no nearer, the
        last step is returned, which violates least.
        """
        violation = self.violation_of(architecture)
        idle = 0  # mutations since the last that violated less
        for _ in range(REPAIRS):
            if violation == 0.0 or idle == patience:
                break
            child = self.unconstrained.mutate(architecture, rng)
            of_child = self.violation_of(child)
            idle = 0 if of_child < violation else idle + 1
            if of_child <= violation:
                architecture, violation = child, of_child
        return architecture

    def from_the_ends(self, rng: np.random.Generator) -> Architecture | None:
        """An architecture that meets the constraint, or the nearest one, among `even_architectures` and the mutations
        of the nearest of them; None if the space has no even architecture.
        """
        nearest, violation = self._nearest(even_architectures(self.unconstrained))
        if nearest is None or violation == 0.0 or not self._mutable:
            return nearest
        return self.repair(nearest, rng, NEAR_END)

    def _nearest(self, architectures: Iterable[Architecture]) -> tuple[Architecture | None, float]:
        """The first that meets the constraint, else the one that violates it least, and its violation."""
        nearest, least = None, math.inf
        for architecture in architectures:
            violation = self.violation_of(architecture)
            if nearest is None or violation < least:
                nearest, least = architecture, violation
            if violation == 0.0:
                break
        return nearest, least

    def check_met(self, rng: np.random.Generator) -> None:
        """Raises: InvalidInput, with the violation of the nearest, if no architecture is found that meets it.

        If all bounds are from above, or all from below, only the cheapest and the most expensive architectures and the
        walks from there are tried.
        """
        nearest = self.from_the_ends(rng)
        if nearest is not None and self.meets(nearest):
            return
        if nearest is None or not getattr(self.violation, "one_sided", False):
            self.sample(rng)
            return
        raise InvalidInput(self.not_met(nearest, "those of one choice throughout"))

    # The interface of a space --------------------------------------------------------------------------------------

    @property
    def size(self) -> int | float:
        return self.unconstrained.size

    def sample(self, rng: np.random.Generator) -> Architecture:
        """Raises: InvalidInput, with the violation of the nearest, if none is found."""
        nearest, violation = self._nearest(self.unconstrained.sample(rng) for _ in range(DRAWS))
        assert nearest is not None  # there was a draw
        if violation == 0.0:
            return nearest
        repaired = self.repair(nearest, rng) if self._mutable else nearest
        if self.meets(repaired):
            return repaired
        other = self.from_the_ends(rng)
        if other is not None and self.meets(other):
            return other
        raise InvalidInput(self.not_met(repaired, f"{count(DRAWS, 'architecture')} drawn at random"))

    def not_met(self, nearest: Architecture, which: str) -> str:
        """The text of the error that nothing meets the constraint, with the nearest architecture."""
        space = self.unconstrained
        name = space.encode(space.canonical(nearest))
        describe = getattr(self.violation, "describe", None)
        costs = f" has {describe(name)}" if describe else ""
        violation = self.violation_of(nearest)
        beyond = "its costs are not known" if math.isinf(violation) else f"{100 * violation:.{DIGITS}g} % beyond"
        return (
            f"nothing meets {self.description}: of the architectures of {space.name}, {which}, and of what mutations "
            f"made of them, the nearest, {name},{costs} ({beyond}); loosen it, or choose another space or network"
        )

    @property
    def _mutable(self) -> bool:
        try:
            self.unconstrained.check_mutable()
        except InvalidInput:
            return False
        return True

    def enumerate(self) -> Iterator[Architecture]:
        return filter(self.meets, self.unconstrained.enumerate())

    def mutate(self, architecture: Architecture, rng: np.random.Generator) -> Architecture:
        child = self.repair(self.unconstrained.mutate(architecture, rng), rng)
        return child if self.meets(child) else architecture

    def mutations(self, architecture: Architecture) -> Iterator[Architecture] | None:
        mutations = self.unconstrained.mutations(architecture)
        return None if mutations is None else filter(self.meets, mutations)

    def check_mutable(self) -> None:
        self.unconstrained.check_mutable()

    def canonical(self, architecture: Architecture) -> Architecture:
        return self.unconstrained.canonical(architecture)

    @property
    def posterior_decisions(self) -> tuple[Decision, ...]:
        return self.unconstrained.posterior_decisions

    def architecture_of_decisions(self, chosen: Mapping[str, str]) -> Architecture:
        """Raises: InvalidArchitecture for one that violates the constraint."""
        architecture = self.unconstrained.architecture_of_decisions(chosen)
        if not self.meets(architecture):
            raise InvalidArchitecture(f"{self.unconstrained.encode(architecture)} does not meet {self.description}")
        return architecture

    @property
    def rows_of_decisions(self) -> IntArray | None:
        """As of `TableSpace`, for the rows that meet the constraint."""
        rows: IntArray | None = getattr(self.unconstrained, "rows_of_decisions", None)
        if rows is None:
            return None
        return rows[[self.meets(architecture) for architecture in self.unconstrained.enumerate()]]

    def condition(self, decision: str) -> tuple[str, tuple[str, ...]] | None:
        return self.unconstrained.condition(decision)

    def encode(self, architecture: Architecture) -> str:
        return self.unconstrained.encode(architecture)

    def decode(self, text: str) -> Architecture:
        return self.unconstrained.decode(text)

    def check(self, architecture: Architecture) -> None:
        self.unconstrained.check(architecture)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConstrainedSpace):
            return False
        return self.unconstrained == other.unconstrained and self.description == other.description

    def __hash__(self) -> int:
        return hash((self.unconstrained, self.description))
