"""Tables of a Tune run: a row per trial, a row per epoch, reasons of failures, and reruns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from ray import tune

from archray.cluster.settings import share_of_trials, trials_of_share
from archray.errors import OUT_OF_MEMORY
from archray.platform.durable.failed_trials import Failure
from archray.platform.durable.results import LoggedResult, Results
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.run.layout import RERUN_GPUS
from archray.platform.run.trial_log import ITERATION, LoggedTrial
from archray.searchers.ledger import Ledger


def trial_table(trials: Sequence[LoggedTrial]) -> pd.DataFrame:
    """Builds a table of trials: id, configuration without `settings`, last result, and error if there is one."""
    rows = []
    for trial in trials:
        if not trial.results and not trial.error:
            continue  # a time budget stopped it before its first result
        row = {"trial_id": trial.trial_id, **trial.config}
        row |= {k: v for k, v in trial.last_result.items() if k not in row and not isinstance(v, list)}
        row["error"] = Failure.of(trial).sentence if trial.error else None
        rows.append(row)
    return pd.DataFrame(rows)


def epochs_of(trials: Sequence[LoggedTrial]) -> pd.DataFrame:
    """Builds a table of epochs of every trial, in order. A later report of an epoch replaces an earlier report.

    A trial that was restored after its last epoch reports this epoch again, with the next `training_iteration`.
    """
    rows = [{**result, "trial_id": trial.trial_id} for trial in trials for result in trial.results]
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows)
    keys = ["trial_id", "epoch" if "epoch" in table else ITERATION]
    return table.drop_duplicates(keys, keep="last").sort_values(keys, ignore_index=True)


def curve_table(trials: Sequence[LoggedTrial]) -> pd.DataFrame:
    """Builds a table of epochs of every trial, with the trial's id, architecture and seed.

    The architecture comes from the configuration, or else from the result of the epoch.
    """
    table = epochs_of(trials)
    if table.empty:
        return table
    lists = [name for name in table.columns if table[name].map(lambda value: isinstance(value, list)).any()]
    table = table.drop(columns=lists)
    for key in ("architecture", "seed"):
        values = table["trial_id"].map({trial.trial_id: trial.config.get(key) for trial in trials})
        table[key] = values if key not in table else values.where(values.notna(), table[key])
    return table


def reasons(trials: pd.DataFrame) -> pd.Series:
    """Returns why each trial failed: the `failure` of its result, else Tune's `error`, else null."""
    columns = trials.reindex(columns=["failure", "error"])
    return columns["failure"].fillna(columns["error"])


def failure_reasons(trials: pd.DataFrame) -> str:
    """Returns the distinct reasons of failed trials, in one line."""
    return "; ".join(sorted({str(reason) for reason in reasons(trials).dropna()})) or "no reason was recorded"


# A separate Tuner reruns trials that ran out of GPU memory, with at least twice the share of a GPU. The searcher has
# ended by then, so that its suggestions did not use these results. In the tables, reruns replace the rows of the failed
# trials, under their ids. A searcher that is read back after the search (`best()`, an extended search) receives them.

RERUN_OF = "rerun_of"  # key of a configuration: the id of the trial that ran out of memory


@dataclass(frozen=True)
class Rerun:
    """A rerun of a trial: its result, its share of a GPU."""

    result: LoggedResult
    gpus: float


def larger_share(share: float) -> float:
    """Returns at least twice a share of a GPU, at most one GPU, without leaving a part of the GPU idle."""
    return share_of_trials(trials_of_share(min(1.0, 2 * share)))


def short_of_memory(results: Sequence[LoggedResult]) -> list[LoggedResult]:
    """Returns the `results` of trials that ran out of memory."""
    return [result for result in results if str((result.metrics or {}).get("failure")).startswith(OUT_OF_MEMORY)]


def rerun_plan(plan: TrialPlan, short: Sequence[LoggedResult]) -> TrialPlan:
    """Returns a plan that repeats the trials with the same seeds, without a searcher and a scheduler."""
    configs = {result.config.get(RERUN_OF, result.trial_id): result.config for result in short}
    keys = {key for config in configs.values() for key in config} - {RERUN_OF}
    chosen = {key: tune.sample_from(_Chosen({of: config.get(key) for of, config in configs.items()})) for key in keys}
    return replace(
        plan,
        keys={RERUN_OF: tune.grid_search(sorted(configs)), **chosen},
        total=len(configs),
        before=0,
        searcher=None,
        scheduler=None,
        fixed=False,
        limited=True,
        resumes=True,
    )


@dataclass(frozen=True)
class _Chosen:
    """The value of one key in the configuration of a rerun."""

    values: Mapping[str, Any]

    def __call__(self, config: Mapping[str, Any]) -> Any:
        return self.values[config[RERUN_OF]]


def reruns_of(results: Results, gpus: float) -> dict[str, Rerun]:
    """Returns the trials of a Tune run of `rerun_plan`, by the id of the trial that failed first."""
    return {result.config[RERUN_OF]: Rerun(result, gpus) for result in results}


def rerun_trials(results: Sequence[LoggedResult], reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    """Builds the table of trials with their last results; `rerun_gpus` is the GPU share of reruns, if any."""
    first = trial_table([result.trial for result in results if result.trial_id not in reruns])
    again = [_as_first(trial_table([rerun.result.trial]), of, rerun) for of, rerun in reruns.items()]
    return _joined([first, *again], [result.trial_id for result in results])


def last_results(results: Sequence[LoggedResult], reruns: Mapping[str, Rerun]) -> list[LoggedResult]:
    return [reruns[result.trial_id].result if result.trial_id in reruns else result for result in results]


def rerun_curves(results: Sequence[LoggedResult], reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    """Builds the table of epochs; for a rerun trial, the epochs of its last run."""
    first = curve_table([result.trial for result in results if result.trial_id not in reruns])
    again = [_as_first(curve_table([rerun.result.trial]), of, rerun) for of, rerun in reruns.items()]
    return pd.concat([table for table in (first, *again) if not table.empty] or [first], ignore_index=True)


def _as_first(table: pd.DataFrame, trial_id: str, rerun: Rerun) -> pd.DataFrame:
    if table.empty:
        return table
    return table.drop(columns=RERUN_OF, errors="ignore").assign(trial_id=trial_id, **{RERUN_GPUS: rerun.gpus})


def _joined(tables: Sequence[pd.DataFrame], order: Sequence[str]) -> pd.DataFrame:
    """Returns the rows of all tables in the order of these trials."""
    table = pd.concat([table for table in tables if not table.empty] or tables[:1], ignore_index=True)
    if table.empty:
        return table
    places = {trial_id: place for place, trial_id in enumerate(order)}
    return table.sort_values("trial_id", key=lambda ids: ids.map(places), kind="stable", ignore_index=True)


def enter_reruns(ledger: Ledger, reruns: Mapping[str, Rerun], metric: str) -> None:
    """Enters the results of reruns into the ledger of a searcher that has ended."""
    for of, rerun in reruns.items():
        record = ledger.of_trial(of)
        if record is not None:
            ledger.end(record, rerun.result.metrics, rerun.result.error is not None, metric)
