"""The work of one process on a Tune run: what the log contains, and what happens now.

`begin` opens the log, `Session.record` appends an event, and `replay` (in `replay.py`) brings searcher and scheduler to
the state after the last event. Tune pickles searchers and callbacks with its Tuner, so these do not hold the session:
they use the `current` one of their thread.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import ray
from ray.tune.utils import flatten_dict

import archray
from archray.files import Folder
from archray.line_writer import LineWriter
from archray.platform.run.trial_log import (
    ITERATION,
    LOG,
    SCHEMA,
    Event,
    LoggedRun,
    LoggedTrial,
    apply,
    kept_result,
    line_of,
    plain_config,
    read_log,
    run_of,
)

CHECKPOINTS = "archray_checkpoints"  # key in the configuration of a resumed trial, see `resumable`
DAMAGED = "archray_damaged"  # key in the first result of a trial with a damaged checkpoint: what it does instead
SETTINGS = "settings"  # key of the configuration with the options of archray's trainables, which the log omits
RECENT = 100  # trials that may have ended shortly before a kill
_SESSION: ContextVar["Session"] = ContextVar("session")  # of this thread's Tune run


class Session:
    """The work of this process on a Tune run.

    Attributes:
        folder: folder of the Tune run, with the log.
        tune_folder: name of the folder in it for Tune's files of this session.
        logged: the content of the log before this session; None after the replay.
        open: the trials that have not ended, by id. Of their results only the last one is kept. `started` is None while
            they wait for an actor.
        ended: the number of ended trials.
        failures: the last failure of each trial that failed in this session.
        dropped: ids of open trials that Tune no longer has.
        to_clean: trials that have ended without an error, whose checkpoints can be deleted.
    """

    def __init__(self, folder: Folder, writer: LineWriter, run: str, trusted: bool, plan: Mapping[str, Any]) -> None:
        self.folder, self._writer, self._run = folder, writer, run
        self._omitted = (CHECKPOINTS,) if trusted else (CHECKPOINTS, SETTINGS)
        self.logged: LoggedRun | None = read_log(folder, run, trusted=trusted) or LoggedRun()
        number = len(self.logged.sessions) + 1
        while folder.exists(f"session-{number}"):  # of a session whose first line was lost
            number += 1
        self.tune_folder = f"session-{number}"
        self._last = max(map(int, self.logged.trials), default=int(plan.get("last", plan.get("before", 0))))
        self.failures: dict[str, Any] = {}
        self.dropped: list[str] = []
        self.ids: dict[str, str] = {}  # Tune's id of each trial of this session -> id in the log
        versions = {"archray": archray.__version__, "ray": ray.__version__, "python": platform.python_version()}
        self.record("session", log_schema=SCHEMA, versions=versions, plan=dict(plan), folder=self.tune_folder)
        self.logged.add(Event(event="session", versions=versions, plan=dict(plan), folder=self.tune_folder))
        self.open = _waiting(self.logged)
        self.ended = len(self.logged.trials) - len(self.open)
        # A kill may have come before the deletion of their checkpoints.
        succeeded = [trial for trial in self.logged.trials.values() if trial.ended and not trial.error]
        self.to_clean = succeeded[-RECENT:]

    def next_id(self) -> str:
        """Returns the id of the next trial to suggest: its number."""
        return f"{self._last + 1:05d}"

    def record(self, event: str, trial: str = "", **entries: Any) -> int:
        """Appends an event to the log. Returns a number for `wait`."""
        line = line_of(event, self._run, **({"trial": trial} if trial else {}), **entries)
        number = self._writer.append(line)
        if event == "suggested":
            self._last = max(self._last, int(trial))
            self.open[trial] = LoggedTrial(trial, entries["config"])
        elif trial:
            self._apply(Event(event=event, trial=trial, **entries))  # type: ignore[arg-type]  # a literal
        return number

    def _apply(self, event: Event) -> None:
        trial = self.open[event.trial]
        apply(event, trial)
        del trial.results[:-1]
        if event.event == "ended":
            del self.open[event.trial]
            self.ended += 1
            if not event.error:
                self.to_clean.append(trial)

    def reopen(self, name: str, *, fresh: bool = False) -> None:
        """Lets a failed trial run again, before the replay.

        Args:
            fresh: whether from its start instead of its last checkpoint.
        """
        assert self.logged is not None  # before the replay
        self._writer.append(line_of("reopened", self._run, trial=name, fresh=fresh))
        self.logged.add(Event(event="reopened", trial=name, fresh=fresh))
        self.open = _waiting(self.logged)
        self.ended -= 1

    def wait(self, number: int) -> None:
        """Waits until an event survives a kill."""
        self._writer.wait(number)

    def flush(self) -> None:
        self._writer.flush()

    def id_of(self, trial: Any) -> str:
        """Returns the id in the log of a trial of Tune."""
        return self.ids[trial.trial_id]

    def relative(self, path: str) -> str:
        """Returns a path below the folder of the Tune run, relative to it."""
        return path.removeprefix(f"{self.folder.path}/")

    # Events that Tune's callbacks and searchers report

    def started(self, trial: Any) -> None:
        config = {key: value for key, value in trial.config.items() if key not in self._omitted}
        folder = f"{self.tune_folder}/{trial.relative_logdir}"
        self.record("started", self.id_of(trial), config=plain_config(config), folder=folder)

    def reported(self, trial: Any, result: Mapping[str, Any]) -> None:
        flat = flatten_dict({name: value for name, value in result.items() if name != "config"})
        self.record("result", self.id_of(trial), result=kept_result(flat))

    def saved(self, trial: Any, checkpoint: Any) -> int:
        iteration = int((trial.last_result or {}).get(ITERATION, 0))
        return self.record("checkpoint", self.id_of(trial), path=self.relative(checkpoint.path), iteration=iteration)


def _waiting(logged: LoggedRun) -> dict[str, LoggedTrial]:
    """Returns the trials that have not ended, which all wait for an actor now."""
    for trial in logged.open_trials:
        trial.started = None
    return {trial.trial_id: trial for trial in logged.open_trials}


@contextmanager
def begin(folder: Folder, *, run: str | None = None, trusted: bool = False, **plan: Any) -> Iterator[Session]:
    """Opens the log of a Tune run for the block, and records the start of this session.

    Args:
        folder: folder of the Tune run.
        run, trusted: as in `read_log`.
        plan: the entries of `Plan`; `last`: the largest id of earlier trials (default: `before`).

    Raises: DamagedFile; UnreadableFile; errors of the disk, also at the end of the block.
    """
    with LineWriter(folder.create(), LOG) as writer:
        session = Session(folder, writer, run_of(folder) if run is None else run, trusted, plan)
        token = _SESSION.set(session)
        try:
            yield session
        finally:
            _SESSION.reset(token)


def current() -> Session:
    """Returns the session of this thread's Tune run."""
    return _SESSION.get()


def log_id(trial: Any) -> str:
    """Returns the id in the log of a trial of Tune; Tune's id outside of a Tune run with a log."""
    session = _SESSION.get(None)
    return str(trial.trial_id) if session is None else session.id_of(trial)


def checkpoints_of(session: Session, trial: LoggedTrial) -> Sequence[tuple[str, int]]:
    """Returns the checkpoints of a trial that exist, the newest first: names in the Tune run, and iterations.

    Raises: RunFolderError for a path that leads out of the folder.
    """
    existing = []
    for checkpoint in reversed(trial.checkpoints):
        if session.folder.exists(checkpoint.path):
            existing.append((checkpoint.path, checkpoint.iteration))
        elif existing:
            break  # older ones were deleted
    return existing
