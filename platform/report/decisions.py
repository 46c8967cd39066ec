"""The decisions of a found architecture, as its cell or its table shows them."""

from __future__ import annotations

from dataclasses import dataclass

from archray.trainables.spaces.feature_map import FeatureMapSpace, spelling
from archray.trainables.spaces.space import Space


@dataclass(frozen=True)
class Decided:
    """One decision of the found architecture: its name, what was chosen, and what there was to choose from.

    Args:
        bounds: of a constant, the range it was drawn from; it has no `choices`.
    """

    name: str
    choice: str
    choices: tuple[str, ...]
    bounds: tuple[float, float] | None = None


def decided(space: Space, architecture: str) -> tuple[Decided, ...]:
    """The decisions of `architecture`, a string of `space`; a feature map's constant is the last of them.

    A constant that makes no difference to this map is `unused`.

    Raises: InvalidArchitecture.
    """
    chosen = space.decode(architecture)
    if not isinstance(space, FeatureMapSpace):
        return tuple(Decided(d.name, c, d.choices) for d, c in zip(space.decisions, chosen, strict=True))
    *choices, value = chosen
    constant = space.constant
    ends = {space.canonical((*choices, spelling(end))) for end in (constant.low, constant.high)}
    if len(ends) == 1:
        last = Decided(constant.name, "unused", ())
    else:
        last = Decided(constant.name, value, (), (constant.low, constant.high))
    return (*(Decided(d.name, c, d.choices) for d, c in zip(space.decisions, choices, strict=True)), last)
