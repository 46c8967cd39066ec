"""Constraints on costs, such as `latency_ms <= 5`, and the architectures of a space that meet them."""

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

    Attributes:
        cost: Name of the cost, or a reference to a custom one.
        relation: Relation of the cost to the bound.
        bound: Finite bound, in the unit of the cost.

    Raises: InvalidInput.
    """

    cost: str
    relation: Relation
    bound: float

    def __post_init__(self) -> None:
        if not self.cost or self.relation not in RELATIONS or not math.isfinite(self.bound):
            raise InvalidInput(
                f"expected a constraint with {EXAMPLE}; got {self.cost!r} {self.relation} {self.bound!r}"
            )

    @classmethod
    def parse(cls, text: str) -> "Constraint":
        """Parses `NAME <= NUMBER`. The suffixes k, M, G mean thousands to billions; Ki, Mi, Gi mean powers of 1024.

        Raises: InvalidInput for another text.
        """
        match = TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidInput(f"expected a constraint with {EXAMPLE}; got {text!r}")
        suffix = match["suffix"]
        if suffix not in SUFFIXES:
            raise InvalidInput(
                f"{text!r}: expected a number with no suffix or one of {', '.join(name for name in SUFFIXES if name)}, "
                f"got {suffix!r}. Give the bound in the unit of the cost"
            )
        return cls(match["cost"], cast(Relation, match["relation"]), float(match["number"]) * SUFFIXES[suffix])

    @property
    def column(self) -> str:
        """The cost's column in a table; for a reference, `path.py:name`, the name."""
        return self.cost.rpartition(":")[2]

    def violation(self, costs: Mapping[str, float]) -> float:
        """Returns the excess of a cost over the bound, relative to the bound; 0 if it is met, infinite for NaN.

        For a bound of zero, the excess itself. For a cost equal to the bound of `<` or `>`, the smallest positive
        float.

        Args:
            costs: Costs by column.

        Raises: InvalidInput if `costs` does not contain the cost.
        """
        if self.column not in costs:
            raise InvalidInput(f"{self}: expected the cost {self.column}, got {', '.join(costs) or 'none'}")
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
    """Parses constraints from several texts, or from one text separated by commas.

    Raises: InvalidInput for an invalid text, a duplicate, or two constraints that contradict each other.
    """
    constraints = tuple(Constraint.parse(text) for text in (texts.split(",") if isinstance(texts, str) else texts))
    for first, second in itertools.combinations(constraints, 2):
        _check_pair(first, second)
    return constraints


def violation(constraints: Sequence[Constraint], costs: Mapping[str, float]) -> float:
    """Sums the constraints' violations; 0 if all are met."""
    return sum((constraint.violation(costs) for constraint in constraints), 0.0)


def costs_named(constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """Returns the distinct costs that constraints bound, in order."""
    return tuple(dict.fromkeys(constraint.cost for constraint in constraints))


def _check_pair(first: Constraint, second: Constraint) -> None:
    """Raises: InvalidInput if the two contradict each other, or are equal."""
    if first == second:
        raise InvalidInput(f"expected distinct constraints, got '{first}' twice. Give it once")
    above = {">=", ">"}
    if first.column != second.column or (first.relation in above) == (second.relation in above):
        return
    low, high = (first, second) if first.relation in above else (second, first)
    strict = ">" in (low.relation, high.relation) or "<" in (low.relation, high.relation)
    if low.bound > high.bound or (low.bound == high.bound and strict):
        raise InvalidInput(
            f"expected constraints that do not contradict each other, got '{first}' and '{second}'; change a bound"
        )


def even_architectures(space: Space) -> list[Architecture]:
    """Returns the canonical architectures that take choice i of every decision, or the last if there are fewer.

    Before them come the smallest and the largest architecture if the space can name them.

    They have one operation on every edge, or the smallest or largest value of every size. The cheapest and the most
    expensive architectures are therefore among them or near. Architectures that a space does not contain, such as a
    table without their row, are left out.
    """
    most = max((len(decision.choices) for decision in space.decisions), default=0)
    forms: dict[Architecture, None] = {}
    even = (
        tuple(decision.choices[min(number, len(decision.choices) - 1)] for decision in space.decisions)
        for number in range(most)
    )
    for choices in (*space.extremes, *even):
        try:
            space.check(choices)
            forms[space.canonical(choices)] = None
        except InvalidArchitecture:
            continue
    return list(forms)


DRAWS = 100  # rejected random draws before the nearest of them is repaired
REPAIRS = 500  # mutations that a repair tries
PATIENCE = 100  # consecutive mutations without improvement, after which a repair stops
NEAR_END = 40  # the same for a walk from an end of the space, which starts near its goal
FAR = 10.0  # violation, relative to the bound, above which an error gives no percentage
DIGITS = 4  # significant digits of the violation in an error


class ConstrainedSpace(Space):
    """Architectures of another space that meet constraints, with its strings, decisions and canonical forms.

    A draw that violates the constraints is rejected. After 100 rejected draws, the draw with the smallest violation is
    repaired. A mutation that violates them is repaired too: it is mutated again, without steps that increase the
    violation, until the constraints are met. If no mutation meets them, the result is the parent. `size` is the size of
    the whole space.

    Args:
        space: The whole space.
        violation: Function from the string of a canonical form to its violation, 0 or more; infinite without costs. It
            must pickle, and return the same in a resumed run. Its optional attribute `one_sided` is true if all its
            bounds are upper bounds, or all lower bounds.
        description: Text of the constraints.
    """

    def __init__(self, space: Space, violation: Callable[[str], float], description: str) -> None:
        self.unconstrained, self.violation, self.description = space, violation, description
        self.name = f"{space.name}, {description}"  # type: ignore[misc]  # differs between instances
        self.kind, self.data_kind = space.kind, space.data_kind  # type: ignore[misc]
        self.decisions = space.decisions

    def violation_of(self, architecture: Architecture) -> float:
        """Returns the violation of the constraints; 0 if they are met."""
        space = self.unconstrained
        return self.violation(space.encode(space.canonical(architecture)))

    def meets(self, architecture: Architecture) -> bool:
        return self.violation_of(architecture) == 0.0

    def repair(self, architecture: Architecture, rng: np.random.Generator, patience: int = PATIENCE) -> Architecture:
        """Returns the first architecture on a walk of mutations that meets the constraints, starting with itself.

        A mutation with a larger violation is no step. If none of 500 mutations meets them, or `patience` consecutive
        ones bring no improvement, the result is the last step, which has the smallest violation.
        """
        violation = self.violation_of(architecture)
        idle = 0  # mutations since the last improvement
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
        """Returns an architecture that meets the constraints, or the nearest one, starting at the ends.

        Candidates are `even_architectures` and the mutations of the nearest of them. None if there are no candidates.
        """
        nearest, violation = self._nearest(even_architectures(self.unconstrained))
        if nearest is None or violation == 0.0 or not self._mutable:
            return nearest
        return self.repair(nearest, rng, NEAR_END)

    def _nearest(self, architectures: Iterable[Architecture]) -> tuple[Architecture | None, float]:
        """Returns the first that meets the constraints, else the one with the smallest violation, and its violation."""
        nearest, least = None, math.inf
        for architecture in architectures:
            violation = self.violation_of(architecture)
            if nearest is None or violation < least:
                nearest, least = architecture, violation
            if violation == 0.0:
                break
        return nearest, least

    def check_met(self, rng: np.random.Generator) -> None:
        """Raises: InvalidInput, with the violation of the nearest, if no architecture that meets them is found.

        If all bounds are upper bounds, or all lower bounds, it tries only the cheapest and the most expensive
        architectures and the walks from there.
        """
        nearest = self.from_the_ends(rng)
        if nearest is not None and self.meets(nearest):
            return
        if nearest is None or not getattr(self.violation, "one_sided", False):
            self.sample(rng)
            return
        raise InvalidInput(self.not_met(nearest, "those with the same choice in every decision"))

    # The interface of a space --------------------------------------------------------------------------------------

    @property
    def size(self) -> int | float:
        return self.unconstrained.size

    def sample(self, rng: np.random.Generator) -> Architecture:
        """Draws an architecture. Raises: InvalidInput, with the violation of the nearest, if none is found."""
        nearest, violation = self._nearest(self.unconstrained.sample(rng) for _ in range(DRAWS))
        assert nearest is not None  # there was at least one draw
        if violation == 0.0:
            return nearest
        repaired = self.repair(nearest, rng) if self._mutable else nearest
        if self.meets(repaired):
            return repaired
        other = self.from_the_ends(rng)
        if other is not None and self.meets(other):
            return other
        raise InvalidInput(self.not_met(repaired, f"{count(DRAWS, 'random architecture')}"))

    def not_met(self, nearest: Architecture, which: str) -> str:
        """Returns the error text with the nearest architecture, for constraints that nothing meets."""
        space = self.unconstrained
        name = space.encode(space.canonical(nearest))
        describe = getattr(self.violation, "describe", None)
        costs = f" has {describe(name)}" if describe else ""
        violation = self.violation_of(nearest)
        beyond = "far beyond" if violation > FAR else f"{100 * violation:.{DIGITS}g} % beyond"
        beyond = "its costs are unknown" if math.isinf(violation) else beyond
        return (
            f"found no architecture of {space.name} that meets {self.description}; tried {which}, and their mutations; "
            f"the nearest, {name},{costs} ({beyond}); loosen the constraint, or choose another space or network"
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
        """Raises: InvalidArchitecture for an architecture that violates the constraints."""
        architecture = self.unconstrained.architecture_of_decisions(chosen)
        if not self.meets(architecture):
            raise InvalidArchitecture(
                f"expected an architecture that meets {self.description}, got {self.unconstrained.encode(architecture)}"
            )
        return architecture

    @property
    def rows_of_decisions(self) -> IntArray | None:
        """Like `TableSpace.rows_of_decisions`, for the rows that meet the constraints."""
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
