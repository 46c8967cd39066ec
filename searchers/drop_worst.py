"""A Tune scheduler that drops the worst trials once, at a common time. GAEA, Li et al. 2021, App. C.1.3."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from archray.errors import InvalidInput
from archray.plurals import count


class DropWorst(FIFOScheduler):
    """A scheduler that pauses every trial at one point of its schedule, and resumes only the best trials.

    1. A trial that reports `time_attr` equal to `at` is paused.
    2. When all `trials` have reached this point or have ended, the best `keep` trials by the metric resume.
    3. The other trials are stopped. A trial whose metric is NaN ranks last.

    The decision is a function of the trials' last results, which Tune saves. So `Tuner.restore` resumes a killed
    experiment at any point with the same decision, and so does `DurableTuner`, which calls `replay`. Tune's own
    schedulers do not keep their decisions.

    Do not limit concurrent trials: Tune counts paused trials as running, so with a limit below `trials` the remaining
    trials would never start.

    Args:
        trials: the total number of trials.
        keep: the number of trials that resume.
        at: the time at which the other trials are dropped, in units of `time_attr`.
        time_attr: an entry of every result that increases during a trial.
        metric, mode: as in Tune; None: the values of `TuneConfig`.

    Raises: InvalidInput for an invalid argument.

    Example:
        ```python
        scheduler = DropWorst(trials=4, keep=1, at=25, metric="accuracy", mode="max")
        tune.Tuner(train, tune_config=tune.TuneConfig(scheduler=scheduler, num_samples=4)).fit()
        ```
    """

    def __init__(
        self,
        *,
        trials: int,
        keep: int,
        at: int,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= keep <= trials:
            raise InvalidInput(f"keep: expected between 1 and {count(trials, 'trial')}, got {keep}")
        if at < 1:
            raise InvalidInput(f"at: expected 1 or more, got {at}")
        if mode not in (None, "min", "max"):
            raise InvalidInput(f"mode: expected min or max, got {mode!r}")
        self.trials, self.keep, self.at, self.time_attr = trials, keep, at, time_attr
        self._metric, self._mode = metric, mode
        self._survivors: set[str] | None = None  # trial ids; None before the decision and after a restore
        self._log_id: Callable[[Any], str] = lambda trial: str(trial.trial_id)
        self._earlier: dict[str, Mapping[str, Any]] = {}  # last results of unfinished trials of earlier sessions
        self._ended = self._ended_beyond = 0  # trials of earlier sessions that ended, and those of them beyond `at`

    def replay(self, logged: Any, log_id: Callable[[Any], str]) -> None:
        """Continues after earlier sessions of a Tune run, whose ended trials the new Tuner does not have.

        Args:
            logged: the trials of earlier sessions, a `LoggedRun`.
            log_id: a function from a trial of Tune to its id in the log.
        """
        self._log_id = log_id
        for trial in logged.trials.values():
            if trial.ended:
                self._ended += 1
                self._ended_beyond += self._time_of(trial.last_result) > self.at
            else:
                self._earlier[trial.trial_id] = trial.last_result

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        if self._metric and metric:
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        if self._metric is None or self._mode not in ("min", "max"):
            raise InvalidInput(
                f"Expected a metric and a mode, got metric={self._metric!r}, mode={self._mode!r}. Pass metric and mode "
                "to DropWorst or to TuneConfig."
            )
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Pauses a trial that had reached `at` before an interruption, since Tune makes it pending."""
        if trial.status == Trial.PENDING and self._time(trial) == self.at:
            trial.set_status(Trial.PAUSED)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        survives = self._survivors is not None and trial.trial_id in self._survivors  # a retry may report `at` again
        return TrialScheduler.PAUSE if result[self.time_attr] == self.at and not survives else TrialScheduler.CONTINUE

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        trials = tune_controller.get_trials()
        for trial in trials:
            if trial.status == Trial.PENDING:
                return trial
        if self._survivors is None:
            running = [trial for trial in trials if trial.status == Trial.RUNNING]
            if len(trials) + self._ended < self.trials or any(self._time(trial) <= self.at for trial in running):
                return None  # a trial that reached `at` may still be saving its state
            self._survivors = self._best(trials)
            for trial in trials:
                if trial.status == Trial.PAUSED and trial.trial_id not in self._survivors:
                    tune_controller.stop_trial(trial)
        return next((trial for trial in trials if trial.status == Trial.PAUSED), None)

    def debug_string(self) -> str:
        return f"DropWorst: the best {self.keep} of {self.trials} trials continue after {self.time_attr} {self.at}"

    def _best(self, trials: list[Trial]) -> set[str]:
        """Returns the ids of the trials beyond `at` and of the best paused trials."""
        beyond = [trial for trial in trials if self._time(trial) > self.at]
        waiting = sorted((trial for trial in trials if trial.status == Trial.PAUSED), key=self._rank)
        return {trial.trial_id for trial in [*beyond, *waiting][: max(self.keep - self._ended_beyond, len(beyond))]}

    def _rank(self, trial: Trial) -> tuple[float, str]:
        value = self._last_result(trial).get(self._metric or "")
        if value is None or math.isnan(value):
            return math.inf, self._log_id(trial)
        return (-value if self._mode == "max" else value), self._log_id(trial)

    def _last_result(self, trial: Trial) -> Mapping[str, Any]:
        return {**self._earlier.get(self._log_id(trial), {}), **(trial.last_result or {})}

    def _time(self, trial: Trial) -> float:
        return self._time_of(self._last_result(trial))

    def _time_of(self, result: Mapping[str, Any]) -> float:
        return float(result.get(self.time_attr, 0))
