"""Random search: distinct configs, drawn at random. The baseline of every architecture search."""

from __future__ import annotations

from typing import ClassVar

from archray.searchers.base import Proposal
from archray.searchers.space_search import SpaceSearch


class RandomSearch(SpaceSearch):
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
    repeats: ClassVar[bool] = False

    def propose(self, number: int) -> Proposal:
        return self.new_config(self.rng("random-search", number))
