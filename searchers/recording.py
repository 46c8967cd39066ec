"""A searcher that keeps a book of its trials: its best, its history, and its whole state.

What it suggests is none of this file's: see `base`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pandas as pd

from archray.searchers.arguments import check_metric_mode
from archray.searchers.ledger import Ledger, Record
from archray.searchers.state import PersistentSearcher, SearcherStateError, TuneTrial


class RecordingSearcher(PersistentSearcher):
    """Holds a `Ledger`, and is saved and restored with it.

    Args:
        metric, mode: as in Tune.

    Raises: InvalidInput for a wrong argument.
    """

    result_keys: ClassVar[tuple[str, ...]] = ()  # entries of a trial's result that are kept in its record

    def __init__(self, metric: str | None, mode: str | None) -> None:
        check_metric_mode(metric, mode)
        super().__init__(metric=metric, mode=mode)
        self.ledger = Ledger(self.result_keys)

    # What a subclass may define ------------------------------------------------------------------------------------

    def own_identity(self) -> dict[str, Any]:
        """The subclass's settings that a saved state must share with the searcher that loads it. JSON-able."""
        return {}

    def own_state(self) -> dict[str, Any]:
        """What the subclass keeps between calls. JSON-able."""
        return {}

    def set_own_state(self, state: dict[str, Any]) -> None:
        """Takes what `own_state` gave."""

    # What a subclass and a reader use ------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """All trials in the order of suggestion, and the evaluations handed over."""
        return list(self.ledger.records.values())

    def in_flight(self) -> dict[str, dict[str, Any]]:
        """Configs of the trials that were suggested and have not ended, by trial id."""
        return {r.trial_id: r.config for r in self.records() if not r.ended and r.trial_id is not None}

    def loss(self, record: Record) -> float | None:
        """The value as something to minimise; None for a trial without one."""
        if record.value is None:
            return None
        return record.value if self._mode == "min" else -record.value

    def best(self) -> dict[str, Any] | None:
        """The config with the best value, with its `number` and `value`; None if no trial has one.

        Of equal values, the one suggested first. Raises: SearcherStateError if its state could not be read.
        """
        self.check_restored()
        losses = [(self.loss(record), record) for record in self.records()]
        finite = [(loss, abs(record.number), record) for loss, record in losses if loss is not None]
        if not finite:
            return None
        record = min(finite, key=lambda entry: entry[:2])[2]
        return {**record.config, "number": record.number, "value": record.value}

    def history(self) -> pd.DataFrame:
        """A row per trial: number, trial_id, the config's keys, value (NaN if it failed), failure, given.

        Raises: SearcherStateError if its state could not be read.
        """
        self.check_restored()
        rows = [self.row(record) for record in self.records()]
        frame = pd.DataFrame(rows, columns=None if rows else ["number", "trial_id", "value", "failure", "given"])
        return frame.astype({"seed": "Int64"}) if "seed" in frame else frame  # none for what was handed over

    def row(self, record: Record) -> dict[str, Any]:
        """A record as a row of the history."""
        value = float("nan") if record.value is None else record.value
        failure = record.failure if record.ended else "has not ended"
        return {"number": record.number, "trial_id": record.trial_id, **record.config} | {
            "value": value,
            "failure": failure,
            "given": record.number < 0,
        }

    # State ---------------------------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """All settings that a saved state must share with the searcher that loads it. JSON-able."""
        return self.own_identity()

    def get_state(self) -> dict[str, Any]:
        """All that a searcher made with the same arguments needs to continue. Plain data."""
        return {
            "class": type(self).__name__,
            "identity": self._plain_identity(),
            "metric": self._metric,
            "mode": self._mode,
            "ledger": self.ledger.get_state(),
            "own": self.own_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from `get_state`. Raises: SearcherStateError if it is of a search with other settings."""
        if state.get("class") != type(self).__name__:
            raise SearcherStateError(f"expected the state of a {type(self).__name__}, got {state.get('class')!r}")
        ours, theirs = self._plain_identity(), dict(state.get("identity", {}))
        for key, own in (("metric", self._metric), ("mode", self._mode)):
            if own and state.get(key):
                ours[key], theirs[key] = own, state[key]
        differing = [
            f"{key} was {theirs[key]!r}, now {ours[key]!r}"
            for key in ours
            if key in theirs and ours[key] != theirs[key]
        ]
        if differing:
            raise SearcherStateError(
                f"the state is of a search with other settings: {'; '.join(differing)}; use the same ones"
            )
        self._metric = self._metric or state.get("metric")
        self._mode = self._mode or state.get("mode")
        self.ledger.set_state(state.get("ledger", {}))
        self.set_own_state(state.get("own", {}))

    def reconcile(self, trials: Sequence[TuneTrial]) -> None:
        if self._metric:
            self.ledger.reconcile(trials, self._metric)

    def _plain_identity(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(self.identity()))  # as it reads after a round trip
        return plain
