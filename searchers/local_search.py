"""Local search. White et al. 2021 (Exploring the Loss Landscape in Neural Architecture Search), Algorithm 1."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Unpack

from archray.searchers.arguments import SearcherOptions, check_whole_number
from archray.searchers.base import Proposal
from archray.searchers.config_space import Config, SpaceSource, without_seed
from archray.searchers.ledger import Record
from archray.searchers.space_search import SpaceSearch

INITIAL = 10  # n0: `num_init` in the authors' code


class LocalSearch(SpaceSearch):
    """Local search by hill climbing; it suggests each architecture at most once.

    Suggests: `architecture`, `seed`; or the keys of the dict, `seed`.
    Needs: the metric.
    Takes: a space, a dict of Tune domains, or a custom space object.

    Each suggestion k continues a climb with the results of suggestions 1 to k - q:
    1. n0 configs are drawn at random. The climb starts at the best of them.
    2. The neighbors of its position, one mutation away, are suggested in random order. The climb moves to the first
       better neighbor (next improvement, as in the authors' code). With `whole_neighborhood` it moves to the best
       neighbor once all have a result (Algorithm 1 as printed).
    3. If all neighbors have a result and none is better, the position is a local optimum, and the next climb starts.

    As in the authors' code, configs of an earlier climb are not evaluated again. Deviations from it: With q > 1 the
    last q - 1 results are pending when a climb has no neighbor left to suggest. Meanwhile the searcher suggests random
    configs, and the climb moves to one of them if it is better. If neighbors cannot be listed, as for continuous
    domains, the searcher draws 100 random mutations. A climb never moves to a trial without a value.

    Args:
        space, budget, points_to_evaluate: see `SpaceSearch`; the points count in n0.
        initial: n0, the number of random configs at the start of a climb.
        whole_neighborhood: evaluate all neighbors before a move.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: see `SpaceSearch`.

    Example:
        ```python
        search = LocalSearch("nasbench201", budget=50, metric="convolutions", mode="max")
        drive(search, lambda config: config["architecture"].count("nor_conv_3x3"))
        print(search.best())
        ```
    """

    mutates: ClassVar[bool] = True
    repeats: ClassVar[bool] = False
    identity_fields: ClassVar[tuple[str, ...]] = ("initial", "whole_neighborhood")
    state_fields: ClassVar[tuple[str, ...]] = ("_first",)

    def __init__(
        self,
        space: SpaceSource,
        budget: int,
        initial: int = INITIAL,
        whole_neighborhood: bool = False,
        **options: Unpack[SearcherOptions],
    ) -> None:
        check_whole_number("initial", initial)
        self.initial = int(initial)
        self.whole_neighborhood = bool(whole_neighborhood)
        self._first = 1  # number of the climb's first suggestion
        self._neighbors: dict[str, list[Config]] = {}  # by the key of each position of the climb
        super().__init__(space, budget, **options)

    def propose(self, number: int) -> Proposal:
        records = {self._space.key(record.config): record for record in self.usable_records(number).values()}
        keys = self.suggested_keys()
        climb = [record for record in records.values() if record.number >= self._first or self._first == 1]
        valued = [record for record in climb if record.value is not None]
        drawn = number - self._first - sum(record.value is None for record in climb)  # trials in flight count
        if drawn < self.initial or not valued:
            return self.new_config(self.rng("local-search", "draws", number))
        neighbors = self._neighbors_of(self._position(valued, records))
        unseen = next((config for config in neighbors if self._space.key(config) not in keys), None)
        if unseen is not None:
            return unseen
        config = self.new_config(self.rng("local-search", "draws", number))
        if config is not None and all(self._space.key(neighbor) in records for neighbor in neighbors):
            self._first = number  # a local optimum
            self._neighbors.clear()
        return config

    def _position(self, valued: Sequence[Record], records: Mapping[str, Record]) -> Record:
        """Returns the record of the climb's current position, one of its records with a value."""
        if not self.whole_neighborhood:
            return min(valued, key=self._order)
        position = min(valued[: self.initial], key=self._order)
        by_key = {self._space.key(record.config): record for record in valued}
        while True:
            keys = [self._space.key(config) for config in self._neighbors_of(position)]
            loss = self._order(position)[0]
            better = [by_key[key] for key in keys if key in by_key and self._order(by_key[key])[0] < loss]
            if not better or not all(key in records for key in keys):
                return position
            position = min(better, key=self._order)

    def _order(self, record: Record) -> tuple[float, int]:
        """The sort key of records: best first, and earliest first among equal ones."""
        loss = self.loss(record)
        assert loss is not None  # the records have a value
        return loss, abs(record.number)

    def _neighbors_of(self, record: Record) -> list[Config]:
        key = self._space.key(record.config)
        if key not in self._neighbors:
            rng = self.rng("local-search", "neighbors", key)
            self._neighbors[key] = self._space.neighbors(without_seed(record.config), rng)
        return self._neighbors[key]
