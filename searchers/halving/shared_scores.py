"""What a solve with shared weights is given and reports back: candidates, their scores, the URI of the weights."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from archray.errors import InvalidInput
from archray.searchers.arguments import is_number
from archray.searchers.ledger import MAX_REASON, Record


def check_candidates(candidates: Sequence[Any]) -> list[Any]:
    """The candidates as they read after a round trip through JSON. Raises: InvalidInput."""
    if not isinstance(candidates, Sequence) or isinstance(candidates, str):
        raise InvalidInput(f"candidates: expected a list of JSON values, got a {type(candidates).__name__}")
    names: set[str] = set()
    checked = []
    for position, candidate in enumerate(candidates):
        try:
            name = json.dumps(candidate, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"candidates: expected JSON values, got {candidate!r} at position {position}: {error}"
            ) from error
        if name in names:
            raise InvalidInput(
                f"candidates: expected different ones, got {candidate_name(candidate)} twice; list each once"
            )
        names.add(name)
        checked.append(json.loads(json.dumps(candidate)))
    if len(checked) < 2:
        got = f"only {candidate_name(checked[0])}" if checked else "none"
        raise InvalidInput(f"candidates: expected two or more to select from, got {got}; list more")
    return checked


def candidate_name(candidate: Any) -> str:
    """A candidate in a table or a line of the log: itself if it is a string, else its JSON."""
    return candidate if isinstance(candidate, str) else json.dumps(candidate)


def reason_of_loss(record: Record) -> str | None:
    """Why the scores of an ended trial do not count; None if they do, or are there and unusable.

    A mean that is NaN because some candidates' scores are loses nothing but these candidates.
    """
    reported = record.result.get("failure")
    if reported:
        return str(reported)[:MAX_REASON]
    scores = record.result.get("scores")
    numbers = scores if isinstance(scores, list) and all(map(is_number, scores)) else []
    if any(map(math.isfinite, numbers)):
        return None
    return record.failure or ("none of its scores is finite" if numbers else None)


def read_scores(result: Mapping[str, Any], count: int) -> list[float]:
    """The entry `scores` of a result as Tune hands it over.

    Args:
        count: how many candidates the trial was given.

    Raises: InvalidInput if it is not one number per candidate.
    """
    scores = result.get("scores")
    if "scores" not in result:
        spread = [key for key in result if key.startswith("scores/")]
        got = f"a dictionary with {len(spread)} entries" if spread else "no scores"
    elif not isinstance(scores, list):
        got = repr(scores)[:MAX_REASON]
    elif odd := [score for score in scores if not is_number(score)]:
        got = f"a list with {odd[0]!r}"[:MAX_REASON]
    elif len(scores) != count:
        got = f"a list of {len(scores)}"
    else:
        return [float(score) for score in scores]
    raise InvalidInput(
        f"expected the trial to report 'scores', a list of {count} numbers, got {got}; report one number for each of "
        "config['candidates'], in their order (NaN for one that failed), beside the metric, which is their mean"
    )


def check_weights(result: Mapping[str, Any]) -> None:
    """Raises: InvalidInput if the entry `weights` of a result is neither a URI nor None."""
    weights = result.get("weights")
    if weights is not None and not isinstance(weights, str):
        raise InvalidInput(
            f"expected the trial to report 'weights' as a URI, or None, got a {type(weights).__name__}; write the "
            "weights to storage that every node reads, and report where"
        )
