"""Ageing evolution. Real et al. 2019 (AmoebaNet), Algorithm 1; for ensembles NES-RE, Zaidi et al. 2021, Algorithm 2."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import SearcherOptions, check_whole_number
from archray.searchers.base import Proposal
from archray.searchers.config_space import SpaceSource, without_seed
from archray.searchers.ledger import Record
from archray.searchers.space_search import SpaceSearch

POPULATION, SAMPLE_SIZE = 100, 25  # P and S; Real et al. 2019, section 3.3

Parents = Callable[[Sequence[Mapping[str, Any]]], Sequence[int]]


class RegularizedEvolution(SpaceSearch):
    """Aging evolution: each suggestion is a mutation of a good young architecture.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric; what `keep` names.
    Takes: a space, a dict of Tune domains, or an object of yours.

    Algorithm 1 of the paper, which each suggestion k follows with the results of suggestions 1 to k - q:
    1. the first P architectures are drawn uniformly from the space; they are the population;
    2. S of the population are drawn with replacement, and the best of them is the parent;
    3. the child, a mutation of the parent, is suggested. With its result it joins the population, and the oldest
       leaves it, however good.
    With `parents`, step 2 draws the parent uniformly from those that `parents` chose. NES-RE (Zaidi et al. 2021)
    chooses the members of the best ensemble that forward selection finds in the population.

    Where this deviates from the paper: a mutation is the space's (one decision changed; there is no identity), and is
    mutated on while it is the network it began as, in another spelling. With q > 1 the q - 1 newest results are left
    out, as the order in which they come is no part of a reproducible run. A trial without a value joins no population:
    one that failed among the first is replaced by a further random one. Architectures may come again: their
    trainings have seeds of their own.

    Args:
        space: see `SpaceSearch`. Of a dict of Tune domains a mutation draws another value for one key.
        budget: the number of trainings, above the population.
        population: P.
        sample_size: S. 1: no selection at all.
        parents: population -> the positions of those that may become parents, at least one, by nothing else than what
            it is given: for each, the oldest first, a dictionary with `number`, `architecture` (or the keys of the
            config), `value` (of the metric) and what `keep` names. It must pickle.
        keep: entries of a trial's result that `parents` looks at, JSON-able and short: of what is large, the place.
        points_to_evaluate: `{"architecture"}`, or configs, suggested first; they count in budget and in the population.
        seed, metric, mode, max_concurrent, asynchronous: see `ArchraySearcher`.

    Raises: see `SpaceSearch`.
    """

    mutates: ClassVar[bool] = True

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
        for name, number in (("population", population), ("sample_size", sample_size), ("budget", budget)):
            check_whole_number(name, number)
        if budget <= population:
            raise InvalidInput(
                f"budget: expected more than the population, {population}, which is drawn at random, got {budget}; "
                "lower population, or use RandomSearch"
            )
        self.population = int(population)
        self.sample_size = int(sample_size)
        self.parents = parents
        self.result_keys = tuple(keep)  # type: ignore[misc]  # of this searcher alone
        super().__init__(space, budget, **options)

    # Algorithm 1 ---------------------------------------------------------------------------------------------------

    def propose(self, number: int) -> Proposal:
        rng = self.rng("regularized-evolution", number)
        records = self.usable_records(number)
        failed = sum(record.value is None for record in records.values())
        expected_size = len(self.records()) - failed  # trials in flight are expected to join
        alive = self._alive(records)
        if expected_size < self.population or not alive:
            return self._space.sample(rng)
        return self._space.mutate(self._parent(alive, rng), rng)

    def _alive(self, records: Mapping[int, Record]) -> list[Record]:
        """The P youngest with a value, the oldest first; what was handed over is older than what was suggested."""
        valued = [record for record in records.values() if record.value is not None]
        valued.sort(key=lambda record: (record.number > 0, abs(record.number)))
        return valued[-self.population :]

    def _parent(self, alive: Sequence[Record], rng: np.random.Generator) -> dict[str, Any]:
        """The config of the one to be mutated."""
        if self.parents is None:
            sample = rng.integers(len(alive), size=self.sample_size)  # (S,)
            parent = alive[min(sample, key=lambda place: (self._loss(alive[place]), place))]
        else:
            places = self.parents([_described(record) for record in alive])
            if not len(places):
                raise InvalidInput(f"expected parents to choose one of {len(alive)} or more, got none")
            parent = alive[places[int(rng.integers(len(places)))]]
        return without_seed(parent.config)

    def _loss(self, record: Record) -> float:
        loss = self.loss(record)
        assert loss is not None  # the population holds those with a value
        return loss

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {
            "population": self.population,
            "sample_size": self.sample_size,
            "parents": None if self.parents is None else getattr(self.parents, "__name__", type(self.parents).__name__),
        }


def _described(record: Record) -> dict[str, Any]:
    """What `parents` is told of one of the population."""
    return {**record.result, **without_seed(record.config), "number": record.number, "value": record.value}
