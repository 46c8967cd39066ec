"""Local search. White et al. 2021 (Exploring the Loss Landscape in Neural Architecture Search), Algorithm 1."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from archray.searchers.arguments import SearcherOptions, check_whole_number
from archray.searchers.base import Proposal
from archray.searchers.config_space import Config, SpaceSource, without_seed
from archray.searchers.ledger import Record
from archray.searchers.space_search import SpaceSearch

INITIAL = 10  # n0: `num_init` of the authors' program


class LocalSearch(SpaceSearch):
    """Local search: each architecture at most once.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric.
    Takes: a space, a dict of Tune domains, or an object of yours.

    A climb, which each suggestion k goes on with by the results of suggestions 1 to k - q:
    1. n0 configs are drawn at random; the best is where the climb stands.
    2. Its neighbours, those of one mutation, are suggested in random order. The climb moves to the first that is
       better (next improvement, as the authors' program does), or, with `whole_neighbourhood`, to the best when all
       are known (Algorithm 1 as printed).
    3. When all neighbours are known and none is better, it is a local optimum, and the next climb begins.

    What an earlier climb has seen is not evaluated again, as in the authors' program. Where this deviates from it: with
    q > 1 the last q - 1 results are not in when a climb has no neighbour left to suggest; meanwhile random configs are
    suggested, and the climb moves to one of these if it is better. Neighbours that cannot be listed, as of continuous
    domains, are 100 mutations drawn at random. A trial without a value is no place to stand.

    Args:
        space, budget, points_to_evaluate: see `SpaceSearch`; the points count in n0.
        initial: n0.
        whole_neighbourhood: all neighbours are evaluated before a move.
        seed, metric, mode, max_concurrent, asynchronous: see `ArchraySearcher`.

    Raises: see `SpaceSearch`.
    """

    mutates: ClassVar[bool] = True
    repeats: ClassVar[bool] = False

    def __init__(
        self,
        space: SpaceSource,
        budget: int,
        initial: int = INITIAL,
        whole_neighbourhood: bool = False,
        **options: Unpack[SearcherOptions],
    ) -> None:
        check_whole_number("initial", initial)
        self.initial = int(initial)
        self.whole_neighbourhood = bool(whole_neighbourhood)
        self._first = 1  # number of the first suggestion of the climb
        self._neighbours: dict[str, list[Config]] = {}  # by key, of where this climb stood
        super().__init__(space, budget, **options)

    # Algorithm 1 ---------------------------------------------------------------------------------------------------

    def propose(self, number: int) -> Proposal:
        records = {self._space.key(record.config): record for record in self.usable_records(number).values()}
        keys = self.suggested_keys()
        climb = [record for record in records.values() if record.number >= self._first or self._first == 1]
        valued = [record for record in climb if record.value is not None]
        drawn = number - self._first - sum(record.value is None for record in climb)  # in flight: as if it had a value
        if drawn < self.initial or not valued:
            return self.new_config(self.rng("local-search", "draws", number))
        stands = self._stands(valued, records)
        neighbours = self._neighbours_of(stands)
        unseen = next((config for config in neighbours if self._space.key(config) not in keys), None)
        if unseen is not None:
            return unseen
        config = self.new_config(self.rng("local-search", "draws", number))
        if config is not None and all(self._space.key(neighbour) in records for neighbour in neighbours):
            self._first = number  # a local optimum
            self._neighbours.clear()
        return config

    def _stands(self, valued: Sequence[Record], records: Mapping[str, Record]) -> Record:
        """Where the climb stands, of its records with a value."""
        if not self.whole_neighbourhood:
            return min(valued, key=self._order)
        stands = min(valued[: self.initial], key=self._order)
        by_key = {self._space.key(record.config): record for record in valued}
        while True:
            keys = [self._space.key(config) for config in self._neighbours_of(stands)]
            better = [
                by_key[key] for key in keys if key in by_key and self._order(by_key[key])[0] < self._order(stands)[0]
            ]
            if not better or not all(key in records for key in keys):
                return stands
            stands = min(better, key=self._order)

    def _order(self, record: Record) -> tuple[float, int]:
        """Best first; of equal ones the first."""
        loss = self.loss(record)
        assert loss is not None  # only those with a value are asked about
        return loss, abs(record.number)

    def _neighbours_of(self, record: Record) -> list[Config]:
        key = self._space.key(record.config)
        if key not in self._neighbours:
            rng = self.rng("local-search", "neighbours", key)
            self._neighbours[key] = self._space.neighbours(without_seed(record.config), rng)
        return self._neighbours[key]

    # State ---------------------------------------------------------------------------------------------------------

    def search_identity(self) -> dict[str, Any]:
        climb = {"initial": self.initial, "whole_neighbourhood": self.whole_neighbourhood}
        return super().search_identity() | climb

    def search_state(self) -> dict[str, Any]:
        return {"first": self._first}

    def set_search_state(self, state: dict[str, Any]) -> None:
        self._first = int(state.get("first", 1))
