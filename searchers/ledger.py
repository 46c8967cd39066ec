"""The ledger of a search: suggested trials and external evaluations, by number and by Tune's trial id; its file."""

import json
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, SupportsFloat

from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from archray.errors import ArchrayError
from archray.files import write_file

logger = logging.getLogger(__name__)

FAILED = "the trial failed; its folder contains an error file with the reason"  # saved states contain this text
FORMAT = 2  # format of a saved state; other formats are rejected
EXPERIMENT_STATE = "experiment_state-"  # start of the name of the file in which Tune saves its trials
MAX_REASON = 500  # characters of a reason, which tables show; Tune's error file has the whole traceback


@dataclass
class Record:
    """The record of a trial or of an external evaluation. Plain data, JSON-able.

    Args:
        number: 1, 2, ... in the order of suggestion; -1, -2, ... for external evaluations.
        trial_id: Tune's id; None for an external evaluation, and for a trial that Tune lost (it is suggested again,
            under a new id).
        config: the suggested config.
        ended: whether the trial has ended.
        value: the metric; None while the trial runs, and if it failed.
        failure: the reason of a missing value.
        result: the entries of the result in the searcher's `result_keys`.
        repaired: the number of the first suggestion after a result replaced the error of this trial, else None.
            Earlier suggestions depend on the error, later suggestions on the result.
    """

    number: int
    trial_id: str | None
    config: dict[str, Any]
    ended: bool = False
    value: float | None = None
    failure: str | None = None
    result: dict[str, Any] = field(default_factory=dict)
    repaired: int | None = None

    @property
    def errored(self) -> bool:
        """Whether the trial raised an error. `Tuner.restore(..., resume_errored=True)` runs it again."""
        return self.ended and self.failure == FAILED

    def end(self, value: float | None, failure: str | None) -> None:
        self.ended, self.value, self.failure = True, value, failure


def read_metric(result: Mapping[str, Any] | None, metric: str) -> tuple[float | None, str | None]:
    """Returns `(value, None)`, or `(None, reason)` if `result` has no finite number under `metric`.

    The reason for a NaN is the entry `failure` of the result, if it exists.
    """
    if not result:
        return None, "the trial ended without a result"
    if metric not in result:
        keys = sorted(key for key in result if "/" not in key)
        return None, f"the result has no {metric!r}; it has {', '.join(keys[:20])}"[:MAX_REASON]
    reported = result[metric]
    if not isinstance(reported, SupportsFloat) or isinstance(reported, str):
        return None, f"{metric} is not a number: {reported!r}"[:MAX_REASON]
    value = float(reported)
    if math.isfinite(value):
        return value, None
    reason = result.get("failure")
    return None, str(reason)[:MAX_REASON] if reason else f"{metric} is {value}"


@dataclass(frozen=True)
class TuneTrial:
    """A trial of Tune's saved experiment. `status` is PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""

    trial_id: str
    config: dict[str, Any]
    status: str
    last_result: dict[str, Any]

    @classmethod
    def read(cls, description: str, progress: str) -> "TuneTrial":
        """Returns the trial with these two parts of a saved state."""
        trial = Trial.from_json_state(description, stub=True)
        trial.restore_run_metadata(progress)
        return cls(trial.trial_id, dict(trial.config), trial.status, flatten_dict(trial.last_result or {}))

    @property
    def ended(self) -> bool:
        return self.status in ("TERMINATED", "ERROR")

    @property
    def failed(self) -> bool:
        return self.status == "ERROR"


def read_tune_trials(folder: str | Path, settled: Collection[str] = ()) -> list[TuneTrial] | None:
    """Reads the trials of the newest `experiment_state-*.json` in `folder`; returns None, with a warning, without one.

    Args:
        folder: a Tune experiment folder.
        settled: ids of trials to leave out; reading thousands of trials takes seconds and memory.

    Raises: SearcherStateError if the file is complete but has an unexpected form.
    """
    files = sorted(Path(folder).glob(f"{EXPERIMENT_STATE}*.json"))
    if not files:
        logger.warning("%s has no %s*.json. The searcher resumes from its own state alone.", folder, EXPERIMENT_STATE)
        return None
    try:
        saved = json.loads(files[-1].read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # the file of a killed driver; Tune cannot restore it either
        logger.warning("%s cannot be read (%s). The searcher resumes from its own state alone.", files[-1], error)
        return None
    try:
        return [
            TuneTrial.read(*trial) for trial in saved["trial_data"] if json.loads(trial[0])["trial_id"] not in settled
        ]
    except Exception as error:  # an unexpected form may raise any error
        problem = f"Expected the trials of Tune in {files[-1]}, got {error!r}"
        raise SearcherStateError(f"{problem}. Resume with the version of Ray that wrote the file") from error


class Ledger:
    """The records of a search, in the order of suggestion.

    Args:
        result_keys: entries of a result to keep in addition to the metric.
    """

    def __init__(self, result_keys: Sequence[str] = ()) -> None:
        self.result_keys = tuple(result_keys)
        self.records: dict[int, Record] = {}
        self._last = 0  # the largest number
        self._open: set[int] = set()  # the numbers of the trials that have not ended
        self._by_trial: dict[str, int] = {}
        self._newest: dict[str, dict[str, Any]] = {}  # the newest `value` and `result` of each running trial
        self._orphans: list[TuneTrial] = []  # trials of Tune that have no record yet

    @property
    def next_number(self) -> int:
        return 1 + self._last

    @property
    def running(self) -> int:
        return len(self._open)

    @property
    def settled(self) -> set[str]:
        """The ids of ended trials without an error; a trial with an error may run again."""
        ended = {trial_id: number for trial_id, number in self._by_trial.items() if number not in self._open}
        return {trial_id for trial_id, number in ended.items() if not self.records[number].errored}

    def have_ended(self, last: int) -> bool:
        """Returns whether all trials up to number `last` have ended."""
        return all(number > last for number in self._open)

    @property
    def lost_record(self) -> Record | None:
        """The first running trial that Tune has lost, which is suggested again."""
        return next((r for r in map(self.records.__getitem__, sorted(self._open)) if r.trial_id is None), None)

    def add(self, config: dict[str, Any]) -> Record:
        """Adds a record for the next suggestion, without a trial id."""
        record = Record(self.next_number, None, config)
        self.records[record.number] = record
        self._last = record.number
        self._open.add(record.number)
        return record

    def add_evaluation(self, config: dict[str, Any], value: float | None, failure: str | None) -> Record:
        """Adds an external evaluation."""
        record = Record(min([0, *self.records]) - 1, None, config, True, value, failure)
        self.records[record.number] = record
        return record

    def assign(self, record: Record, trial_id: str) -> None:
        record.trial_id = trial_id
        self._by_trial[trial_id] = record.number

    def of_trial(self, trial_id: str) -> Record | None:
        return self.records.get(self._by_trial.get(trial_id, 0))

    def report(self, trial_id: str, result: Mapping[str, Any], metric: str) -> None:
        """Keeps the newest value of a running trial. A retried trial reports the same iterations again."""
        self.recognize(trial_id, result)
        value, _ = read_metric(result, metric)
        if trial_id in self._by_trial and value is not None:
            self._newest[trial_id] = {"value": value, "result": self._kept(result)}

    def end(self, record: Record, result: Mapping[str, Any] | None, error: bool, metric: str) -> None:
        """Ends a trial with its last result, or with its newest value if there is no last result."""
        newest = self._newest.pop(record.trial_id or "", None)
        self._open.discard(record.number)
        if error:
            record.end(None, FAILED)
        elif not result and newest is not None:
            record.end(newest["value"], None)
            record.result = newest["result"]
        else:
            record.end(*read_metric(result, metric))
            record.result = self._kept(result or {})

    def recognize(self, trial_id: str, result: Mapping[str, Any]) -> Record | None:
        """Returns the record of a trial; None for a trial of another search.

        Tune runs an errored trial again under a new id after `Tuner.restore(..., restart_errored=True)`. The
        configuration in its result identifies the record, which gets the new id.
        """
        if trial_id not in self._by_trial:
            keys = [key for key in result if key.startswith("config/")]
            config = {key.removeprefix("config/"): result[key] for key in keys}
            self._restart(trial_id, config)
        return self.of_trial(trial_id)

    def _restart(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """Assigns the id to the failed record of a configuration, which is unique since it contains the seed."""
        for record in self.records.values():
            if record.errored and _holds(flatten_dict(dict(config)), flatten_dict(record.config)):
                self._by_trial.pop(record.trial_id or "", None)
                self.assign(record, trial_id)
                return

    def repair(self, record: Record, result: Mapping[str, Any] | None, metric: str) -> None:
        """Replaces the error of a trial that succeeded when it ran again."""
        record.repaired = self.next_number
        self.end(record, result, False, metric)

    def _kept(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the entries of a result to keep in the record."""
        return {key: _plain(result[key]) for key in self.result_keys if key in result}

    def reconcile(self, trials: Sequence[TuneTrial], metric: str) -> None:
        """Reconciles older or newer records with Tune's state. trials: the trials that are not `settled`."""
        tune = {trial.trial_id: trial for trial in trials}
        for trial in trials:
            if trial.trial_id not in self._by_trial:
                self._restart(trial.trial_id, trial.config)
        for record in self.records.values():
            if record.trial_id is None:
                continue
            saved = tune.get(record.trial_id)
            if record.ended:
                if record.errored and saved is not None and saved.ended and not saved.failed:
                    self.repair(record, saved.last_result, metric)
            elif saved is None:
                logger.warning("Tune has lost trial %s. It will be suggested again.", record.trial_id)
                del self._by_trial[record.trial_id]
                record.trial_id = None
            elif saved.ended:
                self.end(record, saved.last_result, saved.failed, metric)
        self._orphans = [trial for trial in trials if trial.trial_id not in self._by_trial]

    def adopt(self, record: Record, metric: str) -> bool:
        """Assigns `record` to the trial that Tune already has for it. Returns whether there is such a trial."""
        for trial in self._orphans:
            if _holds(trial.config, record.config):
                self._orphans.remove(trial)
                self.assign(record, trial.trial_id)
                if trial.ended:
                    self.end(record, trial.last_result, trial.failed, metric)
                return True
        return False

    def get_state(self) -> dict[str, Any]:
        return {"records": [asdict(record) for record in self.records.values()], "newest": dict(self._newest)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        fields = Record.__dataclass_fields__.keys()  # ignores fields of a later version
        records = [Record(**{key: entry[key] for key in fields & entry.keys()}) for entry in state.get("records", ())]
        self.records = {record.number: record for record in records}
        self._last = max([0, *self.records])
        self._open = {record.number for record in records if not record.ended}
        self._by_trial = {record.trial_id: record.number for record in records if record.trial_id is not None}
        self._newest = dict(state.get("newest", {}))
        self._orphans = []


def _holds(config: Mapping[str, Any], entries: Mapping[str, Any]) -> bool:
    """Returns whether a configuration has these entries."""
    return all(config.get(key) == value for key, value in entries.items())


def _plain(value: Any) -> Any:
    """Converts an entry of a result for JSON: NumPy arrays and numbers, also in lists, become Python types."""
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value


# The file of a searcher's state


class SearcherStateError(ArchrayError):
    """A saved state that cannot be read, or belongs to a search with other settings."""


def write_state(path: str | Path, state: dict[str, Any]) -> None:
    """Writes `state` as JSON, atomically."""
    write_file(path, json.dumps({"format": FORMAT, **state}).encode())


def read_state(path: str | Path) -> dict[str, Any]:
    """Reads the state in `path`. Raises: SearcherStateError if the file is missing, damaged, or of another format."""
    try:
        state = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SearcherStateError(f"The searcher's state {path} cannot be read ({error})") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        other = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise SearcherStateError(
            f"Expected a searcher's state of format {FORMAT} in {path}, got format {other!r}. Resume with the archray "
            "version that wrote it."
        )
    return state
