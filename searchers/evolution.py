"""Aging evolution. Real et al. 2019 (AmoebaNet), Algorithm 1; for ensembles NES-RE, Zaidi et al. 2021, Algorithm 2."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, ClassVar, Unpack

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import SearcherOptions, check_whole_number
from archray.searchers.base import Proposal
from archray.searchers.config_space import SpaceSource, without_seed
from archray.searchers.ledger import Record
from archray.searchers.space_search import SpaceSearch, check_population

POPULATION, SAMPLE_SIZE = 100, 25  # P and S; Real et al. 2019, section 3.3

Parents = Callable[[Sequence[Mapping[str, Any]]], Sequence[int]]


class RegularizedEvolution(SpaceSearch):
    """Aging evolution: each suggestion is a mutation of a good architecture of a young population.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric; the entries that `keep` lists.
    Takes: a space, a dict of Tune domains, or a custom space object.

    Each suggestion k follows Algorithm 1 of the paper with the results of suggestions 1 to k - q:
    1. The first P architectures are drawn uniformly from the space. They are the population.
    2. S members of the population are drawn with replacement. The best of them is the parent.
    3. The child, a mutation of the parent, is suggested. When it has a result, it joins the population and the oldest
       member leaves, even if that member is good.
    With `parents`, step 2 draws the parent uniformly from the members that `parents` selects. NES-RE (Zaidi et al.
    2021) selects the best ensemble that forward selection finds in the population.

    Deviations from the paper: The space defines the mutation, which changes one decision and has no identity. The child
    is mutated again while it is another spelling of its parent. With q > 1 the q - 1 newest results are left out, since
    their order is not reproducible. A trial without a value does not join the population; if it is among the first P,
    another random one replaces it. Architectures may be suggested again with another seed.

    Args:
        space: see `SpaceSearch`. A mutation of a dict of Tune domains draws another value for one key.
        budget: the number of training runs; larger than the population.
        population: P.
        sample_size: S. 1 disables selection.
        parents: a picklable pure function from the population to the positions of possible parents, at least one. The
            population is a list, oldest first, of dictionaries with `number`, `architecture` (or the keys of the
            config), `value` (of the metric) and the entries of `keep`.
        keep: entries of a trial's result for `parents`, JSON-able and short: a path instead of large data.
        points_to_evaluate: `{"architecture"}`, or configs, to suggest first; they count in the budget and in the
            population.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: see `SpaceSearch`.

    Example:
        ```python
        domains = {"width": tune.choice([16, 32, 64]), "lr": tune.loguniform(1e-3, 1)}
        search = RegularizedEvolution(
            domains, budget=40, population=10, sample_size=5, metric="accuracy", mode="max"
        )
        drive(search, lambda config: config["width"] - config["lr"])
        print(search.best())
        ```
    """

    mutates: ClassVar[bool] = True
    identity_fields: ClassVar[tuple[str, ...]] = ("population", "sample_size")

    def __init__(
        self,
        space: SpaceSource,
        budget: int,
        population: int = POPULATION,
        sample_size: int = SAMPLE_SIZE,
        parents: Parents | None = None,
        keep: Sequence[str] = (),
        **options: Unpack[SearcherOptions],
    ) -> None:
        check_population(population, budget)
        check_whole_number("sample_size", sample_size)
        self.population = int(population)
        self.sample_size = int(sample_size)
        self.parents = parents
        self.result_keys = tuple(keep)  # type: ignore[misc]  # of this searcher
        super().__init__(space, budget, **options)

    def propose(self, number: int) -> Proposal:
        rng = self.rng("regularized-evolution", number)
        records = self.usable_records(number)
        failed = sum(record.value is None for record in records.values())
        expected_size = len(self.records()) - failed  # assumes that the trials in flight will join
        alive = self._alive(records)
        if expected_size < self.population or not alive:
            return self._space.sample(rng)
        return self._space.mutate(self._parent(alive, rng), rng)

    def _alive(self, records: Mapping[int, Record]) -> list[Record]:
        """The P youngest records with a value, oldest first; external evaluations are older than suggestions."""
        numbers = sorted(records)  # external evaluations have negative numbers, the youngest has the lowest
        first = bisect_right(numbers, 0)
        youngest = chain(reversed(numbers[first:]), numbers[:first])
        valued = (records[number] for number in youngest if records[number].value is not None)
        return list(islice(valued, self.population))[::-1]

    def _parent(self, alive: Sequence[Record], rng: np.random.Generator) -> dict[str, Any]:
        """Returns the config to mutate."""
        if self.parents is None:
            losses = [loss for record in alive if (loss := self.loss(record)) is not None]  # all have one
            sample = rng.integers(len(alive), size=self.sample_size)  # (S,)
            parent = alive[min(sample, key=lambda place: (losses[place], place))]
        else:
            members = [
                {**record.result, **without_seed(record.config), "number": record.number, "value": record.value}
                for record in alive
            ]
            places = self.parents(members)
            if not len(places):
                raise InvalidInput(f"Expected parents to return at least one of {len(alive)} positions, got none")
            parent = alive[places[int(rng.integers(len(places)))]]
        return without_seed(parent.config)

    def search_identity(self) -> dict[str, Any]:
        name = None if self.parents is None else getattr(self.parents, "__name__", type(self.parents).__name__)
        return super().search_identity() | {"parents": name}
