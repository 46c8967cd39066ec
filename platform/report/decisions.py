"""The decisions of an architecture: what was chosen, and what there was to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from archray.platform.report.section import Column, table
from archray.trainables.spaces.feature_map import FeatureMapSpace, spelling
from archray.trainables.spaces.space import Space


@dataclass(frozen=True)
class Decided:
    """One decision of the found architecture: its name, what was chosen, and what there was to choose from."""

    name: str
    choice: str
    choices: tuple[str, ...]
    bounds: tuple[float, float] | None = None  # of a constant, which has no `choices`: the range it was drawn from


def decided(space: Space, architecture: str) -> tuple[Decided, ...]:
    """The decisions of `architecture`, a string of `space`; a feature map's constant is the last of them.

    A constant that makes no difference to this map is `unused`. Raises: InvalidArchitecture.
    """
    chosen = space.decode(architecture)
    decisions = [Decided(d.name, c, d.choices) for d, c in zip(space.decisions, chosen, strict=False)]
    if isinstance(space, FeatureMapSpace):
        low, high = space.constant.low, space.constant.high
        used = len({space.canonical((*chosen[:-1], spelling(end))) for end in (low, high)}) > 1
        value, bounds = (chosen[-1], (low, high)) if used else ("unused", None)
        decisions.append(Decided(space.constant.name, value, (), bounds))
    return tuple(decisions)


def decision_table(decisions: Sequence[Decided]) -> str:
    """Each decision with its choice and the choices it was not."""
    columns = (Column("Decision", "code"), Column("Chosen", "code"), Column("Instead of", "code"))
    rows = []
    for d in decisions:
        others = ", ".join(choice for choice in d.choices if choice != d.choice) or "nothing else"
        rows.append((d.name, d.choice, "any value from {:g} to {:g}".format(*d.bounds) if d.bounds else others))
    return table(columns, rows, label="The decisions of the found architecture")
