"""The trials of a Tune run as tables: a row per trial, a row per epoch, reasons of failures, and reruns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from ray import tune

from archray.cluster.settings import card_share, trials_per_card
from archray.files import Folder
from archray.platform.engine.failed_trials import FailedTrial, failed_trial, searched_keys
from archray.platform.engine.result_log import read_results
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.run.layout import RERUN_GPUS
from archray.searchers.ledger import Ledger
from archray.trainables.devices import OUT_OF_MEMORY


def trial_table(results: Sequence[tune.Result]) -> pd.DataFrame:
    """One row per trial: its id, its configuration without `settings`, its last result, its error if it has one."""
    rows = []
    for result in results:
        failed = failed_trial(result)
        metrics, config = metrics_and_config(result, failed)
        if not metrics and not result.error:
            continue  # a time budget ended it before its first result
        row = {"trial_id": metrics.get("trial_id"), **config}
        row |= {k: v for k, v in metrics.items() if k not in row and k != "config" and not isinstance(v, dict | list)}
        error = failed.sentence if failed else result.error
        row["error"] = str(error) if error else None
        rows.append(row)
    return pd.DataFrame(rows)


def curve_table(folder: Folder, results: Sequence[tune.Result]) -> pd.DataFrame:
    """One row per epoch of every trial of the Tune run in `folder`, with the trial's id, architecture and seed.

    The architecture is the configuration's; without one, that of the epoch's result.
    """
    table = read_results(folder)
    if table.empty:
        return table
    of_trials = [metrics_and_config(result, failed_trial(result)) for result in results]
    configs = {metrics.get("trial_id"): config for metrics, config in of_trials}
    table = table[table["trial_id"].isin(list(configs))]  # a kill may leave results of a trial that Tune lost
    lists = [name for name in table.columns if table[name].map(lambda value: isinstance(value, list)).any()]
    table = table.drop(columns=lists)
    for key in ("architecture", "seed"):
        values = table["trial_id"].map({trial: config.get(key) for trial, config in configs.items()})
        table[key] = values if key not in table else values.where(values.notna(), table[key])
    return table


def reasons(trials: pd.DataFrame) -> pd.Series:
    """Why each trial failed: the `failure` of its result, else Tune's `error`, else null."""
    columns = trials.reindex(columns=["failure", "error"])
    return columns["failure"].fillna(columns["error"])


def failure_reasons(trials: pd.DataFrame) -> str:
    """The distinct reasons for which trials failed, in one line."""
    return "; ".join(sorted({str(reason) for reason in reasons(trials).dropna()})) or "no reason was recorded"


def trial_id_of(result: tune.Result) -> str:
    """Tune's id of a trial; empty if it ended before its first result."""
    metrics, _ = metrics_and_config(result, failed_trial(result))
    return str(metrics.get("trial_id") or "")


def metrics_and_config(result: tune.Result, failed: FailedTrial | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last result of a trial, and its configuration without `settings`."""
    metrics = result.metrics or {}
    if failed is not None:
        return metrics if failed.reported else {"trial_id": failed.trial_id}, failed.config
    return metrics, searched_keys(result.config or {})


# Trials that ran out of a GPU's memory run again, by a Tuner of their own, with at least twice the share of a GPU. The
# searcher has ended by then, and its later suggestions did not have these results. In the tables they replace the rows
# of the failed trials, under their ids. The searcher that is read back after the search (`best()`, an extended search)
# receives them.

RERUN_OF = "rerun_of"  # in a configuration: the id of the trial that had run out of memory


@dataclass(frozen=True)
class Rerun:
    """A trial that ran again: its result, the folder of its Tune run, its share of a GPU."""

    result: tune.Result
    folder: Folder
    gpus: float


def larger_share(share: float) -> float:
    """At least twice a share of a GPU, at most one GPU; no share that leaves a part of it idle."""
    return card_share(trials_per_card(min(1.0, 2 * share)))


def short_of_memory(results: Sequence[tune.Result]) -> list[tune.Result]:
    """The `results` that failed without memory."""
    failures = [str((result.metrics or {}).get("failure")) for result in results]
    return [result for result, failure in zip(results, failures, strict=True) if failure.startswith(OUT_OF_MEMORY)]


def rerun_plan(plan: TrialPlan, short: Sequence[tune.Result]) -> TrialPlan:
    """The same trials once more, seeds included, without a searcher and a scheduler."""
    trials = [metrics_and_config(result, failed_trial(result)) for result in short]
    configs = {config.get(RERUN_OF, metrics["trial_id"]): config for metrics, config in trials}
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
    """The value of one key in the configuration of the trial that runs again. A class, since Tune pickles it."""

    values: Mapping[str, Any]

    def __call__(self, config: Mapping[str, Any]) -> Any:
        return self.values[config[RERUN_OF]]


def reruns_of(results: tune.ResultGrid, folder: Folder, gpus: float) -> dict[str, Rerun]:
    """The trials of a Tune run of `rerun_plan`, by the id of the trial that had failed first."""
    ended = [results[number] for number in range(len(results))]  # a `ResultGrid` iterates by index only
    of = [metrics_and_config(result, failed_trial(result))[1][RERUN_OF] for result in ended]
    return {trial_id: Rerun(result, folder, gpus) for trial_id, result in zip(of, ended, strict=True)}


def rerun_trials(results: Sequence[tune.Result], reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    """The table of trials, with the last result of each, and if any ran again, its share of a GPU in `rerun_gpus`."""
    return _as_first(trial_table(last_results(results, reruns)), reruns)


def last_results(results: Sequence[tune.Result], reruns: Mapping[str, Rerun]) -> list[tune.Result]:
    return [reruns[of].result if (of := trial_id_of(result)) in reruns else result for result in results]


def rerun_curves(folder: Folder, results: Sequence[tune.Result], reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    """The table of epochs; of a trial that ran again those of its last run."""
    tables = [curve_table(folder, [result for result in results if trial_id_of(result) not in reruns])]
    for rerun in reruns.values():
        tables.append(_as_first(curve_table(rerun.folder, [rerun.result]), reruns))
    return pd.concat([table for table in tables if not table.empty] or tables[:1], ignore_index=True)


def _as_first(table: pd.DataFrame, reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    first = {trial_id_of(rerun.result): of for of, rerun in reruns.items()}
    if table.empty or not first:
        return table
    gpus = table["trial_id"].map({trial_id: reruns[of].gpus for trial_id, of in first.items()})
    ids = table["trial_id"].map(lambda trial_id: first.get(trial_id, trial_id))
    return table.drop(columns=RERUN_OF, errors="ignore").assign(trial_id=ids, **{RERUN_GPUS: gpus})


def tell(ledger: Ledger, reruns: Mapping[str, Rerun], metric: str) -> None:
    """Enters the results of reruns into the ledger of a searcher that has ended."""
    for of, rerun in reruns.items():
        record = ledger.of_trial(of)
        if record is not None:
            ledger.end(record, rerun.result.metrics, rerun.result.error is not None, metric)
