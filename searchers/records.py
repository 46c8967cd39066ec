"""What a searcher remembers of one trial: what was suggested, what came of it. Plain data, JSON-able."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, SupportsFloat

# A failed trial's reason is shown in tables; a whole traceback is in Tune's own error file.
MAX_REASON = 500


@dataclass
class Record:
    """One trial, or one evaluation that the user handed over.

    Args:
        number: 1, 2, ... in the order of suggestion; -1, -2, ... for evaluations handed over.
        trial_id: Tune's id; None for an evaluation handed over, and for a trial that Tune lost (it will be
            suggested again, under a new id).
        config: what was suggested.
        ended: whether its result is in.
        value: the metric; None while the trial runs, and when it failed.
        failure: why there is no value.
        result: the further entries of the result that the searcher asked to keep.
    """

    number: int
    trial_id: str | None
    config: dict[str, Any]
    ended: bool = False
    value: float | None = None
    failure: str | None = None
    result: dict[str, Any] = field(default_factory=dict)

    def end(self, value: float | None, failure: str | None) -> None:
        self.ended, self.value, self.failure = True, value, failure

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """The record that `to_dict` described; keys of a later version are left out."""
        return cls(**{key: data[key] for key in cls.__dataclass_fields__ if key in data})


def read_metric(result: Mapping[str, Any] | None, metric: str) -> tuple[float | None, str | None]:
    """`(value, None)`, or `(None, reason)` where `result` holds no finite number under `metric`.

    A trainable that reports NaN says why under `failure`; that reason is kept.
    """
    if not result:
        return None, "the trial ended without a result"
    if metric not in result:
        own = sorted(key for key in result if "/" not in key)
        return None, f"the result has no {metric!r}; it has {', '.join(own[:20])}"[:MAX_REASON]
    reported = result[metric]
    if not isinstance(reported, SupportsFloat) or isinstance(reported, str):
        return None, f"{metric} is no number: {reported!r}"[:MAX_REASON]
    value = float(reported)
    if math.isfinite(value):
        return value, None
    reason = result.get("failure")
    return None, str(reason)[:MAX_REASON] if reason else f"{metric} is {value}"


def plain(value: Any) -> Any:
    """What JSON can hold of an entry of a result: arrays and their numbers, in lists too, as Python's own."""
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value
