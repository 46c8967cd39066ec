"""The stage that keeps of a search's trainings those that no other betters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.pool_scoring import POOL
from archray.platform.engine.run_costs import has_costs, run_costs, with_costs
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.methods.pareto.pareto_config import SeveralObjectivesConfig
from archray.platform.methods.plain.plain_tables import Trials
from archray.platform.run.layout import FOUND, PARETO, TRIALS
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers.arguments import FloatArray
from archray.searchers.pareto.front import contributions, hypervolume, non_dominated

MARGIN = 0.1  # of an objective's range over the trainings: the reference lies so far beyond the worst of them


@dataclass(frozen=True)
class ObjectiveTable:
    """The trainings of a search that have every objective, in the order of suggestion.

    Args:
        table: architecture, number (from 1), the value that was searched for, and the costs.
        key: the name of that value. costs: the columns of the costs.
        losses: (n, 1 + k) less is better.
    """

    table: pd.DataFrame
    key: str
    costs: tuple[str, ...]
    losses: FloatArray

    @classmethod
    def of(cls, trials: Trials, costs: tuple[str, ...]) -> ObjectiveTable:
        columns = [trials.losses.to_numpy(dtype=float), *(trials.table[name].to_numpy(dtype=float) for name in costs)]
        losses = np.stack(columns, axis=1)
        known = np.isfinite(losses).all(axis=1)
        table = trials.table.assign(number=np.arange(1, len(losses) + 1))
        kept = table.loc[known, ["architecture", "number", trials.key, *costs]].reset_index(drop=True)
        return cls(kept, trials.key, costs, losses[known])

    @property
    def reference(self) -> FloatArray:
        """(1 + k,) a tenth of the range beyond the worst; where all are equal, one beyond."""
        spread = np.ptp(self.losses, axis=0)
        return self.losses.max(axis=0) + np.where(spread > 0, MARGIN * spread, 1.0)

    def front(self) -> pd.DataFrame:
        """What no other betters, the best value first: with `hypervolume_contribution`, shares of the whole."""
        places = non_dominated(self.losses)
        points = self.losses[places]
        whole = hypervolume(points, self.reference)
        front = self.table.iloc[places].assign(hypervolume_contribution=contributions(points, self.reference) / whole)
        return front.iloc[np.argsort(points[:, 0], kind="stable")].reset_index(drop=True)

    def hypervolumes(self) -> FloatArray:
        """(n,) after each training, as a share of that after the last."""
        volumes = [hypervolume(self.losses[:n], self.reference) for n in range(1, len(self.losses) + 1)]
        return np.array(volumes) / volumes[-1]


def objective_table(run: Run[Any]) -> ObjectiveTable:
    """Of one run whose set is written, not of its repeats."""
    costs = run.table("pareto", "costs.parquet")
    trials = Trials.of(run)
    columns = tuple(str(column) for column in costs if column != "number")
    table = trials.table.drop(columns=[name for name in columns if name in trials.table])
    return ObjectiveTable.of(Trials(pd.concat([table, costs[list(columns)]], axis=1), trials.mode), columns)


def _write_set(context: Context[SeveralObjectivesConfig], folder: Folder) -> None:
    run, columns = context.run, context.config.cost_columns
    trials = Trials.of(run)
    table = with_costs(context, trials.table)
    if missing := [name for name in columns if name not in table]:  # columns of a pool that was scored elsewhere
        pool = run.table("pool", POOL)[["architecture", *missing]]
        table = table.merge(pool, on="architecture", how="left", validate="many_to_one")
    objectives = ObjectiveTable.of(Trials(table, trials.mode), columns)
    if objectives.table.empty:
        raise ArchrayError(f"none of {count(len(table), 'training')} has a value and {', '.join(columns)}")
    front = objectives.front()
    numbered = table[list(columns)].astype("float64").assign(number=np.arange(1, len(table) + 1))
    folder.write_parquet("costs.parquet", numbered.reset_index(drop=True))
    further = [name for name in run_costs(context).frame_columns if name not in front] if has_costs(context) else []
    folder.write_parquet(PARETO, front.merge(numbered[["number"]].join(table[further]), on="number", how="left"))
    best = front.iloc[0]  # of equally accurate ones the search found the first, the set has the cheapest
    document = {"architecture": best["architecture"], "value": float(best[trials.key]), "number": int(best["number"])}
    folder.write_json(FOUND, {**(run.document("search") or {}), **document})
    context.say(f"{count(len(front), 'architecture')} that no other of {len(objectives.table)} betters")


PARETO_STAGE = WorkStage[SeveralObjectivesConfig](
    name="pareto",
    title="keep what no other betters",
    reads=("objectives",),
    depends=file_digests(f"search/{TRIALS}"),
    needs_ray=False,
    work=_write_set,
)
