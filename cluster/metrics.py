"""Ray metrics of a run: best score, scored architectures, trials by state, times and memory.

Prometheus reads them from a node's metrics port as `ray_archray_...`. The labels are run, method, stage and the state
of trials, so the number of time series does not grow with the number of trials.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard

from ray import tune
from ray.util import metrics

GRAFANA = Path(__file__).parent / "grafana" / "archray.json"  # a dashboard of these metrics
PUBLISH_SECONDS = 2.0  # between two passes over all trials; Ray sends its metrics every ten seconds
STATES = ("PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR")  # Tune's states of a trial
EPOCH_BUCKETS = [digit * 10.0**power for power in range(-1, 4) for digit in (1, 2, 5)]  # seconds, 0.1 to 5000
LABEL_KEYS = ("run", "method", "stage")


@dataclass(frozen=True)
class RunMetric:
    """A Ray metric.

    Its name in Prometheus is `ray_NAME`, with `_total` for a counter, and with `_bucket` and `_count` for a histogram.
    The `_sum` of a histogram adds the midpoints of the buckets, not the values (Ray 2.60).

    Attributes:
        name: the name in Ray.
        kind: gauge, counter or histogram.
        description: a sentence for Prometheus.
        labels: labels in addition to LABEL_KEYS.
    """

    name: str
    kind: str
    description: str
    labels: tuple[str, ...] = ()

    def make(self) -> Any:
        """Creates the metric in this process. A second call continues the values of the first."""
        keys = LABEL_KEYS + self.labels
        if self.kind == "histogram":
            return metrics.Histogram(self.name, self.description, boundaries=EPOCH_BUCKETS, tag_keys=keys)
        return {"gauge": metrics.Gauge, "counter": metrics.Counter}[self.kind](self.name, self.description, keys)


BEST = RunMetric("archray_best_score", "gauge", "Best value of the finished trials.", ("metric",))
SCORED = RunMetric("archray_architectures_scored", "counter", "Number of scored architectures.")
TRIALS = RunMetric("archray_trials", "gauge", "Number of trials by state.", ("state",))
EPOCH = RunMetric("archray_epoch_seconds", "histogram", "Seconds per epoch, or per step, of a trial.")
MEMORY = RunMetric("archray_gpu_memory_peak_bytes", "gauge", "Peak GPU memory over all epochs and trials.")
SEARCHER = RunMetric("archray_searcher_seconds", "counter", "Seconds that the searcher used in the driver.")
METRICS = (BEST, SCORED, TRIALS, EPOCH, MEMORY, SEARCHER)


@dataclass(frozen=True)
class RunLabels:
    """The labels of a metric.

    Attributes:
        run: the name of the run's folder.
        method: the method.
        stage: the stage of the method.
    """

    run: str = ""
    method: str = ""
    stage: str = ""

    @property
    def title(self) -> str:
        """The title of actors and of a map: `hnas search`."""
        return " ".join(filter(None, [self.run, self.stage]))

    def tags(self, **more: str) -> dict[str, str]:
        """Returns the labels and `more` in ASCII, which Ray 2.60 requires (`größe` is `gr\\xf6\\xdfe`)."""
        tags = {**asdict(self), **more}
        return {key: value.encode("ascii", "backslashreplace").decode() for key, value in tags.items()}


class ScoredCount:
    """Counts the scored architectures of a stage without a Tune run."""

    def __init__(self, labels: RunLabels) -> None:
        self._counter, self._tags = SCORED.make(), labels.tags()

    def add(self, architectures: int) -> None:
        if architectures:
            self._counter.inc(architectures, self._tags)


class RunMetrics(tune.Callback):
    """A Tune callback that updates the metrics of one run; it takes tens of microseconds per trial.

    The seconds of an epoch are `seconds_epoch` of the result, else Tune's seconds of a step. GPU memory is
    `gpu_memory_peak` of the result. A trial that ended with a finite metric counts as one architecture, or as many as
    it has `scores`.

    Args:
        labels: the labels of the metrics.
        metric, mode: metric and mode of the search, for the best score.
        searcher: the searcher whose `seconds` are counted; None: no searcher.
        earlier: last results of the trials that ended before the interruption of a resumed run.

    Example:
        ```python
        callback = RunMetrics(RunLabels(run="my-run", method="random", stage="search"), "accuracy", "max")
        tune.Tuner(train, run_config=tune.RunConfig(callbacks=[callback])).fit()
        ```
    """

    def __init__(
        self,
        labels: RunLabels,
        metric: str,
        mode: str,
        searcher: Any = None,
        earlier: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.labels, self.metric, self.mode, self.searcher, self.earlier = labels, metric, mode, searcher, earlier
        self._made: dict[RunMetric, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}  # Tune pickles callbacks, but metrics belong to a process

    def setup(self, stop: Any = None, num_samples: Any = None, total_num_samples: Any = None, **info: Any) -> None:
        self._made = {metric: metric.make() for metric in METRICS}
        self._tags = self.labels.tags()
        self._best = self._memory = math.nan
        self._searcher_seconds = 0.0 if self.searcher is None else self.searcher.seconds
        self._published = -math.inf
        for result in self.earlier:
            self._take_score(result)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if time.monotonic() - self._published >= PUBLISH_SECONDS:
            self._publish(trials)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        seconds = result.get("seconds_epoch", result.get("time_this_iter_s"))
        if _is_finite(seconds):
            self._made[EPOCH].observe(seconds, self._tags)
        memory = result.get("gpu_memory_peak")
        if _is_finite(memory):
            self._memory = memory if math.isnan(self._memory) else max(self._memory, memory)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        result = trial.last_result or {}
        if self._take_score(result):
            scores = result.get("scores")
            self._made[SCORED].inc(len(scores) if isinstance(scores, list) and scores else 1, self._tags)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        if self._made:
            self._publish(trials)

    def _take_score(self, result: Mapping[str, Any]) -> bool:
        """Updates the best score; returns whether this result has a score."""
        value = result.get(self.metric)
        if not _is_finite(value):
            return False
        better = max if self.mode == "max" else min
        self._best = value if math.isnan(self._best) else better(self._best, value)
        return True

    def _publish(self, trials: Sequence[Any]) -> None:
        self._published = time.monotonic()
        states = Counter(trial.status for trial in trials) + Counter(TERMINATED=len(self.earlier))
        for state in STATES:
            self._made[TRIALS].set(states[state], self.labels.tags(state=state))
        if not math.isnan(self._best):
            self._made[BEST].set(self._best, self.labels.tags(metric=self.metric))
        if not math.isnan(self._memory):
            self._made[MEMORY].set(self._memory, self._tags)
        if self.searcher is not None and self.searcher.seconds > self._searcher_seconds:
            self._made[SEARCHER].inc(self.searcher.seconds - self._searcher_seconds, self._tags)
            self._searcher_seconds = self.searcher.seconds


def _is_finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
