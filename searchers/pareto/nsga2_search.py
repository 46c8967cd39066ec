"""NSGA-II over architectures or Tune domains, with an update per result. Deb et al. 2002, section III."""

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
POPULATION = 20  # N; the paper uses 100 for searches of 25,000 evaluations
CROSSOVER = 0.9  # share of children with two parents; section IV-A
ATTEMPTS = 20  # maximum number of mutations to find a new child


class NSGA2Search(SpaceSearch):
    """NSGA-II: multi-objective evolution, which suggests children of non-dominated architectures.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric, and the objectives that `further` names.
    Takes: a space, a dict of Tune domains, or a custom space object.

    A Tune run has one metric. It is the first objective; `further` names other entries of a trial's result.

    Each suggestion k follows the paper with the results of suggestions 1 to k - q:
    1. The first N architectures are drawn uniformly.
    2. The population is the best N of all results, ordered by the number of the front, and by crowding within a front.
    3. Two parents win binary tournaments by the same order. With probability `crossover` the child takes each decision
       from one of the two parents, else it copies the first parent. Then it is mutated once.

    Deviations from the paper: The population is updated after every result, not after N results, so training runs never
    wait for a generation. The space defines crossover (uniform) and mutation (one decision). A child that was suggested
    before is mutated again. A trial without a finite value of every objective does not join the population. Neither
    does an external evaluation, which has only one value.

    Args:
        space: see `SpaceSearch`.
        budget: the number of training runs; larger than the population.
        further: entries of a trial's result that are further objectives; `-latency_ms` if less is better.
        population: N.
        crossover: the share of children with two parents.
        costs: a picklable function from an architecture to the objectives in `further` that need no training run; they
            override the entries of a trial's result. It must return the same values in a resumed run.
        points_to_evaluate: `{"architecture"}`, or configs, to suggest first; they count in the budget and in the
            population.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: see `SpaceSearch`.

    Example:
        ```python
        domains = {"width": tune.choice([16, 32, 64]), "depth": tune.randint(1, 6)}
        search = NSGA2Search(domains, 60, "-params", population=20, metric="accuracy", mode="max")
        drive(search, lambda c: {"accuracy": c["width"] * c["depth"], "params": c["width"] ** 2})
        print(search.front())
        ```
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
            raise InvalidInput(f"crossover: expected a number in [0, 1], got {crossover!r}")
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
        expected_size = len(self.records()) - failed  # assumes that the trials in flight will join
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
        """Returns the better of two random members of the population."""
        return ranked[int(rng.integers(len(ranked), size=2).min())]

    def vector(self, record: Record) -> FloatArray | None:
        """Returns the objectives of a trial as losses, (k,); None if one of them is not a finite number."""
        loss, values = self.loss(record), list(self._values(record).values())
        if loss is None or not all(map(is_finite_number, values)):
            return None
        return np.array([loss, *(o.loss(float(v)) for o, v in zip(self.further, values, strict=True))])

    def front(self) -> pd.DataFrame:
        """Returns the non-dominated trials as rows of `history`, the best by the metric first."""
        return self.history().iloc[front_places(map(self.vector, self.records()))].reset_index(drop=True)

    def row(self, record: Record) -> dict[str, Any]:
        return super().row(record) | self._values(record)

    def _values(self, record: Record) -> dict[str, Any]:
        """Returns the further objectives; None for a missing value."""
        costs: Mapping[str, Any] = {}
        if self._costs is not None and "architecture" in record.config:
            try:
                costs = self._costs(record.config["architecture"])
            except ArchrayError as error:  # the network cannot be built, and its trial fails too
                logger.warning("%s", error)
        return {name: costs.get(name, record.result.get(name)) for name in self.result_keys}

    def search_identity(self) -> dict[str, Any]:
        return super().search_identity() | {"further": [str(objective) for objective in self.further]}
