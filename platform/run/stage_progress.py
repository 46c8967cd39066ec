"""Progress of a running stage, from the files in its folder; read-only, without pandas or Ray.

For a Tune run the module reads `plan.json`, a file in `started/` and `results/` per trial, and Tune's last state; for a
scoring it reads `scoring.json`. Times come from the clocks of the run's machines, which may differ from the reader's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from archray.errors import DamagedFile
from archray.files import Folder
from archray.platform.quantities import as_float
from archray.platform.run.documents import Line, Plan, Scoring, Started
from archray.platform.run.layout import PLAN, RESULTS, SCORING, STARTED
from archray.platform.run.tune_snapshot import kept_trials

Status = Literal["running", "ended", "failed"]
_STARTS: Mapping[str, type[BaseModel]] = {SCORING: Scoring, PLAN: Plan}  # written at the start of the work
_STATUSES: Mapping[str, Status] = {"TERMINATED": "ended", "ERROR": "failed"}  # Tune's; with other states it still runs


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
    starts: list[tuple[float, Folder, str, dict[str, Any]]] = []
    for folder in (stage, *(stage / name for name in stage.folders())):
        for name, kind in _STARTS.items():
            if (start := _read(folder, name, kind)) is not None:
                starts.append((float(start["started"]), folder, name, start))
    if not starts:
        return None
    _, folder, name, start = max(starts, key=lambda entry: entry[0])
    if name == PLAN:
        return _tune_run(folder, start)
    done, total, rate = start["done"], start["total"], start["rate"]
    left = (total - done) / rate if rate else None
    return StageProgress("architecture", done, start["failed"], total, seconds_left=left)


def _tune_run(folder: Folder, plan: Mapping[str, Any]) -> StageProgress:
    statuses = {trial["trial_id"]: trial["status"] for trial in kept_trials(folder)}
    started = [_read(folder / STARTED, name, Started) for name in (folder / STARTED).files()]
    results = (folder / RESULTS).with_listing()
    trials = sorted(
        (_trial(results, trial, plan["metric"], statuses) for trial in started if trial is not None),
        key=lambda trial: (trial.started, trial.trial_id),
    )
    done = [trial for trial in trials if trial.status != "running"]
    work = sum(trial.done for trial in trials)
    last = max((trial.last for trial in trials if trial.last is not None), default=plan["started"])
    rate = (work - plan["done_before"]) / (last - plan["started"]) if last > plan["started"] else 0.0
    return StageProgress(
        unit="trial",
        done=plan["before"] + len(done),
        failed=sum(trial.status == "failed" for trial in done),
        total=plan["total"],
        metric=plan["metric"],
        mode=plan["mode"],
        trials=trials,
        seconds_left=(plan["total"] - plan["before"] - work) / rate if rate > 0 else None,
    )


def _trial(results: Folder, started: Mapping[str, Any], metric: str, statuses: Mapping[str, str]) -> TrialProgress:
    trial_id = started["trial_id"]
    lines = _lines(results, f"{trial_id}.jsonl")
    last: Mapping[str, Any] = lines[-1] if lines else {}
    status = _STATUSES.get(statuses.get(trial_id, ""), "ended" if last.get("done") else "running")
    return TrialProgress(
        trial_id=trial_id,
        config=started["config"],
        found=last.get("architecture"),
        started=started["started"],
        status="failed" if last.get("failure") else status,
        values=[_finite(line.get(metric)) for line in lines],
        epoch=int(last.get("epoch", last.get("training_iteration", 0))),
        epochs=last.get("epochs"),
        last=last.get("timestamp"),
    )


def _lines(folder: Folder, name: str) -> list[dict[str, Any]]:
    try:
        return folder.read_json_lines(name, Line)
    except FileNotFoundError:
        return []


def _read(folder: Folder, name: str, kind: type[BaseModel]) -> dict[str, Any] | None:
    """Reads a JSON file; None if it is incomplete, since the run may be writing it."""
    try:
        return dict(folder.read_json(name, kind))
    except DamagedFile:
        return None


def _finite(value: Any) -> float | None:
    return None if isinstance(value, str) or math.isnan(number := as_float(value)) else number
