"""The summary of a run, `summary.json`, written as stages start and end."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from archray.cluster.ray_watch import interruptible, why_stopped
from archray.errors import DamagedFile, RunInterrupted
from archray.files import Folder
from archray.platform.run.documents import Done
from archray.platform.run.heartbeat import is_taken_over, lock
from archray.platform.run.layout import DONE, MANIFEST, REPEAT, SUMMARY, now
from archray.platform.run.run_summary import StageSummary, State, plain, worked_seconds

Describe = Callable[[], Mapping[str, Any]]  # the present `result` and `listings` of a `RunSummary`


class RunRecord:
    """The summary of one run.

    Args:
        stages: name -> title, in order; empty for a run of several repeats.
        started: seconds since the epoch, when this process started its work on the run; None if it does none. If it
            works, damaged files count as absent, since stages rewrite them.

    Attributes:
        reason: why it stopped, if the error at the end does not say it.
    """

    reason: str | None = None

    def __init__(
        self, folder: Folder, stages: Mapping[str, str], describe: Describe, started: float | None = None
    ) -> None:
        self._folder, self._describe, self._started = folder, describe, started
        self._active = started is not None
        self._seconds = worked_seconds(folder)  # of earlier processes
        self._stages = {name: self._as_left(name, title) for name, title in stages.items()}
        self.describe()

    def _as_left(self, name: str, title: str) -> StageSummary:
        stage, folder = StageSummary(name, title), self._folder / name
        if not folder.exists(DONE):
            return stage
        try:
            done = folder.read_json(DONE, Done)
        except DamagedFile:
            if self._active:
                return stage
            raise
        return replace(stage, state="done", finished=done["finished"], seconds=done["seconds"])

    def began(self, name: str) -> None:
        """A stage has started, and later ones wait: they read its files."""
        names = list(self._stages)
        for later in names[names.index(name) :]:
            self._stages[later] = StageSummary(later, self._stages[later].title)
        self._stages[name] = replace(self._stages[name], state="running", began=now())
        self.write("running")

    def was_done(self, name: str) -> None:
        """A stage ended earlier, and is valid."""
        self._stages[name] = self._as_left(name, self._stages[name].title)

    def ended(self, name: str) -> None:
        began = self._stages[name].began
        self.was_done(name)
        self._stages[name] = replace(self._stages[name], began=began)
        self.describe()
        self.write("running")

    def describe(self) -> None:
        """Updates the result and the listings."""
        try:
            self._description = dict(self._describe())
        except DamagedFile:
            if not self._active:
                raise
            self._description = {"result": {}, "listings": []}

    def finish(self) -> None:
        """All stages are done. Raises: DamagedFile if a file that none of them rewrites is damaged."""
        self._active = False
        self.describe()
        self.write("done")

    def write(self, state: State, reason: str | None = None) -> None:
        stages = [asdict(stage) for stage in self._stages.values()]
        seconds = self._seconds if self._started is None else self._seconds + time.time() - self._started
        summary = {"state": state, "reason": reason, "seconds": round(seconds, 1), "stages": stages}
        summary |= {**self._description, "written": now()}
        self._folder.write_json(SUMMARY, plain(summary))


@contextmanager
def recorded(
    folder: Folder, stages: Mapping[str, str], describe: Describe, started: float | None = None
) -> Iterator[RunRecord]:
    """The record of a run that is active while the block runs, and ends with it. started: now if it is None."""
    with lock(folder, "archray"), ExitStack() as stack:
        record = RunRecord(folder, stages, describe, time.time() if started is None else started)
        stack.enter_context(interruptible(lambda why: record.write("interrupted", record.reason or why)))
        record.write("running")
        try:
            yield record
        except (KeyboardInterrupt, RunInterrupted) as error:
            reason = record.reason or why_stopped(error.__cause__ or error)  # the cause is the error of a repeat
            with suppress(OSError):  # a full disk may have ended it
                if not is_taken_over(folder):
                    record.write("interrupted", reason)
            raise
        except BaseException as error:
            with suppress(OSError):
                record.write("failed", f"{type(error).__name__}: {error}")
            raise
        record.finish()


def whole_run(folder: Folder) -> Folder:
    """The folder to resume: for a repeat, that of all repeats."""
    parent = folder.parent
    return parent if folder.name.startswith(REPEAT) and parent.exists(MANIFEST) else folder


def run_name(folder: Folder) -> str:
    """The name of a run in Ray's dashboard and metrics: `hnas`; of a repeat `hnas/repeat-00`."""
    whole = whole_run(folder)
    return whole.name if whole is folder else f"{whole.name}/{folder.name}"


def write_summary(folder: Folder, stages: Mapping[str, str], describe: Describe, *, ended: bool) -> None:
    """Rewrites the summary of a run that this process has locked. ended: whether it is done, without a summary."""
    try:
        before = folder.read_json(SUMMARY)
    except DamagedFile:
        before = {}
    state, reason = before.get("state", "done" if ended else "interrupted"), before.get("reason")
    if state == "running":
        state, reason = "interrupted", "its process is gone, and said nothing"
    RunRecord(folder, stages, describe).write(state, reason)
