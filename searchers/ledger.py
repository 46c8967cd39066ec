"""The book of a search: trials suggested and evaluations handed over, by number and by Tune's trial id; its file."""

import json
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, SupportsFloat

from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from archray.errors import ArchrayError, IncompatibleRay, tested_versions
from archray.files import write_file

logger = logging.getLogger(__name__)

FAILED = "the trial failed; the error file in its folder says why"
FORMAT = 2  # of a saved state; a higher number cannot read lower ones
MAX_REASON = 500  # characters: a reason is shown in tables; a whole traceback is in Tune's own error file


@dataclass
class Record:
    """One trial, or one evaluation that the user handed over. Plain data, JSON-able.

    Args:
        number: 1, 2, ... in the order of suggestion; -1, -2, ... for evaluations handed over.
        trial_id: Tune's id; None for an evaluation handed over, and for a trial that Tune lost (it will be
            suggested again, under a new id).
        value: the metric; None while the trial runs, and when it failed. failure: the reason.
        result: the entries of the result in the searcher's `result_keys`.
        repaired: the number of the first suggestion after a result replaced the error of this trial, else None.
            Earlier suggestions were made with the error, later ones with the result.
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
        """Whether the trial raised. Tune can run it again: `Tuner.restore(..., resume_errored=True)`."""
        return self.ended and self.failure == FAILED

    def end(self, value: float | None, failure: str | None) -> None:
        self.ended, self.value, self.failure = True, value, failure


def read_metric(result: Mapping[str, Any] | None, metric: str) -> tuple[float | None, str | None]:
    """`(value, None)`, or `(None, reason)` where `result` holds no finite number under `metric`.

    The reason for a NaN is the entry `failure` of the result, if there is one.
    """
    if not result:
        return None, "the trial ended without a result"
    if metric not in result:
        keys = sorted(key for key in result if "/" not in key)
        return None, f"the result has no {metric!r}; it has {', '.join(keys[:20])}"[:MAX_REASON]
    reported = result[metric]
    if not isinstance(reported, SupportsFloat) or isinstance(reported, str):
        return None, f"{metric} is no number: {reported!r}"[:MAX_REASON]
    value = float(reported)
    if math.isfinite(value):
        return value, None
    reason = result.get("failure")
    return None, str(reason)[:MAX_REASON] if reason else f"{metric} is {value}"


@dataclass(frozen=True)
class TuneTrial:
    """A trial in Tune's saved experiment: `status` is PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""

    trial_id: str
    config: dict[str, Any]
    status: str
    last_result: dict[str, Any]

    @classmethod
    def read(cls, description: str, progress: str) -> "TuneTrial":
        """The trial with these two parts of a saved state."""
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
    """The trials in the newest `experiment_state-*.json` of `folder`; None, with a warning, without a whole one.

    settled: ids of trials that are left out; thousands take seconds, and memory.
    Raises: IncompatibleRay if the file is whole and has an unexpected form.
    """
    files = sorted(Path(folder).glob("experiment_state-*.json"))
    if not files:
        logger.warning("%s has no experiment_state-*.json: the searcher continues from its own state alone", folder)
        return None
    try:
        saved = json.loads(files[-1].read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # the file of a killed driver; Tune cannot restore it either
        logger.warning("%s cannot be read (%s): the searcher continues from its own state alone", files[-1], error)
        return None
    try:
        return [
            TuneTrial.read(*trial) for trial in saved["trial_data"] if json.loads(trial[0])["trial_id"] not in settled
        ]
    except Exception as error:  # any error of reading an unexpected form
        raise IncompatibleRay(tested_versions(f"Expected the trials of Tune in {files[-1]}, got {error!r}")) from error


class Ledger:
    """Records in the order of suggestion. result_keys: entries of a result that are kept, next to the metric."""

    def __init__(self, result_keys: Sequence[str] = ()) -> None:
        self.result_keys = tuple(result_keys)
        self.records: dict[int, Record] = {}
        self._last = 0  # the largest number
        self._open: set[int] = set()  # the numbers of the trials that have not ended
        self._by_trial: dict[str, int] = {}
        self._newest: dict[str, dict[str, Any]] = {}  # of each running trial, its newest `value` and `result`
        self._orphans: list[TuneTrial] = []  # trials of Tune that have no record yet

    @property
    def next_number(self) -> int:
        return 1 + self._last

    @property
    def running(self) -> int:
        return len(self._open)

    @property
    def settled(self) -> set[str]:
        """The ids of the trials that have ended for good: an errored trial may run again."""
        ended = {trial_id: number for trial_id, number in self._by_trial.items() if number not in self._open}
        return {trial_id for trial_id, number in ended.items() if not self.records[number].errored}

    def have_ended(self, last: int) -> bool:
        """Whether all trials up to number `last` have ended."""
        return all(number > last for number in self._open)

    @property
    def lost_record(self) -> Record | None:
        """The first trial that has not ended and that Tune has lost: it is suggested again."""
        return next((r for r in map(self.records.__getitem__, sorted(self._open)) if r.trial_id is None), None)

    def add(self, config: dict[str, Any]) -> Record:
        """Opens a record for the next suggestion, under no trial id yet."""
        record = Record(self.next_number, None, config)
        self.records[record.number] = record
        self._last = record.number
        self._open.add(record.number)
        return record

    def add_evaluation(self, config: dict[str, Any], value: float | None, failure: str | None) -> Record:
        """Enters an evaluation made elsewhere."""
        record = Record(min([0, *self.records]) - 1, None, config, True, value, failure)
        self.records[record.number] = record
        return record

    def assign(self, record: Record, trial_id: str) -> None:
        record.trial_id = trial_id
        self._by_trial[trial_id] = record.number

    def of_trial(self, trial_id: str) -> Record | None:
        return self.records.get(self._by_trial.get(trial_id, 0))

    def report(self, trial_id: str, result: Mapping[str, Any], metric: str) -> None:
        """Notes the newest value of a running trial. A retry reports the same iterations again."""
        self.recognize(trial_id, result)
        value, _ = read_metric(result, metric)
        if trial_id in self._by_trial and value is not None:
            self._newest[trial_id] = {"value": value, "result": self._kept(result)}

    def end(self, record: Record, result: Mapping[str, Any] | None, error: bool, metric: str) -> None:
        """Ends a trial with its last result; without one, with its newest value."""
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
        """The record of a trial; None for a trial of another search.

        Tune runs an errored trial again under a new id after `Tuner.restore(..., restart_errored=True)`. The
        configuration in its result identifies the record, which gets the new id.
        """
        if trial_id not in self._by_trial:
            keys = [key for key in result if key.startswith("config/")]
            config = {key.removeprefix("config/"): result[key] for key in keys}
            self._restart(trial_id, config)
        return self.of_trial(trial_id)

    def _restart(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """Gives the id to the errored record of a configuration; it holds the seed, so no other record is equal."""
        for record in self.records.values():
            if record.errored and _holds(flatten_dict(dict(config)), flatten_dict(record.config)):
                self._by_trial.pop(record.trial_id or "", None)
                self.assign(record, trial_id)
                return

    def repair(self, record: Record, result: Mapping[str, Any] | None, metric: str) -> None:
        """Replaces the error of a trial that has succeeded in another run."""
        record.repaired = self.next_number
        self.end(record, result, False, metric)

    def _kept(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of a result that go into the record."""
        return {key: _plain(result[key]) for key in self.result_keys if key in result}

    def reconcile(self, trials: Sequence[TuneTrial], metric: str) -> None:
        """Brings records that are older or newer than Tune's state in line with it. trials: those not `settled`."""
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
                logger.warning("Tune has lost trial %s; it will be suggested again", record.trial_id)
                del self._by_trial[record.trial_id]
                record.trial_id = None
            elif saved.ended:
                self.end(record, saved.last_result, saved.failed, metric)
        self._orphans = [trial for trial in trials if trial.trial_id not in self._by_trial]

    def adopt(self, record: Record, metric: str) -> bool:
        """Assigns `record` to the trial that Tune has for it already. Returns whether there is one."""
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
        fields = Record.__dataclass_fields__.keys()  # fields of a later version are left out
        records = [Record(**{key: entry[key] for key in fields & entry.keys()}) for entry in state.get("records", ())]
        self.records = {record.number: record for record in records}
        self._last = max([0, *self.records])
        self._open = {record.number for record in records if not record.ended}
        self._by_trial = {record.trial_id: record.number for record in records if record.trial_id is not None}
        self._newest = dict(state.get("newest", {}))
        self._orphans = []


def _holds(config: Mapping[str, Any], entries: Mapping[str, Any]) -> bool:
    """Whether a configuration has these entries."""
    return all(config.get(key) == value for key, value in entries.items())


def _plain(value: Any) -> Any:
    """An entry of a result for JSON: arrays and their numbers, in lists too, become Python's types."""
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value


# The file of a searcher's state


class SearcherStateError(ArchrayError):
    """A saved state that cannot be read, or belongs to a search with other settings."""


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
