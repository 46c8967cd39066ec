"""The Tune trainable that reads a table of trained architectures, with the table's epochs as iterations."""

import math
from typing import Any, Literal

from pydantic import Field

from archray.errors import InvalidArchitecture
from archray.settings import Seed, Settings
from archray.trainables.tabular import OBJECTIVE, TableOracle, open_table
from archray.trainables.tune.trial import Result, TrialFailed, TrialTrainable, read_architecture


class TabularSettings(Settings):
    """All options of a `TabularTrainable`. Its Tune config contains them under the key `settings`.

    Attributes:
        table: File that exists on every node; or the name of its space, `table:FILE?ROLE=VALUE&...`.
        seeds: Value of an architecture: `mean`, the table's value; or `drawn`, one of several training runs, by the
            trial's seed.
        seed: Seed of a trial whose config has no `seed`.
        device: Not used.
        threads: Not used.
    """

    table: str
    seeds: Literal["mean", "drawn"] = "mean"
    seed: Seed = 0
    device: str = "cpu"
    threads: int | None = Field(None, ge=1)


class TabularTrainable(TrialTrainable):
    """Looks up an architecture in a table. Config: see `TrialTrainable`, and `architecture`, in any spelling.

    A step is an epoch of the table, so that a scheduler can stop a trial between two epochs, by `time_attr="epoch"`. A
    table without epochs has one step. Every result contains `objective` (in the table's unit; after the last epoch the
    value of `TableOracle`), `epoch`, `epochs` (the last one), `row`, `seconds` (of training up to this epoch, in
    proportion to the table's; NaN without), the costs by their columns, `failure` and `done`. An architecture that is
    not in the table is a failed result, which names the nearest.
    """

    settings_type = TabularSettings
    failures = (TrialFailed, InvalidArchitecture)
    _settings: TabularSettings
    _epoch: int  # of the last result; 0 before
    _steps: list[dict[str, Any]]

    def _read(self, config: dict[str, Any]) -> None:
        self._architecture = read_architecture(config, "a string of the table")
        self._oracle = TableOracle(open_table(self._settings.table), self._settings.seeds)

    def _build(self) -> None:
        row = self._oracle.table.row(self._architecture)
        self._steps = self._oracle.steps(row, self._seed)

    def _step(self) -> Result:
        step = next(step for step in self._steps if step["epoch"] > self._epoch)
        self._epoch = step["epoch"]
        return self._values(step[OBJECTIVE]) | step

    def _failed(self, reason: str) -> Result:
        costs = dict.fromkeys(self._oracle.table.costs, math.nan)
        return self._values(math.nan, reason) | {"row": -1, "seconds": math.nan, **costs}

    def _values(self, value: float, failure: str | None = None) -> Result:
        last = max(self._oracle.table.epochs, default=1)
        done = failure is not None or self._epoch == last
        return {OBJECTIVE: value, "epoch": self._epoch, "epochs": last, "failure": failure, "done": done}

    def _state(self) -> dict[str, Any]:
        return {"architecture": self._architecture, "epoch": self._epoch}

    def _load(self, state: dict[str, Any]) -> None:
        self._epoch = state["epoch"]

    def _release(self) -> None:
        self._epoch, self._steps = 0, []
