"""The results of a Tune run with a log: those of all its sessions, as Ray Tune's objects."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow.fs
from ray import tune

from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.durable.failed_trials import Failure
from archray.platform.run.trial_log import ITERATION, LoggedRun, LoggedTrial

SCOPES: Mapping[str, Callable[[pd.Series], float]] = {
    "last": lambda values: values.iloc[-1],
    "avg": lambda values: values.mean(),
    "last-5-avg": lambda values: values.tail(5).mean(),
    "last-10-avg": lambda values: values.tail(10).mean(),
}


class LoggedResult(tune.Result):
    """The result of a trial, as `ray.tune.Result`; checkpoints and the table of results are read on access.

    Args:
        trial: the trial in the log.
        folder: folder of its Tune run.
        config: its whole configuration.
    """

    def __init__(self, trial: LoggedTrial, folder: Folder, config: Mapping[str, Any]) -> None:
        self.trial_id, self.trial, self._folder = trial.trial_id, trial, folder
        self.metrics = {**_nested(trial.metrics), "config": dict(config)} if trial.results else {}
        self._config = dict(config)
        self.path = f"{folder.path}/{trial.folder}" if trial.folder else folder.path
        self.error = RuntimeError(self._reason()) if trial.error else None

    def _reason(self) -> str:
        """Returns what Tune wrote in the trial's folder, or else the sentence in the log."""
        written = self._folder / self.trial.folder / "error.txt" if self.trial.folder else None
        if written is not None and self._folder.exists(f"{self.trial.folder}/error.txt"):
            return (self._folder / self.trial.folder).read_bytes("error.txt").decode(errors="replace")
        return Failure.of(self.trial).sentence

    @property
    def config(self) -> dict[str, Any]:
        return self._config

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        return self._folder.filesystem

    @property
    def best_checkpoints(self) -> list[tuple[tune.Checkpoint, dict[str, Any]]]:  # type: ignore[override]
        """The checkpoints that exist, the newest last, with their results."""
        results = {result.get(ITERATION): result for result in self.trial.results}
        existing = [saved for saved in self.trial.checkpoints if self._folder.exists(saved.path)]
        return [(self._checkpoint(saved.path), dict(results.get(saved.iteration, {}))) for saved in existing]

    @property
    def checkpoint(self) -> tune.Checkpoint | None:  # type: ignore[override]
        """The last checkpoint; None if it was deleted."""
        saved = self.trial.checkpoints[-1:]
        return self._checkpoint(saved[0].path) if saved and self._folder.exists(saved[0].path) else None

    def _checkpoint(self, path: str) -> tune.Checkpoint:
        return tune.Checkpoint((self._folder / path).path, filesystem=self.filesystem)

    @property
    def metrics_dataframe(self) -> pd.DataFrame:  # type: ignore[override]
        """A row per result; a later report of an iteration replaces an earlier one."""
        table = pd.DataFrame(self.trial.results)
        keep = {"keep": "last", "ignore_index": True}
        return table.drop_duplicates(ITERATION, **keep) if ITERATION in table else table  # type: ignore[call-overload]


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a result in which the keys `a/b` are nested again, as the trial reported it."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split("/")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return nested


class Results(tune.ResultGrid):
    """The results of all sessions of a Tune run, in the order of suggestion, with the methods of `ray.tune.ResultGrid`.

    Args:
        logged: the log.
        folder: folder of the Tune run.
        metric, mode: defaults of `get_best_result`.
        configs: whole configurations by id of the trial, of those that the log does not represent.
    """

    def __init__(
        self,
        logged: LoggedRun,
        folder: Folder,
        metric: str | None = None,
        mode: str | None = None,
        configs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._trials, self._folder = list(logged.trials.values()), folder
        self._metric, self._mode, self._configs = metric, mode, configs or {}

    @property
    def experiment_path(self) -> str:
        return self._folder.path

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        return self._folder.filesystem

    def __len__(self) -> int:
        return len(self._trials)

    def __getitem__(self, number: int) -> LoggedResult:
        trial = self._trials[number]
        return LoggedResult(trial, self._folder, {**trial.config, **self._configs.get(trial.trial_id, {})})

    def __iter__(self) -> Iterator[LoggedResult]:
        return map(self.__getitem__, range(len(self)))

    @property
    def errors(self) -> list[Exception]:
        return [result.error for result in self if result.error]

    @property
    def num_errors(self) -> int:
        return sum(trial.ended and trial.error for trial in self._trials)

    @property
    def num_terminated(self) -> int:
        return sum(trial.ended and not trial.error for trial in self._trials)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> LoggedResult:
        """As in `ray.tune.ResultGrid`. Raises: InvalidInput for an unknown option; RuntimeError without a value."""
        metric, mode = metric or self._metric, mode or self._mode
        if metric is None or mode not in ("min", "max"):
            raise InvalidInput(f"Expected a metric and min or max, got metric={metric!r}, mode={mode!r}. Pass both.")
        if scope != "all" and scope not in SCOPES:
            raise InvalidInput(f"Expected a scope of {', '.join(('all', *SCOPES))}, got {scope!r}. Choose one.")
        best: tuple[float, int] | None = None
        sign = 1.0 if mode == "min" else -1.0
        for number, trial in enumerate(self._trials):
            values = pd.Series([result.get(metric) for result in trial.results], dtype=float)
            if values.isna().all():
                continue
            value = float((sign * values).min()) if scope == "all" else sign * float(SCOPES[scope](values))
            if filter_nan_and_inf and not math.isfinite(value):
                continue
            if best is None or value < best[0]:
                best = value, number
        if best is None:
            raise RuntimeError(f"Expected a value of {metric} in a result, got none. See the errors of the trials.")
        return self[best[1]]

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> pd.DataFrame:
        """Returns a row per trial: its last result, or its best one by a metric, and its config as `config/KEY`."""
        rows: list[dict[str, Any]] = []
        for result, trial in zip(self, self._trials, strict=True):
            shown: Sequence[dict[str, Any]] = trial.results[-1:]
            if filter_metric is not None:
                valued = [row for row in trial.results if row.get(filter_metric) is not None]
                best = max if filter_mode == "max" else min
                shown = [best(valued, key=lambda row: row[filter_metric])] if valued else []
            for row in shown:
                config = {f"config/{key}": value for key, value in result.config.items()}
                rows.append({**row, "trial_id": trial.trial_id, **config, "logdir": result.path})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} results in {self._folder})"
