"""Successive halving with weight sharing: one solve scores all candidates. Khodak 2020, Algorithm 1 and App. B.1."""

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from archray.errors import InvalidInput
from archray.plurals import count
from archray.searchers.arguments import FloatArray, check_whole_number, is_number
from archray.searchers.base import WAIT, ArchraySearcher, Proposal
from archray.searchers.ledger import FAILED, MAX_REASON, Record

# Rounds

ROUNDING = 1e-12  # relative tolerance: in floating point 0.07 * 100 > 7, which must not be rounded up to 8
MAX_NAMED = 5  # maximum number of candidates that a log line names
COLUMNS = ["round", "candidate", "score", "kept", "failure", "budget", "replicas", "lost"]

logger = logging.getLogger(__name__)


def _ceil(x: float) -> int:
    return math.ceil(x * (1 - ROUNDING))


def survivor_count(n: int, keep: float) -> int:
    """Returns how many of n >= 2 candidates a round keeps: ceil(keep n), but at most n - 1."""
    return min(_ceil(keep * n), n - 1)


def round_sizes(n: int, keep: float) -> list[int]:
    """Returns the number of candidates of each of the T rounds, first to last."""
    sizes = []
    while n > 1:
        sizes.append(n)
        n = survivor_count(n, keep)
    return sizes


def round_budget(budget: int, growth: float, rounds_after: int) -> int:
    """Returns d_t = ceil(budget growth^(t - T)) of a round that `rounds_after` = T - t rounds follow."""
    return max(1, _ceil(budget * growth**-rounds_after))


def average(scores: FloatArray) -> FloatArray:
    """Returns the means, (replicas, candidates) -> (candidates,); NaN without replicas or with a non-finite score."""
    if not len(scores):
        return np.full(scores.shape[1], np.nan)
    return np.where(np.isfinite(scores).all(axis=0), scores, np.nan).mean(axis=0)


def rank(losses: FloatArray, rng: np.random.Generator) -> NDArray[np.intp]:
    """Returns the positions of the candidates with a loss, lowest first; `rng` breaks ties."""
    order = np.lexsort((rng.permutation(len(losses)), losses))
    return order[np.isfinite(losses[order])]


@dataclass(frozen=True)
class Round:
    """A round, or the standalone trial that follows the last round."""

    number: int  # t = 1, ..., T; T + 1 for the standalone trial
    candidates: Sequence[Any]  # (C,); C = 1 for the standalone trial
    budget: int  # d_t
    numbers: range  # the numbers of its suggestions, one per replica


@dataclass(frozen=True)
class EndedRound(Round):
    """A round whose trials have all ended."""

    failures: Mapping[int, str]  # replica -> the reason why it has no scores
    scores: FloatArray  # (replicas that reported, C), with the metric's sign
    ranking: Sequence[int]  # positions of the candidates with an average score, best first
    survivors: Sequence[int]  # positions of the candidates of the next round, in the order of `candidates`

    @property
    def replicas(self) -> list[int]:
        """The replicas that reported."""
        return [replica for replica in range(len(self.numbers)) if replica not in self.failures]

    def failure(self, position: int) -> str | None:
        """Returns the reason why the candidate at `position` has no average score; None if it has one."""
        if not len(self.scores):
            return f"no replica reported: {next(iter(self.failures.values()))}"
        failed = int((~np.isfinite(self.scores[:, position])).sum())
        return f"non-finite score in {failed} of {count(len(self.scores), 'replica')}" if failed else None

    def rows(self) -> list[dict[str, Any]]:
        """Returns a row per candidate, see `WeightSharingHalving.rounds`."""
        return [
            {
                "round": self.number,
                "candidate": candidate_name(candidate),
                "score": score,
                "kept": position in self.survivors,
                "failure": self.failure(position),
                "budget": self.budget,
                "replicas": len(self.replicas),
                "lost": len(self.failures),
            }
            for position, (candidate, score) in enumerate(zip(self.candidates, average(self.scores), strict=True))
        ]


@dataclass(frozen=True)
class Schedule:
    """The schedule of rounds. Its attributes are the arguments of `WeightSharingHalving`."""

    replicas: int
    keep: float
    budget: int
    growth: float

    def following(self, ended: EndedRound) -> Round | None:
        """Returns the next round; None after the standalone trial, or if no candidate is left."""
        if len(ended.candidates) == 1 or not ended.survivors:
            return None
        return self.round(ended.number + 1, [ended.candidates[position] for position in ended.survivors])

    def round(self, number: int, candidates: Sequence[Any]) -> Round:
        rounds_left = len(round_sizes(len(candidates), self.keep))  # with this round; 0 for the standalone trial
        budget = round_budget(self.budget, self.growth, max(rounds_left - 1, 0))
        start = 1 + (number - 1) * self.replicas
        return Round(number, candidates, budget, range(start, start + (self.replicas if rounds_left else 1)))

    def end(
        self, current: Round, replies: Sequence[list[float] | str], sign: int, rng: np.random.Generator
    ) -> EndedRound:
        """Ends a round: averages over the replicas that reported, and selects the survivors.

        Args:
            replies: for each replica its scores, or the reason why it has none.
            sign: 1 if the lowest score is best, else -1.
        """
        n = len(current.candidates)
        failures = {replica: reply for replica, reply in enumerate(replies) if isinstance(reply, str)}
        reported = [reply for reply in replies if not isinstance(reply, str)]
        scores = np.array(reported, dtype=float).reshape(len(reported), n)
        ranking = rank(sign * average(scores), rng).tolist()
        survivors = sorted(ranking[: survivor_count(n, self.keep) if n > 1 else 1])
        return EndedRound(**vars(current), failures=failures, scores=scores, ranking=ranking, survivors=survivors)


def check_candidates(candidates: Sequence[Any]) -> list[Any]:
    """Returns the candidates in the form of a JSON round trip. Raises: InvalidInput for invalid candidates."""
    if not isinstance(candidates, Sequence) or isinstance(candidates, str):
        raise InvalidInput(f"candidates: expected a list of JSON values, got a {type(candidates).__name__}")
    by_name: dict[str, Any] = {}
    for position, candidate in enumerate(candidates):
        try:
            name = json.dumps(candidate, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            problem = f"got {candidate!r} at position {position}: {error}"
            raise InvalidInput(f"candidates: expected JSON values, {problem}") from error
        if name in by_name:
            raise InvalidInput(
                f"candidates: expected distinct values, got {candidate_name(candidate)} twice. List each value once."
            )
        by_name[name] = json.loads(json.dumps(candidate))
    checked = list(by_name.values())
    if len(checked) < 2:
        got = f"only {candidate_name(checked[0])}" if checked else "none"
        raise InvalidInput(f"candidates: expected two or more, got {got}. List more candidates.")
    return checked


def candidate_name(candidate: Any) -> str:
    """Returns a candidate as text for tables and logs: a string unchanged, any other value as JSON."""
    return candidate if isinstance(candidate, str) else json.dumps(candidate)


def reply_of(record: Record, result: Mapping[str, Any]) -> list[float] | str:
    """Returns the scores of an ended trial, or the reason why they do not count.

    A single NaN score makes the mean NaN, and eliminates only its candidate.

    Args:
        result: the complete result of the trial, for the error message.

    Raises: InvalidInput for unusable scores or weights.
    """
    failure, weights, scores = (record.result.get(key) for key in ("failure", "weights", "scores"))
    if failure:
        return str(failure)[:MAX_REASON]
    numbers = scores if isinstance(scores, list) and all(map(is_number, scores)) else []
    if not any(map(math.isfinite, numbers)):
        if record.failure:
            return record.failure
        if numbers:
            return "no finite score"
    if weights is not None and not isinstance(weights, str):
        raise InvalidInput(
            f"Expected the trial to report 'weights' as a URI or None, got a {type(weights).__name__}. Write the "
            "weights to storage that every node can read, and report the URI."
        )
    candidates = len(record.config["candidates"])
    if "scores" not in record.result:
        spread = [key for key in result if key.startswith("scores/")]  # Tune flattens dictionaries
        got = f"a dictionary with {count(len(spread), 'entry', 'entries')}" if spread else "no scores"
    elif not isinstance(scores, list):
        got = repr(scores)[:MAX_REASON]
    elif len(numbers) < len(scores):
        got = f"a list with {next(score for score in scores if not is_number(score))!r}"[:MAX_REASON]
    elif len(scores) != candidates:
        got = f"a list of {len(scores)}"
    else:
        return [float(score) for score in scores]
    raise InvalidInput(
        f"Expected the trial to report 'scores', a list of {count(candidates, 'number')}, got {got}. "
        "Report one number for each entry of config['candidates'], in the same order (NaN for a failed candidate), "
        "and their mean as the metric."
    )


# Searcher


class WeightSharingHalving(ArchraySearcher):
    """Successive halving: selects one of many candidates in about log2 |C| solves with shared weights (Algorithm 1).

    For rounds t = 1, ..., T, until one candidate is left in C:
    1. Suggest `replicas` trials at the budget d_t. Each trial assigns a candidate drawn from C to every data point,
       solves the resulting problem, and scores every candidate by the shared solution.
    2. Average the score s_c of each candidate c over the replicas.
    3. Keep the ceil(keep |C|) candidates with the best s_c.
    4. After round T, suggest one standalone trial of the last candidate, at the full budget.
    `best()` returns the best candidate of the latest round that has ended, step 4 included.

    Suggests: `round`, `candidates` (a list), `replica`, `budget`, `warm_start` (a URI or None), `seed`.
    Needs: `scores`: a number for each candidate, in their order (NaN for a failed one); the metric: their mean;
    `weights`: a URI, if the next round can start from it.
    Takes: two or more candidates, any JSON values.

    The standalone trial is round T + 1. The `warm_start` of a replica is the weights that the same replica stored in
    the previous round, else the first stored weights.

    A replica is lost if it reports a `failure` or only NaN, or if Tune gives it up. The round continues with the other
    replicas, and eliminates each candidate without a finite score in all of them. The log and `rounds()` list lost
    replicas and eliminated candidates.

    Deviations from the paper: The paper keeps all candidates that are no worse than the median, which may never end.
    Here a seeded draw breaks ties, so a round keeps exactly ceil(keep |C|). If eliminated candidates make rounds
    unnecessary, the budgets are those of the remaining rounds.

    Args:
        candidates: two or more different JSON values: feature maps, architectures, dictionaries.
        replicas: trials per round, each with its own seed. Set it to the number of trials that can run concurrently; a
            larger `max_concurrent_trials` has no effect.
        keep: the share of candidates that a round keeps.
        budget: d, the full budget, in the trainable's units: feature dimension, or epochs.
        growth: d_t = ceil(budget growth^(t - T)). 1 is Algorithm 1; sqrt(2) is Fast Weight-Sharing (App. B.1).
        metric, mode, seed, max_concurrent: see `ArchraySearcher`. `mode` also applies to the scores.

    Raises: InvalidInput for an invalid argument. After unusable scores, `suggest` raises it too, which ends the run.

    Example:
        ```python
        def train_all(config):
            scores = [len(candidate) for candidate in config["candidates"]]
            return {"scores": scores, "mean": sum(scores) / len(scores), "weights": None}


        search = WeightSharingHalving(["a", "bb", "ccc", "dddd"], budget=8, metric="mean", mode="max")
        drive(search, train_all)
        print(search.best()["candidate"])  # dddd
        ```
    """

    result_keys: ClassVar[tuple[str, ...]] = ("scores", "weights", "failure")
    state_fields: ClassVar[tuple[str, ...]] = ("_rounds_logged",)

    def __init__(
        self,
        candidates: Sequence[Any],
        replicas: int = 1,
        keep: float = 0.5,
        budget: int = 1,
        growth: float = 1.0,
        metric: str | None = None,
        mode: str | None = None,
        seed: int = 0,
        max_concurrent: int | None = None,
    ) -> None:
        check_whole_number("replicas", replicas)
        check_whole_number("budget", budget)
        if not is_number(keep) or not 0 < keep < 1:
            raise InvalidInput(f"keep: expected a share between 0 and 1, got {keep!r}")
        if not is_number(growth) or not 1 <= growth < math.inf:
            raise InvalidInput(f"growth: expected a factor of 1 or more, got {growth!r}")
        self.candidates = check_candidates(candidates)
        self._schedule = Schedule(int(replicas), float(keep), int(budget), float(growth))
        self._rounds: list[EndedRound] = []  # a function of the records; not part of the state
        self._rounds_logged = 0  # number of rounds whose lost replicas and candidates are logged
        self._problem: InvalidInput | None = None  # an unusable report of a trial
        super().__init__(budget=None, metric=metric, mode=mode, seed=seed, max_concurrent=max_concurrent)

    @property
    def expected_trials(self) -> int:
        """The number of trials of the search, provided that every candidate has a score."""
        return len(round_sizes(len(self.candidates), self._schedule.keep)) * self._schedule.replicas + 1

    @property
    def failure(self) -> str | None:
        """The reason why the winner's standalone trial has no score; None if it has one."""
        ended = self._finished_rounds()
        if not ended or ended[-1].survivors:
            return None
        last = ended[-1]
        if len(last.candidates) == 1:
            return f"the standalone trial: {last.failure(0)}"
        return f"round {last.number}: " + ("no candidate has a finite score" if last.replicas else str(last.failure(0)))

    def best(self) -> dict[str, Any] | None:
        """Returns the best candidate of the latest round that has one; None before the first round has ended.

        Keys: `candidate`, `value` (its score), `number` (of the first trial that scored it), `round`.

        Raises: SearcherStateError if the saved state could not be loaded.
        """
        for ended in reversed(self._finished_rounds()):
            if ended.ranking:
                leader = ended.ranking[0]
                number = ended.numbers[ended.replicas[0]]
                value = float(average(ended.scores)[leader])
                return {"candidate": ended.candidates[leader], "value": value, "number": number, "round": ended.number}
        return None

    def rounds(self) -> pd.DataFrame:
        """Returns a table with one row per ended round and candidate, the standalone trial included.

        Columns: round, candidate (a string, or JSON), score (the average; NaN without one), kept, failure (the reason
        for a missing score), budget, replicas (how many reported), lost (how many did not).

        Raises: SearcherStateError if the saved state could not be loaded.
        """
        rows = [row for ended in self._finished_rounds() for row in ended.rows()]
        return pd.DataFrame(rows, columns=COLUMNS)

    def propose(self, number: int) -> Proposal:
        ended = self._finished_rounds()
        current = self._schedule.following(ended[-1]) if ended else self._schedule.round(1, self.candidates)
        if current is None:
            return None
        if number not in current.numbers:
            return WAIT  # all trials of this round are suggested, but some have not ended
        replica = number - current.numbers.start
        return {
            "round": current.number,
            "candidates": list(current.candidates),
            "replica": replica,
            "budget": current.budget,
            "warm_start": self._warm_start(ended[-1], replica) if ended else None,
        }

    def _finished_rounds(self) -> list[EndedRound]:
        """Returns all rounds whose trials have ended. Raises: SearcherStateError, InvalidInput."""
        self.check_restored()
        while True:
            last = self._rounds[-1] if self._rounds else None
            current = self._schedule.following(last) if last else self._schedule.round(1, self.candidates)
            if current is None:
                return self._rounds
            records = [self.ledger.records.get(number) for number in current.numbers]
            replies = [
                # A trial that was repaired after the suggestions of the next round does not count.
                FAILED if (record.repaired or 0) > current.numbers.stop else reply_of(record, {})
                for record in records
                if record is not None and record.ended
            ]
            if len(replies) < len(records):
                return self._rounds
            rng = self.rng("weight-sharing-halving", "ties", current.number)
            self._rounds.append(self._schedule.end(current, replies, 1 if self._mode == "min" else -1, rng))
            if current.number > self._rounds_logged:
                self._rounds_logged = current.number
                _log_losses(self._rounds[-1])

    def _warm_start(self, last: EndedRound, replica: int) -> str | None:
        """Returns the replica's weights of the last round, otherwise the weights of the first replica with any."""
        stored = {r: self.ledger.records[last.numbers[r]].result.get("weights") for r in last.replicas}
        return stored.get(replica) or next((weights for weights in stored.values() if weights), None)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]  # Ray omits FINISHED
        """Suggests as `ArchraySearcher.suggest` does. Raises: InvalidInput if a trainable reported unusable scores."""
        if self._problem is not None:
            raise self._problem
        return super().suggest(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Ends a trial. If its trainable reported unusable scores, the next `suggest` raises InvalidInput."""
        record = self.ledger.recognize(trial_id, result or {})
        repairs = record is not None and record.errored and not error
        counts = repairs or (record is not None and not record.ended)
        super().on_trial_complete(trial_id=trial_id, result=result, error=error)
        if record is None or not counts:
            return
        if repairs:
            self._rounds = []  # computed again
        try:
            with self._timed():
                reply_of(record, result or {})
                self._finished_rounds()
        except InvalidInput as problem:  # if it were raised here, Tune would run the trial again
            self._problem = self._problem or problem

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        raise InvalidInput(
            f"Expected no external evaluation, got {point!r}. {type(self).__name__} scores its candidates together. "
            "Leave the evaluation out."
        )

    def search_identity(self) -> dict[str, Any]:
        text = json.dumps(self.candidates, sort_keys=True).encode()
        return {
            "candidates": f"{len(self.candidates)} of SHA-256 {hashlib.sha256(text).hexdigest()[:12]}",
            **asdict(self._schedule),
        }

    def set_search_state(self, state: dict[str, Any]) -> None:
        super().set_search_state(state)
        self._rounds = []


def _log_losses(ended: EndedRound) -> None:
    """Logs the replicas and candidates that a round lost."""
    for replica, reason in ended.failures.items():
        left = f"{len(ended.replicas)} of {len(ended.numbers)} are left" if ended.replicas else "none is left"
        logger.warning("Round %d: replica %d is lost (%s); %s.", ended.number, replica, reason, left)
    failed = [candidate_name(c) for position, c in enumerate(ended.candidates) if position not in ended.ranking]
    if failed and ended.replicas:
        names = ", ".join(failed[:MAX_NAMED]) + (", ..." if len(failed) > MAX_NAMED else "")
        logger.warning("Round %d: eliminated without a finite score: %d (%s).", ended.number, len(failed), names)
