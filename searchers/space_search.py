"""Base classes of searchers over a space, over categorical decisions and over a pool; and random search."""

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

NOT_READ = -1  # a decision whose choice cannot be derived from the config of an external evaluation


class SpaceSearch(ArchraySearcher):
    """Base class of searchers that suggest configs of a space, each with a `seed`.

    Args:
        space: the source of configs. A space, its name or its reference gives `{"architecture"}`. A dict of Tune
            domains, `{"width": tune.choice([16, 32])}`, gives its keys. A custom object with `sample(rng) -> config`
            and `mutate(config, rng) -> config` gives its configs. Searchers without mutations also take a list of
            candidates (strings).
        budget: the number of training runs.
        points_to_evaluate: `{"architecture"}`, or configs, to suggest first; they count in the budget.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidInput for an invalid argument, InvalidArchitecture for a point outside of the space.
    """

    mutates: ClassVar[bool] = False  # whether the searcher mutates configs
    repeats: ClassVar[bool] = True  # whether it may suggest a config more than once

    def __init__(self, space: SpaceSource | Sequence[str], budget: int, **options: Unpack[SearcherOptions]) -> None:
        self._space = config_space(space)
        super().__init__(budget=budget, **options)
        self.prepare()

    def prepare(self) -> None:
        self._space.prepare()
        if self.mutates:
            self._space.check_mutable()

    def suggested_keys(self) -> set[str]:
        """Returns the keys of all suggested configs and external evaluations."""
        return {self._space.key(record.config) for record in self.records()}

    def new_config(self, rng: np.random.Generator) -> Config | None:
        """Returns a random config that was not suggested before; None if there is none."""
        keys = self.suggested_keys()
        return next((config for config in self._space.draws(rng) if self._space.key(config) not in keys), None)

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        return self._space.check_point(point)

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        return dict(point) if self.repeats or self._space.key(point) not in self.suggested_keys() else None

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | self._space.identity()


def check_population(population: int, budget: int) -> None:
    """Raises: InvalidInput unless both are positive integers and the budget is larger than the population."""
    check_whole_number("population", population)
    check_whole_number("budget", budget)
    if budget <= population:
        raise InvalidInput(
            f"budget: expected more than the population ({population} random configs), got {budget}. "
            "Lower population, or use RandomSearch."
        )


class RandomSearch(SpaceSearch):
    """Random search over a space; it suggests each canonical form at most once.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric.
    Takes: a space, a list of candidates, a dict of Tune domains, or a custom space object.

    Suggestion k depends only on the seed and on k, so it never waits for results. The searcher draws an architecture
    uniformly from the space and reduces it to its canonical form. So a form with many spellings is drawn more often.
    The candidates of a list are equally likely.

    Args:
        space: see `SpaceSearch`; candidates of a list are canonical strings.
        budget, points_to_evaluate: see `SpaceSearch`.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: see `SpaceSearch`.

    Example:
        ```python
        search = RandomSearch("nasbench201", budget=20, metric="accuracy", mode="max")
        tune.Tuner(train, tune_config=tune.TuneConfig(search_alg=search, num_samples=-1)).fit()
        print(search.best())
        ```
    """

    depends_on_results: ClassVar[bool] = False
    repeats: ClassVar[bool] = False

    def propose(self, number: int) -> Proposal:
        return self.new_config(self.rng("random-search", number))


class DecisionSearch(SpaceSearch):
    """Base class of searchers that suggest a choice for each of D decisions.

    Args:
        space: a space of categorical decisions, its name or reference; a dict of `tune.choice` and `tune.randint`; a
            list of names; or a custom object with `sample`, `mutate` and `decisions`, a dictionary from each key of a
            config to the list of its values.
        budget, points_to_evaluate: see `SpaceSearch`.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidInput for an invalid argument, such as a continuous domain; InvalidArchitecture for a point outside
    of the space.
    """

    def __init__(self, space: SpaceSource | Sequence[str], budget: int, **options: Unpack[SearcherOptions]) -> None:
        self._places: dict[int, list[int]] = {}  # by number: the indices of the drawn choices, (D,)
        super().__init__(space, budget, **options)

    @cached_property
    def choices(self) -> dict[str, list[Any]]:
        """The values of each decision, by its name."""
        return self._space.choices()

    @property
    def sizes(self) -> list[int]:
        """(D,) the number of choices of each decision."""
        return [len(choices) for choices in self.choices.values()]

    def prepare(self) -> None:
        super().prepare()
        _ = self.choices

    def config_of(self, places: IntArray) -> dict[str, Any] | None:
        """Returns the config of (D,) indices of choices; None if the space does not contain it."""
        values = zip(self.choices.items(), places, strict=True)
        return self._space.config_of({name: choices[place] for (name, choices), place in values})

    def places(self, number: int, config: Mapping[str, Any]) -> IntArray:
        """Returns the (D,) indices of a trial's choices: as they were drawn, or else as derived from its config."""
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
    """Base class of searchers that suggest `{"architecture", "seed"}`, each architecture of a pool at most once.

    Args:
        pool: path or URI of a table with the column `architecture`, one row per canonical form.
        budget: the number of training runs.
        points_to_evaluate: `{"architecture"}` to suggest first; they count in the budget.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other invalid argument.
    """

    opened: ClassVar[tuple[str, ...]] = ("pool", "_rows")

    def __init__(self, pool: str | Path, budget: int | None, **options: Unpack[SearcherOptions]) -> None:
        self._file = PoolFile.of(pool)
        super().__init__(budget=budget, **options)
        self.prepare()

    @cached_property
    def pool(self) -> Any:
        """The rows of the pool, with the list `architectures`; read again after unpickling. Raises: InvalidPool."""
        raise NotImplementedError

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.pool.architectures)}

    def prepare(self) -> None:
        _ = self.pool

    def suggested_numbers(self) -> dict[str, int]:
        """Returns the number of the first record of each architecture, external evaluations included."""
        numbers: dict[str, int] = {}
        for record in self.records():
            numbers.setdefault(record.config["architecture"], record.number)
        return numbers

    def suggested_rows(self) -> BoolArray:
        """Returns a mask (n,) that is True for suggested rows and external evaluations."""
        suggested = np.zeros(len(self._rows), dtype=bool)
        suggested[[self._rows[name] for name in self.suggested_numbers() if name in self._rows]] = True
        return suggested

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        name = point.get("architecture")
        if name not in self._rows:
            raise InvalidInput(f"Expected a point whose architecture is in the pool, got {point!r}")
        return {"architecture": name}

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        return None if point["architecture"] in self.suggested_numbers() else dict(point)

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {"pool": self._file.checksum}
