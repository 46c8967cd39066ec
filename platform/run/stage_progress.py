"""Progress of a running stage, from the files in its folder; read-only, without Ray.

For a Tune run the module reads its log; for a scoring it reads `scoring.json`. Times come from the clocks of the run's
machines, which may differ from the reader's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from archray.errors import DamagedFile
from archray.files import Folder
from archray.platform.quantities import as_float
from archray.platform.run.documents import Line, Scoring
from archray.platform.run.layout import SCORING
from archray.platform.run.trial_log import LoggedRun, LoggedTrial, read_log

Status = Literal["running", "ended", "failed"]


@dataclass(frozen=True)
class TrialProgress:
    """A trial that has started.

    Attributes:
        config: configuration without `settings`.
        found: architecture of its last result.
        started: start, in seconds since the epoch.
        values: metric of the stage after each epoch; None for an epoch without a value.
        epoch, epochs: number of finished epochs, and of all epochs.
        last: time of its last result, in seconds since the epoch; None before.
    """

    trial_id: str
    config: Mapping[str, Any]
    found: str | None
    started: float
    status: Status
    values: Sequence[float | None]
    epoch: int
    epochs: int | None
    last: float | None

    @property
    def done(self) -> float:
        """The finished share of its work."""
        return 1.0 if self.status != "running" else self.epoch / self.epochs if self.epochs else 0.0

    @property
    def value(self) -> float | None:
        """The metric after its last epoch."""
        return self.values[-1] if self.values else None


@dataclass(frozen=True)
class StageProgress:
    """Progress of a stage.

    Attributes:
        unit: unit of the counts, `trial` or `architecture`.
        done, failed: number of finished units, and of finished units without a value.
        total: maximum number of units.
        metric, mode: metric and mode of the trials; None for a scoring.
        trials: trials in the order in which they started.
        seconds_left: remaining time at the present rate; None without a rate.
    """

    unit: str
    done: int
    failed: int
    total: int
    metric: str | None = None
    mode: str | None = None
    trials: Sequence[TrialProgress] = ()
    seconds_left: float | None = None

    @property
    def ended(self) -> Sequence[TrialProgress]:
        """The trials that ended with a value, in the order of their end."""
        trials = [trial for trial in self.trials if trial.status == "ended" and trial.value is not None]
        return sorted(trials, key=lambda trial: trial.last or trial.started)

    @property
    def best_first(self) -> Sequence[TrialProgress]:
        """The trials that ended with a value, the best first."""
        return sorted(self.ended, key=lambda trial: trial.value or 0.0, reverse=self.mode == "max")

    @property
    def best(self) -> TrialProgress | None:
        """The best finished trial."""
        return next(iter(self.best_first), None)


def stage_progress(stage: Folder) -> StageProgress | None:
    """Reads the progress of the latest work in a stage's folder; None before any scoring or training."""
    latest: tuple[float, StageProgress] | None = None
    for folder in (stage, *(stage / name for name in stage.folders())):
        for start, progress in (_scoring(folder), _tune_run(folder)):
            if progress is not None and (latest is None or start > latest[0]):
                latest = start, progress
    return None if latest is None else latest[1]


def _scoring(folder: Folder) -> tuple[float, StageProgress | None]:
    try:
        scoring = folder.read_json(SCORING, Scoring)
    except DamagedFile:  # the run may be writing it
        return 0.0, None
    done, total, rate = scoring["done"], scoring["total"], scoring["rate"]
    left = (total - done) / rate if rate else None
    return scoring["started"], StageProgress("architecture", done, scoring["failed"], total, seconds_left=left)


def _tune_run(folder: Folder) -> tuple[float, StageProgress | None]:
    logged = read_log(folder)
    return (0.0, None) if logged is None else (logged.sessions[-1].time, progress_of(logged))


def progress_of(logged: LoggedRun) -> StageProgress:
    """Returns the progress of a Tune run."""
    plan, since = logged.plan, logged.sessions[-1].time
    started = [trial for trial in logged.trials.values() if trial.started is not None]
    trials = sorted(map(_trial_reader(plan.metric), started), key=lambda trial: (trial.started, trial.trial_id))
    done = [trial for trial in trials if trial.status != "running"]
    work = sum(trial.done for trial in trials)
    last = max((trial.last for trial in trials if trial.last is not None), default=since)
    rate = (work - logged.ended_before) / (last - since) if last > since else 0.0
    return StageProgress(
        unit="trial",
        done=plan.before + len(done),
        failed=sum(trial.status == "failed" for trial in done),
        total=plan.total,
        metric=plan.metric,
        mode=plan.mode,
        trials=trials,
        seconds_left=(plan.total - plan.before - work) / rate if rate > 0 else None,
    )


def _trial_reader(metric: str | None) -> Callable[[LoggedTrial], TrialProgress]:
    def read(trial: LoggedTrial) -> TrialProgress:
        last = Line.model_validate(trial.last_result)
        status: Status = "running" if not trial.ended and not trial.last_result.get("done") else "ended"
        return TrialProgress(
            trial_id=trial.trial_id,
            config=trial.config,
            found=last.architecture,
            started=trial.started or 0.0,
            status="failed" if trial.error or trial.last_result.get("failure") else status,
            values=[_finite(result.get(metric or "")) for result in trial.results],
            epoch=int(last.epoch or last.training_iteration),
            epochs=None if last.epochs is None else int(last.epochs),
            last=last.timestamp,
        )

    return read


def _finite(value: Any) -> float | None:
    return None if isinstance(value, str) or math.isnan(number := as_float(value)) else number
