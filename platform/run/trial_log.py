"""The log of a Tune run: a file of JSON lines that only grows, and the only state of the run. No import of Ray.

What is written when:

| event | when | content |
|---|---|---|
| `session` | a process starts to work on the run | schema, versions, the plan, the name of its Tune folder |
| `suggested` | a searcher has suggested a trial | the number of the trial as its id, its config |
| `started` | an actor of the trial is ready, again after a failure | config with its fixed keys, the trial's folder |
| `result` | the trial has reported | the result |
| `checkpoint` | a checkpoint of the trial is complete | its folder, and the iteration that it contains |
| `failed` | an attempt of the trial has ended in an error | error, cause of a dead process |
| `ended` | the searcher has learned the end of the trial | whether with an error, and whether with a result |
| `reopened` | a failed trial is about to run again | whether without its checkpoints |

A line is on the disk before the next event can depend on it. SIGKILL loses none on a local disk, and on an object store
those of the last second, see `LineWriter`. Everything else follows from the log: a resume asks the searcher for the
same suggestions, gives it the same results, and continues the trials that had not ended from their last checkpoints.
Such a trial reports the results after its last checkpoint again; of the old ones only the searcher and the scheduler
know, whose decisions may depend on them.

Paths in the run are stored relative to it, so that a run can be moved.
"""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from archray.errors import DamagedFile, MissingFile, first_problem
from archray.files import Folder
from archray.platform.run.documents import Count, Number
from archray.platform.run.layout import REPEAT

LOG = "log.jsonl"
SCHEMA = 1
SHORT = 64  # maximum length of a list in a result before the last one; a round of halving may have ten thousand scores
RUN = "{archray-run}"  # the folder of the run in the paths of a log
ITERATION = "training_iteration"
_LEAVES = re.compile(re.escape(RUN) + r"[^\"]*/\.\.(/|\"|$)")


class Event(BaseModel, frozen=True):
    """A line of the log. Fields of other kinds of events keep their defaults."""

    event: Literal["session", "suggested", "started", "result", "checkpoint", "failed", "ended", "reopened"]
    trial: Annotated[str, Field(pattern=r"^\d*$", max_length=20)] = ""
    time: Number = 0.0
    log_schema: int = SCHEMA
    versions: dict[str, str] = {}
    plan: dict[str, Any] = {}
    folder: str = ""  # of a session, or of a trial in it
    config: dict[str, Any] = {}
    result: dict[str, Any] = {}
    path: str = ""
    iteration: Count = 0
    failure: dict[str, Any] = {}
    error: bool = False
    has_result: bool = False
    fresh: bool = False


_EVENT = TypeAdapter(Event)


class Plan(BaseModel):
    """The plan of a Tune run, in the event `session`."""

    metric: str | None = None
    mode: str | None = None
    total: Count = 0  # maximum number of trials
    before: Count = 0  # trials of earlier Tune runs, which the searcher knows


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint of a trial: its folder relative to the Tune run, and the result that it contains."""

    path: str
    iteration: int


@dataclass
class LoggedTrial:
    """A trial as the log describes it. Results are flat dictionaries, without the configuration."""

    trial_id: str
    config: dict[str, Any]
    started: float | None = None
    folder: str = ""
    results: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[SavedCheckpoint] = field(default_factory=list)
    failure: dict[str, Any] | None = None  # of the last failed attempt
    ended: bool = False
    error: bool = False
    has_result: bool = False  # whether the searcher received the last result with the end

    @property
    def last_result(self) -> dict[str, Any]:
        return self.results[-1] if self.results else {}

    @property
    def metrics(self) -> dict[str, Any]:
        """The last result, with the id of the trial; empty before the first one."""
        return {**self.last_result, "trial_id": self.trial_id} if self.results else {}

    @property
    def saved_iteration(self) -> int:
        """The iteration of the last checkpoint; 0 without one."""
        return self.checkpoints[-1].iteration if self.checkpoints else 0

    @property
    def is_complete(self) -> bool:
        """Whether the trial has reported and saved its last result, although its end is not in the log."""
        return bool(self.last_result.get("done")) and self.last_result.get(ITERATION, 0) <= self.saved_iteration


class LoggedRun:
    """The content of a log.

    Attributes:
        sessions: the processes that worked on the run.
        trials: the trials by id, in the order of suggestion.
        events: all events of trials.
        ended_before: number of trials that ended before the last session.
    """

    def __init__(self) -> None:
        self.sessions: list[Event] = []
        self.trials: dict[str, LoggedTrial] = {}
        self.events: list[Event] = []
        self.ended_before = 0

    @property
    def plan(self) -> Plan:
        """The plan of the last session."""
        return Plan.model_validate(self.sessions[-1].plan) if self.sessions else Plan()

    @property
    def open_trials(self) -> list[LoggedTrial]:
        return [trial for trial in self.trials.values() if not trial.ended]

    def add(self, event: Event) -> None:
        """Adds the next event. Raises: ValueError for a trial that was not suggested."""
        if event.event == "session":
            self.sessions.append(event)
            self.ended_before = sum(trial.ended for trial in self.trials.values())
            for trial in self.open_trials:
                saved = trial.saved_iteration
                trial.results = [result for result in trial.results if result.get(ITERATION, 0) <= saved]
            return
        if event.event == "suggested":
            if event.trial in self.trials:
                raise ValueError(f"trial {event.trial} was suggested twice")
            self.trials[event.trial] = LoggedTrial(event.trial, event.config)
        if event.trial not in self.trials:
            raise ValueError(f"trial {event.trial} was not suggested")
        trial = self.trials[event.trial]
        self.events.append(event)
        apply(event, trial)


def apply(event: Event, trial: LoggedTrial) -> None:
    """Brings a trial up to an event."""
    match event.event:
        case "started":
            trial.started = trial.started or event.time
            trial.folder, trial.config = event.folder, event.config
        case "result":
            trial.results.append(event.result)
        case "checkpoint":
            trial.checkpoints.append(SavedCheckpoint(event.path, event.iteration))
        case "failed":
            trial.failure = event.failure
        case "ended":
            trial.ended, trial.error, trial.has_result = True, event.error, event.has_result
        case "reopened":
            trial.ended = trial.error = False
            if event.fresh:
                trial.checkpoints, trial.results = [], []


def run_of(folder: Folder) -> str:
    """Returns the path of the run with the folder of a Tune run; for a repeat, the folder of all repeats."""
    run = folder.parent.parent
    return run.parent.path if run.name.startswith(REPEAT) else run.path


def read_log(folder: Folder, run: str | None = None, *, trusted: bool = False) -> LoggedRun | None:
    """Reads the log in the folder of a Tune run; None without a log.

    Incomplete lines, which a kill leaves, are dropped: the last one, or one before a new session.

    Args:
        run: path of the folder to which paths in the log are relative; None: `run_of`.
        trusted: whether weights may be outside of the run.

    Raises: DamagedFile, with the number of the line; UnreadableFile.
    """
    if not folder.exists(LOG):
        if folder.exists("snapshot.zip"):
            advice = "resume with the version of archray that wrote it, or start a new search"
            raise MissingFile.at(f"{folder}/{LOG}", "the run is from a version of archray without logs", advice)
        return None
    run = run_of(folder) if run is None else run
    place = json.dumps(run, ensure_ascii=False)[1:-1]
    lines = [(number, line) for number, line in enumerate(folder.read_bytes(LOG).splitlines(), start=1) if line]
    logged = LoggedRun()
    incomplete: tuple[int, object] | None = None  # the line before, if it is not an event
    for number, line in lines:
        problem: object = None
        try:
            event = _EVENT.validate_json(_with_places(line.decode(), place), strict=True)
        except ValidationError as error:
            problem = first_problem(error)
        except ValueError as error:  # for example, bytes that are no text
            problem = error
        if incomplete is not None and (problem is not None or event.event != "session"):
            raise _damaged(folder, *incomplete)
        incomplete = None if problem is None else (number, problem)
        if problem is None:
            try:
                _check(event, None if trusted else run)
                logged.add(event)
            except ValueError as error:
                raise _damaged(folder, number, error) from error
    return logged if logged.sessions else None


def _damaged(folder: Folder, number: int, problem: object) -> DamagedFile:
    advice = f"delete the folder {folder} and repeat the command, which then runs its trials again"
    return DamagedFile.at(f"{folder}/{LOG}", f"line {number}: {problem}", advice)


def _with_places(line: str, place: str) -> str:
    if RUN not in line:
        return line
    if _LEAVES.search(line):
        raise ValueError("a path leads out of the run")
    return line.replace(RUN, place)


def _check(event: Event, run: str | None) -> None:
    """Raises: ValueError for a schema of another version, or weights outside of `run`, which trials would read."""
    if event.event == "session" and event.log_schema != SCHEMA:
        version = event.versions.get("archray", "another version")
        raise ValueError(f"expected schema {SCHEMA}, got {event.log_schema}; the log was written by archray {version}")
    weights = event.result.get("weights")
    if run is not None and isinstance(weights, str):
        if not (weights.partition("://")[2] or weights).startswith(f"{run}/") or ".." in weights.split("/"):
            raise ValueError(f"expected weights inside of the run, got {weights[:200]}")


def line_of(event: str, run: str, **entries: Any) -> bytes:
    """Returns the line of an event. Paths that begin with `run` become relative.

    Args:
        run: path of the run.
    """
    line = json.dumps({"event": event, "time": time.time(), **entries}, ensure_ascii=False)
    place = re.escape(json.dumps(run, ensure_ascii=False)[1:-1])
    # at the start of a path, after a URI's scheme, or after a prefix such as `arrays:`; not inside another path
    return re.sub(rf"((?<=://)|(?<![\w./-])){place}(?=[/\"])", RUN, line).encode()


def kept_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the log keeps of a flat result: numbers, texts and lists, before the last result short ones only.

    It omits the configuration, which the log has once per trial.
    """
    last = bool(result.get("done"))
    kept = {}
    for name, value in result.items():
        if name == "trial_id" or name == "config" or name.startswith("config/"):
            continue
        value = _plain(value)
        if is_plain(value) and (last or not isinstance(value, list) or len(value) <= SHORT):
            kept[name] = value
    return kept


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON-able entries of a trial's configuration."""
    plain = {str(key): _plain(value) for key, value in config.items()}
    return {key: value for key, value in plain.items() if is_plain(value)}


def is_plain(value: Any) -> bool:
    """Returns whether JSON can represent a value."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(entry) for key, entry in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _plain(value: Any) -> Any:
    """Converts numbers and arrays of NumPy, and tuples, as a JSON round trip of the values does."""
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Real) and hasattr(value, "item"):
        return value.item()
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value
