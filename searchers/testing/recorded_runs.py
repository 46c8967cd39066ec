"""What trials score in the conformance suite, and how a searcher's suggestions are written down."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ray.tune.search import Searcher

Evaluator = Callable[[dict[str, Any]], Mapping[str, Any] | float]
Configs = list[dict[str, Any]]


def hashed_score(config: Mapping[str, Any]) -> float:
    """A score in [0, 1) that looks random but is a function of what the searcher suggested, its seed apart."""
    return fraction({key: value for key, value in config.items() if key != "seed"})


def fraction(value: Any) -> float:
    """A number in [0, 1) from the SHA-256 of a JSON value."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def tune_result(evaluate: Evaluator, config: dict[str, Any], iteration: int) -> dict[str, Any]:
    """A result as Tune hands it over."""
    reported = evaluate(config)
    own = dict(reported) if isinstance(reported, Mapping) else {"score": reported}
    return {**own, "training_iteration": iteration, "done": False, "trial_id": "as Tune has it"}


def failing(evaluate: Evaluator, failure: Callable[[], Any]) -> Evaluator:
    """`evaluate`, with `failure()` instead of a score for about a third of the configs."""
    return lambda config: failure() if fraction(config) < 1 / 3 else evaluate(config)


def fail() -> Any:
    """What a trial does that fails."""
    raise RuntimeError("this trial fails")


def assert_finite_best(searcher: Searcher) -> None:
    """A searcher that has `best()` must not choose a trial without a value."""
    best = searcher.best() if hasattr(searcher, "best") else None
    assert best is None or math.isfinite(best["value"])


@dataclass
class Suggestions:
    """What a searcher suggested, in order, and which of these trials are in flight, by trial id."""

    configs: Configs = field(default_factory=list)
    in_flight: dict[str, dict[str, Any]] = field(default_factory=dict)


@contextmanager
def recorded(searcher: Searcher) -> Iterator[Suggestions]:
    """What `searcher` suggests meanwhile. Afterwards it is as it was: some pickle themselves, with all they have."""
    told = Suggestions()
    suggest, complete = searcher.suggest, searcher.on_trial_complete

    def suggesting(trial_id: str) -> Any:
        config = suggest(trial_id)
        if isinstance(config, dict):
            told.configs.append(dict(config))
            told.in_flight[trial_id] = dict(config)
        return config

    def completing(trial_id: str, **ending: Any) -> None:
        told.in_flight.pop(trial_id, None)
        complete(trial_id=trial_id, **ending)

    before = dict(vars(searcher))
    vars(searcher).update(suggest=suggesting, on_trial_complete=completing)
    try:
        yield told
    finally:
        for name in ("suggest", "on_trial_complete"):
            vars(searcher).pop(name)
            if name in before:
                vars(searcher)[name] = before[name]
