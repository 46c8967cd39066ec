"""Base classes of the searchers over a space, over categorical decisions and over a pool; random search."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import BoolArray, IntArray, SearcherOptions, check_whole_number
from archray.searchers.base import ArchraySearcher, Proposal
from archray.searchers.config_space import Config, SpaceSource, config_space
from archray.searchers.pool_file import PoolFile

NOT_READ = -1  # a decision that cannot be read off an architecture handed over


class SpaceSearch(ArchraySearcher):
    """Base of searchers that suggest configs of a space, each with a `seed`.

    Args:
        space: a space, its name or reference: they suggest `{"architecture"}`. A dict of Tune domains,
            `{"width": tune.choice([16, 32])}`: its keys. An object with `sample(rng) -> config` and
            `mutate(config, rng) -> config`: its configs. Where nothing is mutated, also a list of candidates (strings).
        budget: the number of training runs.
        points_to_evaluate: `{"architecture"}`, or configs, suggested first; they count in budget.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidInput for a wrong argument, InvalidArchitecture for a point that the space does not have.
    """

    mutates: ClassVar[bool] = False  # whether the space must have mutations
    repeats: ClassVar[bool] = True  # whether a config may be suggested more than once

    def __init__(self, space: SpaceSource | Sequence[str], budget: int, **options: Unpack[SearcherOptions]) -> None:
        self._space = config_space(space)
        super().__init__(budget=budget, **options)
        self.prepare()

    def prepare(self) -> None:
        self._space.prepare()
        if self.mutates:
            self._space.check_mutable()

    def suggested_keys(self) -> set[str]:
        """The keys of all configs suggested, and of the evaluations handed over."""
        return {self._space.key(record.config) for record in self.records()}

    def new_config(self, rng: np.random.Generator) -> Config | None:
        """A random config that was not suggested before; None if there is none."""
        keys = self.suggested_keys()
        return next((config for config in self._space.draws(rng) if self._space.key(config) not in keys), None)

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        return self._space.check_point(point)

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        return dict(point) if self.repeats or self._space.key(point) not in self.suggested_keys() else None

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | self._space.identity()


def check_population(population: int, budget: int) -> None:
    """Raises: InvalidInput unless both are whole numbers and the budget is above the population."""
    check_whole_number("population", population)
    check_whole_number("budget", budget)
    if budget <= population:
        raise InvalidInput(
            f"budget: expected more than the population, {population}, which is drawn at random, got {budget}; "
            "lower population, or use RandomSearch"
        )


class RandomSearch(SpaceSearch):
    """Random search: each canonical form at most once.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric.
    Takes: a space, a list of candidates, a dict of Tune domains, or an object of yours.

    Suggestion k depends on the seed and on k only, so it never waits for results. An architecture is drawn uniformly
    from the space and brought to its canonical form, so a form with many spellings is drawn more often. The candidates
    of a list are equally likely.

    Args, Raises: see `SpaceSearch`. Candidates are canonical strings.
    """

    depends_on_results: ClassVar[bool] = False
    repeats: ClassVar[bool] = False

    def propose(self, number: int) -> Proposal:
        return self.new_config(self.rng("random-search", number))


class DecisionSearch(SpaceSearch):
    """Base of searchers that suggest a choice for each of D decisions.

    Args:
        space: a space of categorical decisions, its name or reference; a dict of `tune.choice` and `tune.randint`; a
            list of names; or an object with `sample`, `mutate` and `decisions`, a dictionary from each key of a config
            to the list of its values.
        The others: see `SpaceSearch`.

    Raises: InvalidInput for a wrong argument, such as a continuous domain; InvalidArchitecture for a point that the
        space does not have.
    """

    def __init__(self, space: SpaceSource | Sequence[str], budget: int, **options: Unpack[SearcherOptions]) -> None:
        self._places: dict[int, list[int]] = {}  # by number: the places of the choices that were drawn, (D,)
        super().__init__(space, budget, **options)

    @cached_property
    def choices(self) -> dict[str, list[Any]]:
        """The values of each decision, by its name."""
        return self._space.choices()

    @property
    def sizes(self) -> list[int]:
        """(D,) how many choices each decision has."""
        return [len(choices) for choices in self.choices.values()]

    def prepare(self) -> None:
        super().prepare()
        _ = self.choices

    def config_of(self, places: IntArray) -> dict[str, Any] | None:
        """The config of (D,) places of choices; None if the space has none."""
        values = zip(self.choices.items(), places, strict=True)
        return self._space.config_of({name: choices[place] for (name, choices), place in values})

    def places(self, number: int, config: Mapping[str, Any]) -> IntArray:
        """(D,) the places of the choices of one trial: as they were drawn, or else as read off its config."""
        if number in self._places:
            return np.array(self._places[number])
        values = self._space.choices_of(config)
        decisions = self.choices.items()
        return np.array([c.index(values[n]) if n in values and values[n] in c else NOT_READ for n, c in decisions])

    def search_state(self) -> dict[str, Any]:
        return {"places": [[number, *places] for number, places in self._places.items()]}

    def set_search_state(self, state: dict[str, Any]) -> None:
        self._places = {number: places for number, *places in state.get("places", ())}


class PoolSearch(ArchraySearcher):
    """Base of searchers that suggest `{"architecture", "seed"}`, each architecture of a pool at most once.

    Args:
        pool: path or URI of a table with the column `architecture`, one row per canonical form.
        budget: the number of training runs.
        points_to_evaluate: `{"architecture"}`, suggested first; they count in budget.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other argument.
    """

    opened: ClassVar[tuple[str, ...]] = ("pool", "_rows")

    def __init__(self, pool: str | Path, budget: int | None, **options: Unpack[SearcherOptions]) -> None:
        self._file = PoolFile.of(pool)
        super().__init__(budget=budget, **options)
        self.prepare()

    @cached_property
    def pool(self) -> Any:
        """The rows, with the list `architectures`; read again after unpickling. Raises: InvalidPool."""
        raise NotImplementedError

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.pool.architectures)}

    def prepare(self) -> None:
        _ = self.pool

    def suggested_numbers(self) -> dict[str, int]:
        """The number of the first record of each architecture suggested or handed over, in flight or not."""
        numbers: dict[str, int] = {}
        for record in self.records():
            numbers.setdefault(record.config["architecture"], record.number)
        return numbers

    def suggested_rows(self) -> BoolArray:
        """(n,) True for the rows suggested or handed over."""
        suggested = np.zeros(len(self._rows), dtype=bool)
        suggested[[self._rows[name] for name in self.suggested_numbers() if name in self._rows]] = True
        return suggested

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        name = point.get("architecture")
        if name not in self._rows:
            raise InvalidInput(f"expected a point with architecture, one of the pool's, got {point!r}")
        return {"architecture": name}

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        return None if point["architecture"] in self.suggested_numbers() else dict(point)

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {"pool": self._file.checksum}
