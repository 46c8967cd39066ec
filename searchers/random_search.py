"""Random search: distinct canonical architectures, drawn uniformly. The baseline of every architecture search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import HeldSpace
from archray.searchers.base import ArchraySearcher, Proposal, SearcherOptions
from archray.trainables.spaces import Space

DRAWS = 1000  # in search of an architecture that is new; then a small space is enumerated
ENUMERABLE = 10**6  # architectures of a space small enough to enumerate
STREAM = 1_000_037  # random numbers apart from the trials' seeds


class RandomSearch(ArchraySearcher):
    """Suggests `{"architecture", "seed"}`, each canonical form at most once; needs back the metric.

    Suggestion k depends on the seed and on k only, so it never waits for results. An architecture is drawn uniformly
    from the space and brought to its canonical form: a form with many spellings is drawn more often, as it would be
    by sampling the space. From a list of candidates every one is equally likely.

    Args:
        space: a space, its name or reference, or the list of candidates (canonical strings).
        budget: the number of trainings.
        points_to_evaluate: `{"architecture"}`, suggested first; they count in budget.
        seed, metric, mode, max_concurrent, asynchronous: see `ArchraySearcher`.

    Raises: InvalidInput for a wrong argument, InvalidArchitecture for a point that the space does not have.
    """

    depends_on_results: ClassVar[bool] = False

    def __init__(self, space: str | Space | Sequence[str], budget: int, **options: Unpack[SearcherOptions]) -> None:
        self._held = HeldSpace(space) if isinstance(space, str | Space) else None
        self._candidates = () if isinstance(space, str | Space) else tuple(space)
        if self._held is None and (not self._candidates or len(set(self._candidates)) != len(self._candidates)):
            raise InvalidInput("expected candidates that are distinct, and at least one")
        super().__init__(budget=budget, **options)
        self.prepare()

    def prepare(self) -> None:
        if self._held is not None:
            _ = self._held.space

    def propose(self, number: int) -> Proposal:
        seen = {record.config["architecture"] for record in self.records()}
        return next(({"architecture": name} for name in self._draws(number) if name not in seen), None)

    def _draws(self, number: int) -> Iterator[str]:
        """Candidates for suggestion `number`, in the order they are tried; ends when the space is exhausted."""
        rng = np.random.default_rng([self.seed, STREAM, number])
        if self._held is None:
            yield from (self._candidates[row] for row in rng.permutation(len(self._candidates)))
            return
        space = self._held.space
        for _ in range(DRAWS):
            yield self._held.canonical_string(space.sample(rng))
        if space.size <= ENUMERABLE:
            forms = sorted({self._held.canonical_string(architecture) for architecture in space.enumerate()})
            yield from (forms[row] for row in rng.permutation(len(forms)))

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        name = point.get("architecture")
        if not isinstance(name, str):
            raise InvalidInput(f"expected a point with architecture, a string, got {point!r}")
        return {"architecture": name if self._held is None else self._held.canonicalise(name)}

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        seen = {record.config["architecture"] for record in self.records()}
        return None if point["architecture"] in seen else dict(point)

    def own_identity(self) -> dict[str, Any]:
        return {"candidates": list(self._candidates)} if self._held is None else {"space": self._held.name}
