"""NSGA-II over architectures or Tune domains, renewed with every result. Deb et al. 2002, section III."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
import pandas as pd

from archray.errors import ArchrayError, InvalidInput
from archray.searchers.arguments import FloatArray, SearcherOptions, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.config_space import SpaceSource, without_seed
from archray.searchers.ledger import Record
from archray.searchers.pareto.front import crowded_order, front_places, read_objectives
from archray.searchers.space_search import SpaceSearch, check_population

logger = logging.getLogger(__name__)
Costs = Callable[[str], Mapping[str, float]]
POPULATION = 20  # N; 100 in the paper, for searches of 25,000 evaluations
CROSSOVER = 0.9  # how many children have two parents; section IV-A
ATTEMPTS = 20  # mutations in search of a child that was not suggested before


class NSGA2Search(SpaceSearch):
    """NSGA-II: suggests children of architectures that no other dominates.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric, and the objectives that `further` names.
    Takes: a space, a dict of Tune domains, or an object of yours.

    Tune has one metric per run. It is the first objective; `further` names other entries of a trial's result.

    Each suggestion k follows the paper with the results of suggestions 1 to k - q:
    1. the first N architectures are drawn uniformly;
    2. of all results the best N, by the number of their front and within one the least crowded, are the population;
    3. two parents win binary tournaments by the same order; the child has each decision from one or the other, in nine
       cases of ten, and is mutated once.

    Where this deviates from the paper: the population is renewed after every result and not after N, so that
    training runs never wait for a generation; crossover and mutation are the space's: uniform, and of one decision; a
    child that was suggested before is mutated again. A trial without a finite value of every objective does not join
    the population, and neither does an evaluation handed over, which has only one value.

    Args:
        space: see `SpaceSearch`.
        budget: the number of training runs, above the population.
        further: entries of a trial's result that are further objectives: `-latency_ms` if less is better.
        population: N.
        crossover: the share of the children that have two parents.
        costs: architecture -> the objectives in `further` that need no training run; they override the entries of a
            trial's result. It must pickle, and return the same in a resumed run.
        points_to_evaluate: `{"architecture"}`, or configs, suggested first; they count in budget and population.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: see `SpaceSearch`.
    """

    mutates: ClassVar[bool] = True
    identity_fields: ClassVar[tuple[str, ...]] = ("population", "crossover")

    def __init__(
        self,
        space: SpaceSource,
        budget: int,
        further: str | Iterable[str],
        population: int = POPULATION,
        crossover: float = CROSSOVER,
        costs: Costs | None = None,
        **options: Unpack[SearcherOptions],
    ) -> None:
        check_population(population, budget)
        if not is_finite_number(crossover) or not 0 <= crossover <= 1:
            raise InvalidInput(f"crossover: expected a number from 0 to 1, got {crossover!r}")
        self.further = read_objectives(further)
        self.result_keys = tuple(o.name for o in self.further)  # type: ignore[misc]  # of this searcher alone
        self._costs = costs
        self.population = int(population)
        self.crossover = float(crossover)
        super().__init__(space, budget, **options)

    def propose(self, number: int) -> Proposal:
        rng = self.rng("nsga2", number)
        records = self.usable_records(number)
        alive = {k: vector for k, record in records.items() if (vector := self.vector(record)) is not None}
        failed = len(records) - len(alive)
        expected_size = len(self.records()) - failed  # trials in flight are expected to join
        if expected_size < self.population or not alive:
            return self._space.sample(rng)
        order = crowded_order(np.array(list(alive.values())))[: self.population]
        ranked = [list(alive)[place] for place in order]  # numbers, the best first
        child = without_seed(records[self._parent(ranked, rng)].config)
        if rng.random() < self.crossover:
            child = self._space.cross(child, without_seed(records[self._parent(ranked, rng)].config), rng)
        suggested = self.suggested_keys()
        for _ in range(ATTEMPTS):
            child = self._space.mutate(child, rng)
            if self._space.key(child) not in suggested:
                break
        return child

    def _parent(self, ranked: Sequence[int], rng: np.random.Generator) -> int:
        """The better of two drawn from the population."""
        return ranked[int(rng.integers(len(ranked), size=2).min())]

    def vector(self, record: Record) -> FloatArray | None:
        """(k,) the objectives of a trial, less is better; None if one of them is no finite number."""
        loss, values = self.loss(record), list(self._values(record).values())
        if loss is None or not all(map(is_finite_number, values)):
            return None
        return np.array([loss, *(o.loss(float(v)) for o, v in zip(self.further, values, strict=True))])

    def front(self) -> pd.DataFrame:
        """The trials that no other dominates, as rows of `history`, the best by the metric first."""
        return self.history().iloc[front_places(map(self.vector, self.records()))].reset_index(drop=True)

    def row(self, record: Record) -> dict[str, Any]:
        return super().row(record) | self._values(record)

    def _values(self, record: Record) -> dict[str, Any]:
        """The further objectives; None for one without a value."""
        costs: Mapping[str, Any] = {}
        if self._costs is not None and "architecture" in record.config:
            try:
                costs = self._costs(record.config["architecture"])
            except ArchrayError as error:  # a network that cannot be built has no costs, and its trial fails too
                logger.warning("%s", error)
        return {name: costs.get(name, record.result.get(name)) for name in self.result_keys}

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {"further": [str(objective) for objective in self.further]}
