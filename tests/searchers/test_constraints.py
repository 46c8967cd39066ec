"""Constraints: the syntax of their texts, the violation of costs, and constraints that contradict each other."""

from __future__ import annotations

import math

import pytest

from archray.errors import InvalidInput
from archray.trainables.spaces.constrained_space import Constraint, costs_named, parse_constraints, violation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency_ms <= 5", Constraint("latency_ms", "<=", 5.0)),
        (" parameters<1.5M ", Constraint("parameters", "<", 1.5e6)),
        ("peak_memory <= 256 Ki", Constraint("peak_memory", "<=", 2.0**18)),
        ("flops > 1e7", Constraint("flops", ">", 1e7)),
        ("own.py:energy >= -2", Constraint("own.py:energy", ">=", -2.0)),
    ],
)
def test_texts(text: str, expected: Constraint) -> None:
    assert Constraint.parse(text) == expected
    assert Constraint.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text", ["latency_ms", "latency_ms = 5", "<= 5", "a <= b", "a <= nan", "a <= 5 <= 6", "5 <= a"]
)
def test_other_texts_raise_an_error(text: str) -> None:
    with pytest.raises(InvalidInput, match="expected a constraint with a cost, one of"):
        Constraint.parse(text)


def test_a_unit_is_not_a_suffix() -> None:
    with pytest.raises(InvalidInput, match="in the unit of the cost"):
        Constraint.parse("latency_ms <= 5 ms")


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("c <= 4", 4.0, 0.0),
        ("c <= 4", 5.0, 0.25),
        ("c < 4", 4.0, math.ulp(0.0)),
        ("c >= 4", 3.0, 0.25),
        ("c > -2", -3.0, 0.5),
        ("c <= 0", 3.0, 3.0),
        ("c <= 4", math.nan, math.inf),
        ("own.py:c <= 4", 6.0, 0.5),
    ],
)
def test_violations_are_fractions_of_the_bound(text: str, value: float, expected: float) -> None:
    assert Constraint.parse(text).violation({"c": value}) == expected


def test_several() -> None:
    constraints = parse_constraints("a <= 4, b >= 2, a >= 1")
    assert costs_named(constraints) == ("a", "b")
    assert violation(constraints, {"a": 5.0, "b": 1.0}) == 0.75
    assert violation(constraints, {"a": 1.0, "b": 2.0}) == 0.0
    assert violation((), {}) == 0.0
    with pytest.raises(InvalidInput, match="expected the cost b, got a"):
        violation(constraints, {"a": 1.0})


@pytest.mark.parametrize("texts", [["a <= 4", "a >= 5"], ["a < 4", "a >= 4"], ["a > 4", "a <= 4"]])
def test_contradicting_constraints_raise_an_error(texts: list[str]) -> None:
    with pytest.raises(InvalidInput, match="contradict each other"):
        parse_constraints(texts)


def test_a_repeated_constraint_raises_an_error() -> None:
    with pytest.raises(InvalidInput, match="twice"):
        parse_constraints(["a <= 4", "a<=4.0"])
