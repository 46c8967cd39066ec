"""The trials of a Tune run as tables: a row a trial, a row an epoch of each, and why some failed."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from ray.tune import Result

from archray.files import Folder
from archray.platform.engine.failed_trials import FailedTrial, failed_trial, own_keys
from archray.platform.engine.result_log import read_results


def trial_table(results: Sequence[Result]) -> pd.DataFrame:
    """One row a trial: its id, its configuration without `settings`, its last result, the error if it has one."""
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


def curve_table(folder: Folder, results: Sequence[Result]) -> pd.DataFrame:
    """One row an epoch of every trial of the Tune run in `folder`, with the trial's id, architecture and seed.

    The architecture is the one that was asked for; of a trial that was asked for none, the one of that epoch.
    """
    table = read_results(folder)
    if table.empty:
        return table
    of_trials = [metrics_and_config(result, failed_trial(result)) for result in results]
    configs = {metrics.get("trial_id"): config for metrics, config in of_trials}
    table = table[table["trial_id"].isin(list(configs))]  # a kill may leave results of a trial Tune forgot
    lists = [name for name in table.columns if table[name].map(lambda value: isinstance(value, list)).any()]
    table = table.drop(columns=lists)
    for key in ("architecture", "seed"):
        asked = table["trial_id"].map({trial: config.get(key) for trial, config in configs.items()})
        table[key] = asked if key not in table else asked.where(asked.notna(), table[key])
    return table


def reasons(trials: pd.DataFrame) -> pd.Series:
    """Why each trial failed: its result's own `failure`, else the `error` that Tune gave it up for; else null."""
    columns = trials.reindex(columns=["failure", "error"])
    return columns["failure"].fillna(columns["error"])


def failure_reasons(trials: pd.DataFrame) -> str:
    """The distinct reasons for which trials failed, in one line."""
    return "; ".join(sorted({str(reason) for reason in reasons(trials).dropna()})) or "no reason was recorded"


def trial_id_of(result: Result) -> str:
    """Tune's id of a trial; empty of one that ended before its first result."""
    metrics, _ = metrics_and_config(result, failed_trial(result))
    return str(metrics.get("trial_id") or "")


def metrics_and_config(result: Result, failed: FailedTrial | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last result of a trial, and the keys of its configuration that its searcher, or the plan, set."""
    metrics = result.metrics or {}
    if failed is not None:
        return metrics if failed.reported else {"trial_id": failed.trial_id}, failed.config
    return metrics, own_keys(result.config or {})
