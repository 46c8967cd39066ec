"""Random search: distinct configs, drawn at random. The baseline of every architecture search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from ray.tune.search.sample import Domain

from archray.searchers.arguments import SearcherOptions
from archray.searchers.base import ArchraySearcher, Proposal
from archray.searchers.config_space import OwnSpace, config_space
from archray.trainables.spaces import Space


class RandomSearch(ArchraySearcher):
    """Suggests `{"architecture", "seed"}`, each canonical form at most once; needs back the metric.

    Of a dict of Tune domains, and of a space of your own without archray's base, it suggests that dict's keys, or what
    the space draws, and `seed`; each config at most once.

    Suggestion k depends on the seed and on k only, so it never waits for results. An architecture is drawn uniformly
    from the space and brought to its canonical form: a form with many spellings is drawn more often, as it would be
    by sampling the space. From a list of candidates every one is equally likely.

    Args:
        space: a space, its name or reference; a dict of Tune domains, `{"width": tune.choice([16, 32])}`; an object
            with `sample(rng) -> config` and `mutate(config, rng) -> config`; or the list of candidates (canonical
            strings).
        budget: the number of trainings.
        points_to_evaluate: `{"architecture"}`, or configs, suggested first; they count in budget.
        seed, metric, mode, max_concurrent, asynchronous: see `ArchraySearcher`.

    Raises: InvalidInput for a wrong argument, InvalidArchitecture for a point that the space does not have.
    """

    depends_on_results: ClassVar[bool] = False

    def __init__(
        self,
        space: str | Space | Mapping[str, Domain] | Sequence[str] | OwnSpace,
        budget: int,
        **options: Unpack[SearcherOptions],
    ) -> None:
        self._space = config_space(space)
        super().__init__(budget=budget, **options)
        self.prepare()

    def prepare(self) -> None:
        self._space.prepare()

    def propose(self, number: int) -> Proposal:
        seen = self._seen()
        draws = self._space.draws(self.rng("random-search", number))
        return next((config for config in draws if self._space.key(config) not in seen), None)

    def _seen(self) -> set[str]:
        return {self._space.key(record.config) for record in self.records()}

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        return self._space.check_point(point)

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        return None if self._space.key(point) in self._seen() else dict(point)

    def own_identity(self) -> dict[str, Any]:
        return self._space.identity()
