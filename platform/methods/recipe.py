"""What a method or a study does: its stages, what it shows; the last stage of every run, which writes that."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import pandas as pd

from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.engine.stage import Context, Stage, WorkStage
from archray.platform.methods.catalogue import get_method
from archray.platform.quantities import HEADLINE
from archray.platform.report.page import Headline, MakeSection, render
from archray.platform.report.run_sections import TRAINING_STAGES, Measured, costs, headline_key, over_repeats
from archray.platform.run.layout import DONE, FINDINGS, FOUND, MODEL, PROGRESS, REPORT, TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing

ConfigT = TypeVar("ConfigT", bound=SearchConfig)
TRIAL_STAGES = ("search", "selection", "final", "members", "baseline")  # whose trials stand in the run's own table


@dataclass(frozen=True, kw_only=True)
class Recipe(Generic[ConfigT]):
    """The work of a method, and what its run shows.

    Attributes:
        stages: what it does, in order, before the report.
        findings: of a study, which finds no architecture: what it concludes, a sentence each; its `findings.json`.
        measured: how good what one run found is, by the keys of `quantities`; its `architecture.json` says it.
        headlines: the keys of those test accuracies of which the lowest is the headline.
        headline: the head of the report.
        sections: what the report is made of.
        listings: what the search tried, best first, as tables of the terminal and of `summary.json`.
        training: the stages whose trials are trainings that the run needs, where it has them.
        progress: the best so far by solver calls, of methods that are compared by it.
    """

    stages: Sequence[Stage[ConfigT]]
    headline: Callable[[Run[ConfigT]], Headline]
    sections: Sequence[MakeSection]
    listings: Callable[[Run[ConfigT]], Sequence[Listing]]
    findings: Callable[[Run[ConfigT]], Sequence[str]] | None = None
    measured: Callable[[Run[ConfigT]], Measured] = lambda run: {}
    headlines: Sequence[str] = ("test_accuracy",)
    training: Sequence[str] = TRAINING_STAGES
    progress: Callable[[Run[ConfigT]], pd.DataFrame] | None = None


def recipe_of(run: Run[Any]) -> Recipe[Any]:
    """The recipe of the run's method."""
    return get_method(run.config.method).recipe


def all_stages(recipe: Recipe[Any]) -> tuple[Stage[Any], ...]:
    """The stages of a recipe, and one that writes what the run shows: it depends on all that the others wrote."""

    def depends(context: Context[Any]) -> dict[str, Any]:
        run = context.run
        done = {stage.name: (run.folder / stage.name).read_json(DONE)["outputs"] for stage in recipe.stages}
        return {"done": done, "config": run.manifest["config"]}

    def work(context: Context[Any], folder: Folder) -> None:
        run = context.run
        (run.folder / MODEL).copy_from(run.folder / "final" / MODEL)
        tables = {stage: run.table(stage, TRIALS) for stage in TRIAL_STAGES}
        trials = [table.assign(stage=stage) for stage, table in tables.items() if not table.empty]
        if trials:
            run.folder.write_parquet(TRIALS, pd.concat(trials, ignore_index=True))
        write_report(run)
        if recipe.progress is not None:
            run.folder.write_parquet(PROGRESS, recipe.progress(run))
        run.folder.write_json(FOUND if recipe.findings is None else FINDINGS, describe(run)["result"])

    def of_run(run: Run[Any]) -> dict[str, str]:
        """Not of the report, which `archray report` rewrites."""
        names = [name for name in (FOUND, FINDINGS, TRIALS, PROGRESS) if run.folder.exists(name)]
        model = run.folder / MODEL
        written = {name: run.folder.sha256(name) for name in names}
        return {**written, **{f"{MODEL}/{name}": model.sha256(name) for name in model.files()}}

    title = "write what was found, and why"
    report = WorkStage[Any](name="report", title=title, depends=depends, work=work, needs_ray=False, of_run=of_run)
    return (*recipe.stages, report)


def describe(run: Run[Any]) -> dict[str, Any]:
    """What the run's `summary.json` says of what is there: `result`, as its `architecture.json` or `findings.json`,
    and `listings`."""
    recipe = recipe_of(run)
    listings = [] if run.repeats else [asdict(listing) for listing in recipe.listings(run)]
    if recipe.findings is not None:
        return {"result": {"findings": list(recipe.findings(run.best))}, "listings": listings}
    measured = over_repeats(run, lambda one: {**recipe.measured(one), **costs(one, recipe.training)})
    result = {**(run.best.found or {}), HEADLINE: headline_key(measured, recipe.headlines)}
    for key, spread in measured.items():
        result |= spread.entries(key)
    return {"result": result, "listings": listings}


def write_report(run: Run[Any]) -> str:
    """Writes `report.html`, also of a run that has not ended, or of repeats; returns where it lies."""
    recipe = recipe_of(run)
    run.folder.write_bytes(REPORT, render(run, recipe.headline(run), recipe.sections).encode())
    return f"{run.folder}/{REPORT}"
