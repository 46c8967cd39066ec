"""Constraints on what an architecture costs, read from text: `latency_ms <= 5`, `parameters < 1.5M`."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from archray.errors import InvalidInput

Relation = Literal["<=", "<", ">=", ">"]
RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}
SUFFIXES: Mapping[str, float] = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9} | {
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
}
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
        """`NAME <= NUMBER`; after the number k, M, G are thousands to billions, Ki, Mi, Gi powers of 1024.

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
        """What the cost is called in a table: of a reference, `path.py:name`, the name."""
        return self.cost.rpartition(":")[2]

    def violation(self, costs: Mapping[str, float]) -> float:
        """By how much a cost is beyond the bound, as a part of the bound; 0 where it is met, infinite of a NaN.

        Of a bound of zero the excess itself. Met exactly where `<` or `>` stands it is the least number above 0.

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
    """Of several texts, or of one in which they stand after each other, separated by commas.

    Raises: InvalidInput for a text that is none, one that comes twice, or two that nothing can meet.
    """
    listed = texts.split(",") if isinstance(texts, str) else list(texts)
    constraints = tuple(Constraint.parse(text) for text in listed)
    for number, constraint in enumerate(constraints):
        for other in constraints[:number]:
            _check_pair(other, constraint)
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
