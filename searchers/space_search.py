"""What searchers over categorical decisions share: the choices, where each trial's stand among them, and the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from ray.tune.search.sample import Domain

from archray.searchers.arguments import IntArray, SearcherOptions
from archray.searchers.base import ArchraySearcher
from archray.searchers.config_space import OwnSpace, config_space
from archray.trainables.spaces import Space

NOT_READ = -1  # a decision of an architecture handed over that cannot be read off it


class DecisionSearch(ArchraySearcher):
    """Base of searchers that suggest a choice for each of D decisions.

    Args: see `ReinforceSearch`.
    """

    def __init__(
        self,
        space: str | Space | Mapping[str, Domain] | Sequence[str] | OwnSpace,
        budget: int,
        **options: Unpack[SearcherOptions],
    ) -> None:
        self._space = config_space(space)
        self._drawn: dict[int, list[int]] = {}  # by number: the places of the choices that were drawn, (D,)
        super().__init__(budget=budget, **options)
        self.prepare()

    @cached_property
    def choices(self) -> dict[str, list[Any]]:
        """The values of each decision, by its name."""
        return self._space.choices()

    @property
    def sizes(self) -> list[int]:
        """(D,) how many choices each decision has."""
        return [len(choices) for choices in self.choices.values()]

    def prepare(self) -> None:
        self._space.prepare()
        _ = self.choices

    # What a subclass uses ------------------------------------------------------------------------------------------

    def chosen(self, places: IntArray) -> dict[str, Any] | None:
        """The config of (D,) places of choices; None if the space has none."""
        values = zip(self.choices.items(), places, strict=True)
        return self._space.chosen({name: choices[place] for (name, choices), place in values})

    def places(self, number: int, config: Mapping[str, Any]) -> IntArray:
        """(D,) the places of the choices of one trial: as they were drawn, or as they can be read off its config."""
        if number in self._drawn:
            return np.array(self._drawn[number])
        values = self._space.choices_of(config)
        decisions = self.choices.items()
        return np.array([c.index(values[n]) if n in values and values[n] in c else NOT_READ for n, c in decisions])

    # Points of the user's, and state -------------------------------------------------------------------------------

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        return self._space.check_point(point)

    def own_identity(self) -> dict[str, Any]:
        return self._space.identity()

    def own_state(self) -> dict[str, Any]:
        return {"drawn": [[number, *places] for number, places in self._drawn.items()]}

    def set_own_state(self, state: dict[str, Any]) -> None:
        self._drawn = {number: places for number, *places in state.get("drawn", ())}
