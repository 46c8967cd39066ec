"""A searcher that keeps a book of its trials, and is saved and restored whole with it.

What it suggests is none of this file's: see `base`. Its state on disk is written whole or not at all, and brought in
line with what Tune itself saved: Tune writes its own state and the searcher's one after the other, and copies both to
storage in the background, so a driver that is killed can leave files of two moments.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from ray.tune.search import Searcher

from archray.errors import ArchrayError, IncompatibleRay
from archray.files import write_file
from archray.searchers.arguments import check_metric_mode
from archray.searchers.ledger import Ledger, Record, read_tune_trials

logger = logging.getLogger(__name__)

FORMAT = 2  # raised when a state of before can no longer be read


class SearcherStateError(ArchrayError):
    """A searcher's saved state that cannot be read, or belongs to a search with other settings."""


def write_state(path: str | Path, state: dict[str, Any]) -> None:
    """Writes `state` as JSON, whole or not at all."""
    write_file(path, json.dumps({"format": FORMAT, **state}).encode())


def read_state(path: str | Path) -> dict[str, Any]:
    """The state in `path`. Raises: SearcherStateError if it is absent, damaged, or of another format."""
    try:
        state = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SearcherStateError(f"the searcher's state {path} cannot be read ({error})") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        other = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise SearcherStateError(
            f"the searcher's state {path} has format {other!r}, this archray reads format {FORMAT}; "
            "continue with the archray version that wrote it"
        )
    return state


class RecordingSearcher(Searcher):
    """Holds a `Ledger`, and is saved and restored whole, with it."""

    _restore_problem: ArchrayError | None = None
    result_keys: ClassVar[tuple[str, ...]] = ()  # entries of a trial's result that are kept in its record

    def __init__(self, metric: str | None, mode: str | None) -> None:
        check_metric_mode(metric, mode)
        super().__init__(metric=metric, mode=mode)
        self.ledger = Ledger(self.result_keys)

    # What a subclass may define ------------------------------------------------------------------------------------

    def search_identity(self) -> dict[str, Any]:
        """The subclass's settings that a saved state must share with the searcher that loads it. JSON-able."""
        return {}

    def search_state(self) -> dict[str, Any]:
        """What the subclass keeps between calls. JSON-able."""
        return {}

    def set_search_state(self, state: dict[str, Any]) -> None:
        """Takes what `search_state` gave."""

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
        row = {"number": record.number, "trial_id": record.trial_id, **record.config}
        return row | {"value": value, "failure": failure, "given": record.number < 0}

    # State ---------------------------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """All settings that a saved state must share with the searcher that loads it. JSON-able."""
        return self.search_identity()

    def get_state(self) -> dict[str, Any]:
        """All that a searcher made with the same arguments needs to continue. Plain data."""
        return {
            "class": type(self).__name__,
            "identity": self._plain_identity(),
            "metric": self._metric,
            "mode": self._mode,
            "ledger": self.ledger.get_state(),
            "search": self.search_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from `get_state`. Raises: SearcherStateError if it is of a search with other settings."""
        if state.get("class") != type(self).__name__:
            raise SearcherStateError(f"expected the state of a {type(self).__name__}, got {state.get('class')!r}")
        identity, saved = self._plain_identity(), dict(state.get("identity", {}))
        for key, setting in (("metric", self._metric), ("mode", self._mode)):
            if setting and state.get(key):
                identity[key], saved[key] = setting, state[key]
        differing = [
            f"{key} was {saved[key]!r}, now {identity[key]!r}"
            for key in identity
            if key in saved and identity[key] != saved[key]
        ]
        if differing:
            raise SearcherStateError(
                f"the state is of a search with other settings: {'; '.join(differing)}; use the same ones"
            )
        self._metric = self._metric or state.get("metric")
        self._mode = self._mode or state.get("mode")
        self.ledger.set_state(state.get("ledger", {}))
        self.set_search_state(state.get("search", {}))

    def _plain_identity(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.identity()))  # as it reads after a round trip

    def save(self, checkpoint_path: str) -> None:
        write_state(checkpoint_path, self.get_state())

    def restore(self, checkpoint_path: str) -> None:
        """Continues from a saved state.

        Tune answers an exception here by silently starting a new experiment, so a state that cannot be used is
        logged, and raised by the next `suggest`, which ends the run.
        """
        try:
            self.set_state(read_state(checkpoint_path))
            self._restore_problem = None
        except Exception as error:
            logger.error("%s cannot continue from %s: %s", type(self).__name__, checkpoint_path, error)
            if not isinstance(error, SearcherStateError):
                error = SearcherStateError(f"{checkpoint_path}: {error!r}")
            self._restore_problem = error

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Continues from the newest readable state in a folder of Tune's, brought in line with Tune's own trials."""
        files = sorted(Path(checkpoint_dir).glob(self.CKPT_FILE_TMPL.format("*")), reverse=True)
        if not files:
            self._restore_problem = SearcherStateError(f"there is no searcher state in {checkpoint_dir}")
            logger.error("%s", self._restore_problem)
        for file in files:
            self.restore(str(file))
            if self._restore_problem is None:
                break
        if self._restore_problem is not None or not self._metric:
            return
        try:
            trials = read_tune_trials(checkpoint_dir, self.ledger.settled)
        except IncompatibleRay as error:  # raised by the next `suggest`, see `restore`
            logger.error("%s", error)
            self._restore_problem = error
            return
        if trials is not None:
            self.ledger.reconcile(trials, self._metric)

    def check_restored(self) -> None:
        """Raises: SearcherStateError or IncompatibleRay if the state it was to continue from could not be used."""
        if self._restore_problem is not None:
            raise self._restore_problem
