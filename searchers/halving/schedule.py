"""The arithmetic of halving: how many rounds, at what budget, who is kept. Khodak 2020, Algorithm 1 and app. B.1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archray.searchers.arguments import FloatArray
from archray.searchers.halving.shared_scores import candidate_name

ROUNDING = 1e-12  # relative; floating point has 0.07 * 100 > 7, which is not to be rounded up to 8


def count_kept(n: int, keep: float) -> int:
    """How many of n >= 2 candidates a round keeps: ceil(keep n), and at least one fewer than n."""
    return min(_ceil(keep * n), n - 1)


def round_sizes(n: int, keep: float) -> list[int]:
    """How many candidates each round solves for, first to last; as many entries as there are rounds, T."""
    sizes = []
    while n > 1:
        sizes.append(n)
        n = count_kept(n, keep)
    return sizes


def round_budget(budget: int, growth: float, rounds_after: int) -> int:
    """d_t = ceil(budget growth^(t - T)) of a round that `rounds_after` = T - t others follow."""
    return max(1, _ceil(budget * growth**-rounds_after))


def average(scores: FloatArray) -> FloatArray:
    """(replicas, candidates) -> (candidates,) means; NaN where a replica's score is not finite, or without replicas."""
    if not len(scores):
        return np.full(scores.shape[1], np.nan)
    return np.where(np.isfinite(scores).all(axis=0), scores, np.nan).mean(axis=0)


def rank(losses: FloatArray, rng: np.random.Generator) -> NDArray[np.intp]:
    """Positions of the candidates with a loss, lowest first; equal ones in an order drawn from `rng`."""
    order = np.lexsort((rng.permutation(len(losses)), losses))
    return order[np.isfinite(losses[order])]


@dataclass(frozen=True)
class Round:
    """A round, or the standalone trial that follows the last one.

    Attributes:
        number: t = 1, ..., T; one more for the standalone trial.
        candidates: (C,) what it scores; one candidate is the standalone trial.
        budget: d_t.
        numbers: of its suggestions, one per replica.
    """

    number: int
    candidates: Sequence[Any]
    budget: int
    numbers: range


@dataclass(frozen=True)
class EndedRound(Round):
    """A round whose trials have all ended.

    Attributes:
        lost: replica -> why it has no scores.
        scores: (replicas that reported, C), in the metric's own sign.
        ranking: positions of the candidates with an average score, best first; empty if there is none.
        kept: positions of the candidates that go on, in the order of `candidates`.
    """

    lost: Mapping[int, str]
    scores: FloatArray
    ranking: Sequence[int]
    kept: Sequence[int]

    @property
    def replicas(self) -> list[int]:
        """The replicas that reported."""
        return [replica for replica in range(len(self.numbers)) if replica not in self.lost]

    def failure(self, position: int) -> str | None:
        """Why the candidate at `position` has no average score; None if it has one."""
        if not len(self.scores):
            return f"no replica reported: {next(iter(self.lost.values()))}"
        failed = int((~np.isfinite(self.scores[:, position])).sum())
        return f"its score was not finite in {failed} of {len(self.scores)} replicas" if failed else None

    def rows(self) -> list[dict[str, Any]]:
        """A row per candidate, see `WeightSharingHalving.rounds`."""
        return [
            {
                "round": self.number,
                "candidate": candidate_name(candidate),
                "score": score,
                "kept": position in self.kept,
                "failure": self.failure(position),
                "budget": self.budget,
                "replicas": len(self.replicas),
                "lost": len(self.lost),
            }
            for position, (candidate, score) in enumerate(zip(self.candidates, average(self.scores), strict=True))
        ]


@dataclass(frozen=True)
class Schedule:
    """Which rounds there are. The arguments are those of `WeightSharingHalving`."""

    replicas: int
    keep: float
    budget: int
    growth: float

    def first(self, candidates: Sequence[Any]) -> Round:
        return self._round(1, candidates)

    def following(self, ended: EndedRound) -> Round | None:
        """The next round; None after the standalone trial, and where no candidate is left."""
        if len(ended.candidates) == 1 or not ended.kept:
            return None
        return self._round(ended.number + 1, [ended.candidates[position] for position in ended.kept])

    def _round(self, number: int, candidates: Sequence[Any]) -> Round:
        rounds_left = len(round_sizes(len(candidates), self.keep))  # this one included; 0 for the standalone trial
        budget = round_budget(self.budget, self.growth, max(rounds_left - 1, 0))
        start = 1 + (number - 1) * self.replicas
        return Round(number, candidates, budget, range(start, start + (self.replicas if rounds_left else 1)))

    def end(
        self, current: Round, replies: Sequence[list[float] | str], sign: int, rng: np.random.Generator
    ) -> EndedRound:
        """Averages over the replicas that reported, and selects.

        Args:
            replies: per replica its scores, or why it has none.
            sign: 1 if the lowest score is best, -1 if the highest.
            rng: for ties.
        """
        n = len(current.candidates)
        lost = {replica: reply for replica, reply in enumerate(replies) if isinstance(reply, str)}
        reported = [reply for reply in replies if not isinstance(reply, str)]
        scores = np.array(reported, dtype=float).reshape(len(reported), n)
        ranking = rank(sign * average(scores), rng).tolist()
        kept = sorted(ranking[: count_kept(n, self.keep) if n > 1 else 1])
        return EndedRound(**vars(current), lost=lost, scores=scores, ranking=ranking, kept=kept)


def _ceil(x: float) -> int:
    return math.ceil(x * (1 - ROUNDING))
