"""What a plain search does: trainings that one searcher asks for, and the training of the best in full."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from ray.tune.search import Searcher

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.plain.plain_config import PlainConfig
from archray.platform.methods.plain.plain_report import SECTIONS, headline, listings
from archray.platform.methods.plain.plain_tables import best_trial
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.training_stages import ACCURACY, BASELINE_STAGE, FINAL_STAGE, training_plan, trainings
from archray.platform.quantities import quantity_of
from archray.platform.report.measured import measured_networks
from archray.platform.run.layout import FOUND, TRIALS
from archray.plurals import count
from archray.searchers import ArchraySearcher

SEARCHER = "searcher.json"  # the state of the searcher when the search ended: an extended search continues from it


@dataclass(frozen=True, kw_only=True)
class RunProblem:
    """What a run searches, as `plain_searchers` take it."""

    space: str
    pool: str = ""


MakeSearcher = Callable[[Any, int, int, Mapping[str, Any]], Searcher]  # (problem, budget, seed, options)


def plain_recipe(make: MakeSearcher, *, title: str) -> Recipe[Any]:
    """What one searcher's search does.

    Args:
        make: its searcher; see `plain_searchers`. It is told `search` of the configuration, without the budget.
        title: what it does, for the terminal.
    """

    def plan(context: Context[PlainConfig], tuned: Folder) -> TrialPlan:
        stage, options = tuned.parent, context.config.search.model_dump(exclude={"budget"})
        smaller: dict[str, Any] | None = stage.read_json(SEARCHER) if stage.exists(SEARCHER) else None

        def searcher() -> Any:
            """One that knows the trials of the smaller budget that this run was extended from."""
            problem = RunProblem(space=context.run.space)
            searcher = make(problem, context.config.search.budget, context.seed("search"), options)
            if smaller is not None and isinstance(searcher, ArchraySearcher):
                searcher.set_state(smaller)
            return searcher

        return training_plan(
            context,
            context.config.train,
            test=False,
            total=context.config.search.budget,
            before=0 if smaller is None else len(smaller["ledger"]["records"]),
            searcher=searcher,
            fixed=getattr(searcher(), "depends_on_results", False),
        )

    search = TuneStage[PlainConfig](
        name="search",
        title=title,
        reads=("network", "train", "search"),
        plan=plan,
        finish=_write_found,
        search=True,
        extends=True,
        amount=lambda config: trainings(config.search.budget, config.train),
    )
    return Recipe(
        stages=(search, FINAL_STAGE, BASELINE_STAGE),
        measured=measured_networks,
        headline=headline,
        sections=SECTIONS,
        listings=listings,
    )


def _write_found(context: Context[PlainConfig], folder: Folder, run: TuneRun) -> None:
    searcher = run.searcher()
    if isinstance(searcher, ArchraySearcher):
        folder.write_json(SEARCHER, searcher.get_state())
    trials: pd.DataFrame = folder.read_parquet(TRIALS)  # those of a smaller budget too
    best = best_trial(trials)
    if best is None:
        raise ArchrayError(f"none of {count(len(trials), 'trial')} has a value: {run.failures}")
    name, value = trials["architecture"][best], float(trials[ACCURACY][best])
    folder.write_json(FOUND, {"architecture": name, "value": value, "number": best + 1, "metric": ACCURACY})
    context.say(f"found {name}  ({quantity_of(ACCURACY).told(value)})")
