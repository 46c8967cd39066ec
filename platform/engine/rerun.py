"""Trials that ran out of a GPU's memory, run again by a Tuner of their own with at least twice the share of a card.

The searcher has ended by then: what it suggested after the failures it suggested without these results. In the tables
they stand in the rows of the trials that failed, under their ids, and the searcher that is read back after the search
(`best()`, what an extended search goes on from) is told them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from ray import tune
from ray.tune import Result, ResultGrid

from archray.cluster.settings import card_share, trials_per_card
from archray.files import Folder
from archray.platform.engine.failed_trials import failed_trial
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import curve_table, metrics_and_config, trial_id_of, trial_table
from archray.platform.run.layout import RERUN_GPUS
from archray.searchers.ledger import Ledger
from archray.trainables.devices import OUT_OF_MEMORY

RERUN_OF = "rerun_of"  # in a configuration: the id of the trial that had run out of memory


@dataclass(frozen=True)
class Rerun:
    """One trial run again: its result, the folder of its Tune run, its share of a GPU."""

    result: Result
    folder: Folder
    gpus: float


def larger_share(share: float) -> float:
    """At least twice a share of a card, and no more than a card; none that leaves some of it idle."""
    return card_share(trials_per_card(min(1.0, 2 * share)))


def short_of_memory(results: Sequence[Result]) -> list[Result]:
    """Those of `results` that failed as memory ran out."""
    reasons = [(result.metrics or {}).get("failure") for result in results]
    return [
        result
        for result, reason in zip(results, reasons, strict=True)
        if isinstance(reason, str) and reason.startswith(OUT_OF_MEMORY)
    ]


def rerun_plan(plan: TrialPlan, short: Sequence[Result]) -> TrialPlan:
    """The same trials once more: seed and all; no searcher asks for them, and no scheduler ends them early."""
    told = [metrics_and_config(result, failed_trial(result)) for result in short]
    configs = {config.get(RERUN_OF, metrics["trial_id"]): config for metrics, config in told}
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
    """The value of one key in the configuration of the trial that is run again. By class: Tune pickles it."""

    values: Mapping[str, Any]

    def __call__(self, config: Mapping[str, Any]) -> Any:
        return self.values[config[RERUN_OF]]


def reruns_of(results: ResultGrid, folder: Folder, gpus: float) -> dict[str, Rerun]:
    """The trials of a Tune run of `rerun_plan`, by the id of the trial that had failed first."""
    ended = [results[number] for number in range(len(results))]  # a `ResultGrid` iterates by index only
    of = [metrics_and_config(result, failed_trial(result))[1][RERUN_OF] for result in ended]
    return {trial_id: Rerun(result, folder, gpus) for trial_id, result in zip(of, ended, strict=True)}


# What is read back


def rerun_trials(results: Sequence[Result], reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    """The table of trials, with the last result of each in the place of the one that failed.

    A column `rerun_gpus` is there if any was run again: the share that it had, NaN of the others.
    """
    last = [reruns[of].result if (of := trial_id_of(result)) in reruns else result for result in results]
    return _as_first(trial_table(last), reruns)


def rerun_curves(folder: Folder, results: Sequence[Result], reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    """The table of epochs, likewise: of a trial that was run again those of its last run."""
    tables = [curve_table(folder, [result for result in results if trial_id_of(result) not in reruns])]
    for rerun in reruns.values():
        tables.append(_as_first(curve_table(rerun.folder, [rerun.result]), reruns))
    return pd.concat([table for table in tables if not table.empty] or tables[:1], ignore_index=True)


def _as_first(table: pd.DataFrame, reruns: Mapping[str, Rerun]) -> pd.DataFrame:
    """A table with the trials that were run again under the ids they had first."""
    first = {trial_id_of(rerun.result): of for of, rerun in reruns.items()}
    if table.empty or not first:
        return table
    gpus = table["trial_id"].map({trial_id: reruns[of].gpus for trial_id, of in first.items()})
    ids = table["trial_id"].map(lambda trial_id: first.get(trial_id, trial_id))
    return table.drop(columns=RERUN_OF, errors="ignore").assign(trial_id=ids, **{RERUN_GPUS: gpus})


def tell(ledger: Ledger, reruns: Mapping[str, Rerun], metric: str) -> None:
    """Enters the results of reruns into the book of a searcher that has ended."""
    for of, rerun in reruns.items():
        record = ledger.of_trial(of)
        if record is not None:
            ledger.end(record, rerun.result.metrics, rerun.result.error is not None, metric)
