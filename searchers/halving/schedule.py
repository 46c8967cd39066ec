"""The rounds of halving: their candidates, budgets and scores, and who is kept. Khodak 2020, Algorithm 1, app. B.1."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archray.errors import InvalidInput
from archray.plurals import count
from archray.searchers.arguments import FloatArray, is_number
from archray.searchers.ledger import MAX_REASON, Record

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
    """A round, or the standalone trial that follows the last one."""

    number: int  # t = 1, ..., T; one more for the standalone trial
    candidates: Sequence[Any]  # (C,) what it scores; one candidate is the standalone trial
    budget: int  # d_t
    numbers: range  # of its suggestions, one per replica


@dataclass(frozen=True)
class EndedRound(Round):
    """A round whose trials have all ended."""

    lost: Mapping[int, str]  # replica -> why it has no scores
    scores: FloatArray  # (replicas that reported, C), in the metric's own sign
    ranking: Sequence[int]  # positions of the candidates with an average score, best first; empty if there is none
    kept: Sequence[int]  # positions of the candidates that go on, in the order of `candidates`

    @property
    def replicas(self) -> list[int]:
        """The replicas that reported."""
        return [replica for replica in range(len(self.numbers)) if replica not in self.lost]

    def failure(self, position: int) -> str | None:
        """Why the candidate at `position` has no average score; None if it has one."""
        if not len(self.scores):
            return f"no replica reported: {next(iter(self.lost.values()))}"
        failed = int((~np.isfinite(self.scores[:, position])).sum())
        return f"its score was not finite in {failed} of {count(len(self.scores), 'replica')}" if failed else None

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

        replies: per replica its scores, or why it has none. sign: 1 if the lowest score is best, -1 if the highest.
        """
        n = len(current.candidates)
        lost = {replica: reply for replica, reply in enumerate(replies) if isinstance(reply, str)}
        reported = [reply for reply in replies if not isinstance(reply, str)]
        scores = np.array(reported, dtype=float).reshape(len(reported), n)
        ranking = rank(sign * average(scores), rng).tolist()
        kept = sorted(ranking[: count_kept(n, self.keep) if n > 1 else 1])
        return EndedRound(**vars(current), lost=lost, scores=scores, ranking=ranking, kept=kept)


def check_candidates(candidates: Sequence[Any]) -> list[Any]:
    """The candidates as they read after a round trip through JSON. Raises: InvalidInput."""
    if not isinstance(candidates, Sequence) or isinstance(candidates, str):
        raise InvalidInput(f"candidates: expected a list of JSON values, got a {type(candidates).__name__}")
    by_name: dict[str, Any] = {}
    for position, candidate in enumerate(candidates):
        try:
            name = json.dumps(candidate, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"candidates: expected JSON values, got {candidate!r} at position {position}: {error}"
            ) from error
        if name in by_name:
            raise InvalidInput(
                f"candidates: expected different ones, got {candidate_name(candidate)} twice; list each once"
            )
        by_name[name] = json.loads(json.dumps(candidate))
    checked = list(by_name.values())
    if len(checked) < 2:
        got = f"only {candidate_name(checked[0])}" if checked else "none"
        raise InvalidInput(f"candidates: expected two or more to select from, got {got}; list more")
    return checked


def candidate_name(candidate: Any) -> str:
    """A candidate in a table or a line of the log: itself if it is a string, else its JSON."""
    return candidate if isinstance(candidate, str) else json.dumps(candidate)


def reply_of(record: Record, result: Mapping[str, Any]) -> list[float] | str:
    """The scores of a trial that has ended, or why they do not count: a mean that is NaN because some candidates'
    scores are loses nothing but these candidates. result: all that the trial reported, for the message.

    Raises: InvalidInput for scores or weights that are unusable.
    """
    reported, weights, scores = (record.result.get(key) for key in ("failure", "weights", "scores"))
    if reported:
        return str(reported)[:MAX_REASON]
    numbers = scores if isinstance(scores, list) and all(map(is_number, scores)) else []
    reason = None
    if not any(map(math.isfinite, numbers)):
        reason = record.failure or ("none of its scores is finite" if numbers else None)
    if reason is not None:
        return reason
    if weights is not None and not isinstance(weights, str):
        raise InvalidInput(
            f"expected the trial to report 'weights' as a URI, or None, got a {type(weights).__name__}; write the "
            "weights to storage that every node reads, and report where"
        )
    return _read_scores({**result, **record.result}, len(record.config["candidates"]))


def _read_scores(result: Mapping[str, Any], candidates: int) -> list[float]:
    """The entry `scores` of a result as Tune hands it over: one number for each candidate."""
    scores = result.get("scores")
    if "scores" not in result:
        spread = [key for key in result if key.startswith("scores/")]
        got = f"a dictionary with {count(len(spread), 'entry', 'entries')}" if spread else "no scores"
    elif not isinstance(scores, list):
        got = repr(scores)[:MAX_REASON]
    elif odd := [score for score in scores if not is_number(score)]:
        got = f"a list with {odd[0]!r}"[:MAX_REASON]
    elif len(scores) != candidates:
        got = f"a list of {len(scores)}"
    else:
        return [float(score) for score in scores]
    raise InvalidInput(
        f"expected the trial to report 'scores', a list of {count(candidates, 'number')}, got {got}; "
        "report one number for each of config['candidates'], in their order (NaN for one that failed), beside the "
        "metric, which is their mean"
    )


def _ceil(x: float) -> int:
    return math.ceil(x * (1 - ROUNDING))
