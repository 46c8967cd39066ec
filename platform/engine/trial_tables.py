"""Tables of a Tune run: a row per trial, a row per epoch, reasons of failures, and reruns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from ray import tune

from archray.cluster.settings import share_of_trials, trials_of_share
from archray.errors import OUT_OF_MEMORY
from archray.files import Folder
from archray.platform.engine.failed_trials import FailedTrial, failed_trial, searched_keys
from archray.platform.engine.result_log import read_results
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.run.layout import RERUN_GPUS
from archray.searchers.ledger import Ledger


def trial_table(results: Sequence[tune.Result]) -> pd.DataFrame:
    """Builds a table of trials: id, configuration without `settings`, last result, and error if there is one."""
    rows = []
    for result in results:
        failed = failed_trial(result)
        metrics, config = metrics_and_config(result, failed)
        if not metrics and not result.error:
            continue  # a time budget stopped it before its first result
        row = {"trial_id": metrics.get("trial_id"), **config}
        row |= {k: v for k, v in metrics.items() if k not in row and k != "config" and not isinstance(v, dict | list)}
        error = failed.sentence if failed else result.error
        row["error"] = str(error) if error else None
        rows.append(row)
    return pd.DataFrame(rows)


def curve_table(folder: Folder, results: Sequence[tune.Result]) -> pd.DataFrame:
    """Builds a table of epochs of every trial of the Tune run in `folder`, with the trial's id, architecture and seed.

    The architecture comes from the configuration, or else from the result of the epoch.
    """
    table = read_results(folder)
    if table.empty:
        return table
    of_trials = [metrics_and_config(result, failed_trial(result)) for result in results]
    configs = {metrics.get("trial_id"): config for metrics, config in of_trials}
    table = table[table["trial_id"].isin(list(configs))]  # a kill may leave results of a trial unknown to Tune
    lists = [name for name in table.columns if table[name].map(lambda value: isinstance(value, list)).any()]
    table = table.drop(columns=lists)
    for key in ("architecture", "seed"):
        values = table["trial_id"].map({trial: config.get(key) for trial, config in configs.items()})
        table[key] = values if key not in table else values.where(values.notna(), table[key])
    return table


def reasons(trials: pd.DataFrame) -> pd.Series:
    """Returns why each trial failed: the `failure` of its result, else Tune's `error`, else null."""
    columns = trials.reindex(columns=["failure", "error"])
    return columns["failure"].fillna(columns["error"])


def failure_reasons(trials: pd.DataFrame) -> str:
    """Returns the distinct reasons of failed trials, in one line."""
    return "; ".join(sorted({str(reason) for reason in reasons(trials).dropna()})) or "no reason was recorded"


def trial_id_of(result: tune.Result) -> str:
    """Returns Tune's id of a trial; empty if the trial ended before its first result."""
    metrics, _ = metrics_and_config(result, failed_trial(result))
    return str(metrics.get("trial_id") or "")


def metrics_and_config(result: tune.Result, failed: FailedTrial | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the last result of a trial, and its configuration without `settings`."""
    metrics = result.metrics or {}
    if failed is not None:
        return metrics if failed.reported else {"trial_id": failed.trial_id}, failed.config
    return metrics, searched_keys(result.config or {})


# A separate Tuner reruns trials that ran out of GPU memory, with at least twice the share of a GPU. The searcher has
# ended by then, so that its suggestions did not use these results. In the tables, reruns replace the rows of the failed
# trials, under their ids. A searcher that is read back after the search (`best()`, an extended search) receives them.

RERUN_OF = "rerun_of"  # key of a configuration: the id of the trial that ran out of memory


@dataclass(frozen=True)
class Rerun:
    """A rerun of a trial: its result, the folder of its Tune run, its share of a GPU."""

    result: tune.Result
    folder: Folder
    gpus: float


def larger_share(share: float) -> float:
    """Returns at least twice a share of a GPU, at most one GPU, without leaving a part of the GPU idle."""
    return share_of_trials(trials_of_share(min(1.0, 2 * share)))


def short_of_memory(results: Sequence[tune.Result]) -> list[tune.Result]:
    """Returns the `results` of trials that ran out of memory."""
    failures = [str((result.metrics or {}).get("failure")) for result in results]
    return [result for result, failure in zip(results, failures, strict=True) if failure.startswith(OUT_OF_MEMORY)]


def rerun_plan(plan: TrialPlan, short: Sequence[tune.Result]) -> TrialPlan:
    """Returns a plan that repeats the trials with the same seeds, without a searcher and a scheduler."""
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
    """The value of one key in the configuration of a rerun. It is a class, since Tune pickles it."""

    values: Mapping[str, Any]

    def __call__(self, config: Mapping[str, Any]) -> Any:
        return self.values[config[RERUN_OF]]


def reruns_of(results: tune.ResultGrid, folder: Folder, gpus: float) -> dict[str, Rerun]:
    """Returns the trials of a Tune run of `rerun_plan`, by the id of the trial that failed first."""
    ended = [results[number] for number in range(len(results))]  # a `ResultGrid` iterates by index only
    of = [metrics_and_config(result, failed_trial(result))[1][RERUN_OF] for result in ended]
    return {trial_id: Rerun(result, folder, gpus) for trial_id, result in zip(of, ended, strict=True)}


def rerun_trials(results: Sequence[tune.Result], reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    """Builds the table of trials with their last results; `rerun_gpus` is the GPU share of reruns, if any."""
    return _as_first(trial_table(last_results(results, reruns)), reruns)


def last_results(results: Sequence[tune.Result], reruns: Mapping[str, Rerun]) -> list[tune.Result]:
    return [reruns[of].result if (of := trial_id_of(result)) in reruns else result for result in results]


def rerun_curves(folder: Folder, results: Sequence[tune.Result], reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    """Builds the table of epochs; for a rerun trial, the epochs of its last run."""
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


def enter_reruns(ledger: Ledger, reruns: Mapping[str, Rerun], metric: str) -> None:
    """Enters the results of reruns into the ledger of a searcher that has ended."""
    for of, rerun in reruns.items():
        record = ledger.of_trial(of)
        if record is not None:
            ledger.end(record, rerun.result.metrics, rerun.result.error is not None, metric)
