"""A stage that is one Tune run: what it plans, and what it makes of the trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from archray.files import Folder
from archray.platform.engine.stage import Context, ReadsT, Stage
from archray.platform.engine.tuning import TrialPlan, TuneRun, run_trials
from archray.platform.run.manifest import digest


@dataclass(frozen=True, kw_only=True)
class TuneStage(Stage[ReadsT]):
    """Runs the trials of a plan in `tune-DIGEST`, named by the stage's inputs, and writes their tables.

    Attributes:
        plan: of the trials, given the folder of the Tune run; None where there is nothing to train, once `plan` has
            said why and has written what `finish` would have.
        finish: reads what the trials have shown, and writes the stage's own files.
        search: whether this is the Tune run that the caller's options are for.
        extends: whether the rows of the trials before stay in the tables when the search is extended.
    """

    plan: Callable[[Context[ReadsT], Folder], TrialPlan | None]
    finish: Callable[[Context[ReadsT], Folder, TuneRun], None] = lambda context, folder, run: None
    search: bool = False
    extends: bool = False

    def execute(self, context: Context[ReadsT], folder: Folder) -> None:
        tuned = folder / f"tune-{digest(self.inputs(context))}"
        plan = self.plan(context, tuned)
        if plan is None:
            return
        run = run_trials(tuned, plan, context, search=self.search)
        context.grids["search" if self.search else self.name] = run.results
        run.write_tables(folder, keep_earlier=self.extends)
        self.finish(context, folder, run)
