"""NSGA-II over architectures or Tune domains, renewed with every result. Deb et al. 2002, section III."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
import pandas as pd

from archray.errors import ArchrayError, InvalidInput
from archray.searchers.arguments import FloatArray, SearcherOptions, check_whole_number, is_finite_number
from archray.searchers.base import Proposal
from archray.searchers.config_space import Config, SpaceSource, without_seed
from archray.searchers.ledger import Record
from archray.searchers.pareto.front import crowded_order, front_of
from archray.searchers.pareto.objectives import read_objectives
from archray.searchers.space_search import SpaceSearch

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

    Tune has one metric per run. It stays the first objective here; `further` names other entries of a trial's result.

    Each suggestion k follows the paper with the results of suggestions 1 to k - q:
    1. the first N architectures are drawn uniformly;
    2. of all results the best N, by the number of their front and within one the least crowded, are the population;
    3. two parents win binary tournaments by the same order; the child has each decision from one or the other, in nine
       cases of ten, and is mutated once.

    Where this deviates from the paper: the population is renewed after every result and not after N, so that
    trainings never wait for a generation; crossover and mutation are the space's own, uniform and of one decision; a
    child that was suggested before is mutated on. A trial without a finite value of every objective joins no
    population, nor does an evaluation handed over, which has one value only.

    Args:
        space: see `SpaceSearch`.
        budget: the number of trainings, above the population.
        further: entries of a trial's result that are objectives beside the metric: `-latency_ms` if less is better.
        population: N.
        crossover: how many of the children have two parents.
        costs: architecture -> those of `further` that are known without a training; one that it has goes before what
            a trial's result says. It must pickle, and answer the same in a resumed run.
        points_to_evaluate: `{"architecture"}`, or configs, suggested first; they count in budget and population.
        seed, metric, mode, max_concurrent, asynchronous: see `ArchraySearcher`.

    Raises: see `SpaceSearch`.
    """

    mutates: ClassVar[bool] = True

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
        for name, number in (("population", population), ("budget", budget)):
            check_whole_number(name, number)
        if budget <= population:
            raise InvalidInput(
                f"budget: expected more than the population, {population}, which is drawn at random, got {budget}; "
                "lower population, or use RandomSearch"
            )
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
        return self._mutated(child, rng)

    def _parent(self, ranked: Sequence[int], rng: np.random.Generator) -> int:
        """The better of two drawn from the population."""
        return ranked[int(rng.integers(len(ranked), size=2).min())]

    def _mutated(self, child: Config, rng: np.random.Generator) -> Config:
        suggested = self.suggested_keys()
        for _ in range(ATTEMPTS):
            child = self._space.mutate(child, rng)
            if self._space.key(child) not in suggested:
                break
        return child

    def vector(self, record: Record) -> FloatArray | None:
        """(k,) the objectives of a trial, less is better; None if one of them is no finite number."""
        loss, values = self.loss(record), list(self._values(record).values())
        if loss is None or not all(map(is_finite_number, values)):
            return None
        return np.array([loss, *(o.loss(float(v)) for o, v in zip(self.further, values, strict=True))])

    def front(self) -> pd.DataFrame:
        """The trials that no other betters, as rows of `history`, with the further objectives."""
        return front_of(self.history(), self.records(), self.vector)

    def row(self, record: Record) -> dict[str, Any]:
        return super().row(record) | self._values(record)

    def _values(self, record: Record) -> dict[str, Any]:
        """The further objectives, None of one that is not known."""
        costs: Mapping[str, Any] = {}
        if self._costs is not None and "architecture" in record.config:
            try:
                costs = self._costs(record.config["architecture"])
            except ArchrayError as error:  # a network that cannot be built has no costs, and fails in its training too
                logger.warning("%s", error)
        return {name: costs.get(name, record.result.get(name)) for name in self.result_keys}

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {
            "further": [str(objective) for objective in self.further],
            "population": self.population,
            "crossover": self.crossover,
        }
