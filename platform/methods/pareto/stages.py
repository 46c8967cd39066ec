"""Recipes of a search with several objectives: the Pareto front of its trials, and final training of its members."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.pool_scoring import POOL
from archray.platform.engine.run_costs import has_costs, run_costs, with_costs
from archray.platform.engine.stage import Context, Stage, Work, WorkStage, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods import searchers
from archray.platform.methods.method import MakeSearcher
from archray.platform.methods.pareto.config import SeveralObjectivesConfig
from archray.platform.methods.plain.stages import RESULT, looked_up, or_look_up, plain_recipe, results_of_table
from archray.platform.methods.plain.tables import Trials
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.stages import COMPARISON_STAGE, best_result, final_trials, training_amount, write_model
from archray.platform.quantities import Spread
from archray.platform.report.section import failures, numbers
from archray.platform.run.layout import CURVES, FOUND, MEMBERS, MODEL, PARETO, TRIALS
from archray.platform.run.manifest import digest
from archray.platform.run.run import Run
from archray.platform.run.run_summary import front_of
from archray.plurals import count
from archray.searchers.arguments import FloatArray
from archray.searchers.pareto.front import contributions, hypervolume, non_dominated, spread_order
from archray.seeds import first_seeds
from archray.trainables.tabular import Table

MARGIN = 0.1  # distance of the reference point from the worst trial, as a share of each objective's range


@dataclass(frozen=True)
class ObjectiveTable:
    """The trials of a search that have every objective, in the order of suggestion.

    Args:
        table: architecture, number (from 1), the value of the search, and the costs.
        key: the column of the value of the search.
        costs: the columns of the costs.
        losses: (n, 1 + k) objectives; smaller is better.
    """

    table: pd.DataFrame
    key: str
    costs: tuple[str, ...]
    losses: FloatArray

    @classmethod
    def of(cls, trials: Trials, costs: tuple[str, ...]) -> "ObjectiveTable":
        columns = [trials.losses.to_numpy(dtype=float), *(trials.table[name].to_numpy(dtype=float) for name in costs)]
        losses = np.stack(columns, axis=1)
        finite = np.isfinite(losses).all(axis=1)
        table = trials.table.assign(number=np.arange(1, len(losses) + 1))
        rows = table.loc[finite, ["architecture", "number", trials.key, *costs]].reset_index(drop=True)
        return cls(rows, trials.key, costs, losses[finite])

    @property
    def reference(self) -> FloatArray:
        """(1 + k,) reference point: the worst values plus a tenth of the range, or plus one if all values are equal."""
        spread = np.ptp(self.losses, axis=0)
        return self.losses.max(axis=0) + np.where(spread > 0, MARGIN * spread, 1.0)

    def front(self) -> pd.DataFrame:
        """The rows that are not dominated, best value first, with the share `hypervolume_contribution`."""
        places = non_dominated(self.losses)
        points = self.losses[places]
        whole = hypervolume(points, self.reference)
        front = self.table.iloc[places].assign(hypervolume_contribution=contributions(points, self.reference) / whole)
        return front.iloc[np.argsort(points[:, 0], kind="stable")].reset_index(drop=True)

    def hypervolumes(self) -> FloatArray:
        """(n,) hypervolume after each trial, as a share of the final hypervolume."""
        volumes = [hypervolume(self.losses[:n], self.reference) for n in range(1, len(self.losses) + 1)]
        return np.array(volumes) / volumes[-1]


def objective_table(run: Run[Any]) -> ObjectiveTable:
    """The objectives of a single run (not of repeats) whose Pareto front is written."""
    costs = run.table("pareto", "costs.parquet")
    trials = Trials.of(run)
    columns = tuple(str(column) for column in costs if column != "number")
    table = trials.table.drop(columns=[name for name in columns if name in trials.table])
    return ObjectiveTable.of(Trials(pd.concat([table, costs[list(columns)]], axis=1), trials.mode), columns)


def _write_set(context: Context[SeveralObjectivesConfig], folder: Folder) -> None:
    run, columns = context.run, context.config.cost_columns
    trials = Trials.of(run)
    table = with_costs(context, trials.table)
    if missing := [name for name in columns if name not in table]:  # columns of an existing pool
        pool = run.table("pool", POOL)[["architecture", *missing]]
        table = table.merge(pool, on="architecture", how="left", validate="many_to_one")
    objectives = ObjectiveTable.of(Trials(table, trials.mode), columns)
    if objectives.table.empty:
        raise ArchrayError(f"none of {count(len(table), 'trial')} has an accuracy and {', '.join(columns)}")
    front = objectives.front()
    numbered = table[list(columns)].astype("float64").assign(number=np.arange(1, len(table) + 1))
    folder.write_parquet("costs.parquet", numbered.reset_index(drop=True))
    further = [name for name in run_costs(context).frame_columns if name not in front] if has_costs(context) else []
    folder.write_parquet(PARETO, front.merge(numbered[["number"]].join(table[further]), on="number", how="left"))
    best = front.iloc[
        0
    ]  # among equally accurate trials, the search reports the first and the front contains the cheapest
    document = {"architecture": best["architecture"], "value": float(best[trials.key]), "number": int(best["number"])}
    folder.write_json(FOUND, {**(run.document("search") or {}), **document})
    context.say(f"{len(front)} of {count(len(objectives.table), 'architecture')} on the Pareto front")


PARETO_STAGE = WorkStage[SeveralObjectivesConfig](
    name="pareto",
    title="compute the Pareto front",
    reads=("objectives",),
    depends=file_digests(f"search/{TRIALS}"),
    needs_ray=False,
    work=_write_set,
)


# Final training of members of the front in addition to the most accurate one.

_PREFIX = "model-"  # prefix of the folder of a member's model; the number of its trial follows
_MEANS = ("parameters", "multiply_adds")  # means over the final training runs
_COLUMNS = ["number", "architecture", "test_accuracy", "test_accuracy_std", *_MEANS, "failure", "model", "settings"]
_NAMED = ["number", "architecture"]


def chosen_members(run: Run[SeveralObjectivesConfig]) -> pd.DataFrame:
    """The members with a final training run, in the order of `final_members`."""
    front, objectives = front_of(run.folder), objective_table(run)
    places = pd.Index(objectives.table["number"]).get_indexer(front["number"])
    order, number = spread_order(objectives.losses[places]), run.config.final_members
    return front.iloc[order if number == "all" else order[:number]]


@dataclass(frozen=True, kw_only=True)
class _MemberStage(TuneStage[SeveralObjectivesConfig]):
    """Trains the members that are not trained yet, so that an extended run keeps its results."""

    def requires_ray(self, context: Context[SeveralObjectivesConfig]) -> bool:
        return not _left(context, context.folder(self.name)).empty


def _settings(config: SeveralObjectivesConfig) -> str:
    """A digest of the settings on which a final training run depends, besides the architecture."""
    return digest(config.model_dump(mode="json", include={"network", "final", "final_seeds"}))


def _seeds(context: Context[SeveralObjectivesConfig]) -> list[int]:
    """The seeds of the final training of the best architecture: members differ only in their architecture."""
    return first_seeds(context.seed("final"), context.config.final_seeds)


def _trained_before(context: Context[SeveralObjectivesConfig], folder: Folder) -> pd.DataFrame:
    """The members that this stage trained before, with the same settings and fewer `final_members`."""
    if not folder.exists(MEMBERS):
        return pd.DataFrame(columns=_COLUMNS)
    rows = folder.read_parquet(MEMBERS)
    rows = rows[rows["architecture"] != context.run.architecture]  # the stage `final` trains it
    return rows[(rows["settings"] == _settings(context.config)) & (rows["model"] != MODEL)]


def _left(context: Context[SeveralObjectivesConfig], folder: Folder) -> pd.DataFrame:
    """The members that are not trained yet. The stage `final` trained the best architecture."""
    members = chosen_members(context.run)
    trained = [context.run.architecture, *_trained_before(context, folder)["architecture"]]
    return members.loc[~members["architecture"].isin(trained), _NAMED]


def _plan(context: Context[SeveralObjectivesConfig], tuned: Folder) -> TrialPlan | None:
    left = _left(context, tuned.parent)
    if left.empty:
        context.say("skipped: all members are already trained")
        _write_members(context, tuned.parent)
        return None
    context.say(f"members {', '.join(map(str, left.index + 1))} of {len(front_of(context.run.folder))}")
    seeds = _seeds(context)
    keys = {"architecture": tune.grid_search(list(left["architecture"])), "seed": tune.grid_search(seeds)}
    return final_trials(context, total=len(left) * len(seeds), keys=keys, reads_checkpoints=True)


def _finish(context: Context[SeveralObjectivesConfig], folder: Folder, tuned: TuneRun) -> None:
    ended = [(result.config["architecture"], result) for result in tuned.ended]
    for number, name in _left(context, folder).itertuples(index=False):
        best = best_result([result for architecture, result in ended if architecture == name])
        if best is not None:
            write_model(folder / _model_of(number), best, context.run)
    _write_members(context, folder)


def _model_of(number: int) -> str:
    return f"{_PREFIX}{number:03d}"


def _write_members(context: Context[SeveralObjectivesConfig], folder: Folder) -> None:
    """Writes the table of trained members, and removes trials with other settings from the other tables."""
    run = context.run
    before, left = _trained_before(context, folder), _left(context, folder)
    trials = pd.DataFrame(columns=["architecture"])
    if folder.exists(TRIALS):
        trials, curves = folder.read_parquet(TRIALS), folder.read_parquet(CURVES)
        members = {*before["architecture"], *left["architecture"]}
        trials = trials[trials["architecture"].isin(members) & trials["seed"].isin(_seeds(context))]
        trials = trials.drop_duplicates(["architecture", "seed"], keep="last").reset_index(drop=True)
        folder.write_parquet(TRIALS, trials)
        folder.write_parquet(CURVES, curves[curves["trial_id"].isin(trials["trial_id"])].reset_index(drop=True))
    settings, front = _settings(context.config), front_of(run.folder)
    rows = [_row(trials, number, name, f"{folder.name}/{_model_of(number)}") for number, name in _pairs(left)]
    best = front[front["architecture"] == run.architecture]
    rows += [_row(run.table("final", TRIALS), number, name, MODEL) for number, name in _pairs(best)]
    new = pd.DataFrame([{**row, "settings": settings} for row in rows], columns=_COLUMNS)
    table = pd.concat([before, new], ignore_index=True) if len(before) else new
    folder.write_parquet(MEMBERS, table)
    for name in folder.folders():  # last: remove models that were trained with other settings
        if name.startswith(_PREFIX) and f"{folder.name}/{name}" not in set(table["model"]):
            (folder / name).remove()


def _pairs(table: pd.DataFrame) -> Iterable[tuple[int, str]]:
    return zip(map(int, table["number"]), map(str, table["architecture"]), strict=True)


def _row(trials: pd.DataFrame, number: int, architecture: str, model: str) -> dict[str, Any]:
    """The results of the final training runs of a member. model: folder of the best model, if a run succeeded."""
    trials = trials[trials["architecture"] == architecture]
    reasons = failures(trials).dropna()
    tested = Spread.of(numbers(trials, "test_accuracy"))
    row: dict[str, Any] = {"number": number, "architecture": architecture}
    row |= {name: numbers(trials, name).mean() for name in _MEANS}
    if tested is None:
        return row | {"failure": "no reason was recorded" if reasons.empty else str(reasons.iloc[0])}
    return row | {"test_accuracy": tested.mean, "test_accuracy_std": tested.deviation, "model": model}


def _members_of_table(context: Context[Any], folder: Folder, table: Table) -> None:
    """Looks up the chosen members in the table."""
    members = chosen_members(context.run)
    trials = with_costs(context, results_of_table(table, members["architecture"]))
    folder.write_parquet(TRIALS, trials)
    folder.write_parquet(MEMBERS, members[_NAMED].reset_index(drop=True).assign(result=trials[RESULT]))
    context.say(f"{count(len(members), 'member')} looked up in the table")


def _amount(config: SeveralObjectivesConfig) -> str | Work:
    if config.final_members == "all":
        return f"{training_amount(config.final_seeds, config.final)} for each member except the most accurate"
    more = training_amount((config.final_members - 1) * config.final_seeds, config.final)
    return replace(more, text=f"at most {more}") if more.items else more


MEMBERS_STAGE = or_look_up(
    _MemberStage(
        name="members",
        title="train other members of the Pareto front in full",
        reads=("network", "final", "final_seeds", "final_members"),
        depends=file_digests(f"pareto/{PARETO}", f"final/{TRIALS}"),
        plan=_plan,
        finish=_finish,
        extends=True,
        amount=_amount,
    ),
    _members_of_table,
    lambda config: (
        "all members of the front" if config.final_members == "all" else f"at most {looked_up(config.final_members)}"
    ),
)


def _recipe(make: MakeSearcher, title: str, pool: bool = False) -> Recipe[Any]:
    """The recipe of a plain search with a Pareto front, final training of some of its members, and a report."""
    recipe = plain_recipe(make, title=title, pool=pool, baseline=COMPARISON_STAGE)
    after: dict[str, list[Stage[Any]]] = {"search": [PARETO_STAGE], "final": [MEMBERS_STAGE]}
    stages = [part for stage in recipe.stages for part in (stage, *after.get(stage.name, ()))]
    return Recipe(stages=stages, report_at="archray.platform.methods.pareto.report:REPORT")


NSGA2 = _recipe(searchers.nsga2, "train offspring of the non-dominated architectures")
PARETO_POOL = _recipe(searchers.pareto_pool, "train the architectures with the largest expected hypervolume", pool=True)
