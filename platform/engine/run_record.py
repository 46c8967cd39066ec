"""What a run's folder says of it while it is on and afterwards: `summary.json`, written as stages begin and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from archray.errors import RunInterrupted
from archray.files import Folder
from archray.platform.run.heartbeat import heartbeat
from archray.platform.run.layout import DONE, MANIFEST, REPEAT, SUMMARY
from archray.platform.run.listing import plain
from archray.platform.run.manifest import now
from archray.platform.run.run_summary import StageSummary, State

Describe = Callable[[], Mapping[str, Any]]  # `result` and `listings` of a `RunSummary`, of what is there by now


class RunRecord:
    """The summary of one run. stages: name -> title, in order; none of a run of several repeats.

    Attributes:
        reason: why it stopped, where more is known than the error that ends it says.
    """

    reason: str | None = None

    def __init__(self, folder: Folder, stages: Mapping[str, str], describe: Describe) -> None:
        self._folder, self._describe = folder, describe
        self._stages = {name: self._as_left(name, title) for name, title in stages.items()}
        self.describe()

    def _as_left(self, name: str, title: str) -> StageSummary:
        stage, folder = StageSummary(name, title), self._folder / name
        if not folder.exists(DONE):
            return stage
        done = folder.read_json(DONE)
        return replace(stage, state="done", finished=done["finished"], seconds=done["seconds"])

    def began(self, name: str) -> None:
        """A stage has begun, and those after it wait: they read what it writes."""
        names = list(self._stages)
        for later in names[names.index(name) :]:
            self._stages[later] = StageSummary(later, self._stages[later].title)
        self._stages[name] = replace(self._stages[name], state="running", began=now())
        self.write("running")

    def was_done(self, name: str) -> None:
        """A stage has ended before, and holds."""
        self._stages[name] = self._as_left(name, self._stages[name].title)

    def ended(self, name: str) -> None:
        """A stage has ended."""
        began = self._stages[name].began
        self.was_done(name)
        self._stages[name] = replace(self._stages[name], began=began)
        self.describe()
        self.write("running")

    def describe(self) -> None:
        """Takes up what there is by now."""
        self._description = dict(self._describe())

    def write(self, state: State, reason: str | None = None) -> None:
        stages = [asdict(stage) for stage in self._stages.values()]
        summary = {"state": state, "reason": reason, "stages": stages, **self._description, "written": now()}
        self._folder.write_json(SUMMARY, plain(summary))


@contextmanager
def recorded(folder: Folder, stages: Mapping[str, str], describe: Describe) -> Iterator[RunRecord]:
    """The record of a run that is on while the block runs, and ends as the block does."""
    record = RunRecord(folder, stages, describe)
    with heartbeat(folder):
        record.write("running")
        try:
            yield record
        except (KeyboardInterrupt, RunInterrupted) as error:
            reason = record.reason or str(error.__cause__ or error)  # the cause: what stopped a repeat of this run
            with suppress(OSError):  # a disk that is full may have ended it
                record.write("interrupted", reason or "stopped; what was finished is saved")
            raise
        except BaseException as error:
            with suppress(OSError):
                record.write("failed", f"{type(error).__name__}: {error}")
            raise
    record.describe()
    record.write("done")


def whole_run(folder: Folder) -> Folder:
    """The folder to resume: of a repeat, that of all repeats."""
    parent = folder.parent
    return parent if folder.name.startswith(REPEAT) and parent.exists(MANIFEST) else folder


def run_name(folder: Folder) -> str:
    """What a run is called in Ray's dashboard and metrics: `hnas`; a repeat of it `hnas/repeat-00`."""
    whole = whole_run(folder)
    return whole.name if whole is folder else f"{whole.name}/{folder.name}"


def write_summary(folder: Folder, stages: Mapping[str, str], describe: Describe, *, ended: bool) -> None:
    """Writes anew the summary of a run that is not on. ended: whether it is done, where no summary says."""
    before = folder.read_json(SUMMARY) if folder.exists(SUMMARY) else {}
    state = before.get("state", "done" if ended else "interrupted")
    if state != "running":  # its process will write it
        RunRecord(folder, stages, describe).write(state, before.get("reason"))
