"""The recipe of a method or study: its stages and report, and the last stage of every run, which writes the report."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pandas as pd

from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.engine.stage import Context, Stage, WorkStage
from archray.platform.methods.catalog import get_method
from archray.platform.quantities import HEADLINE
from archray.platform.run.layout import DONE, FINDINGS, FOUND, MODEL, PROGRESS, REPORT, TRAINING_STAGES, TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.references import load_reference

if TYPE_CHECKING:
    from archray.platform.report.measures import Measured
    from archray.platform.report.page import Headline, MakeSection

ConfigT = TypeVar("ConfigT", bound=SearchConfig)
TRIAL_STAGES = ("search", "selection", "final", "members", "baseline")  # their trials are also in the run's table


@dataclass(frozen=True, kw_only=True)
class Report(Generic[ConfigT]):
    """The report and the results of a method.

    Attributes:
        findings: for a study, which selects no architecture: its conclusions, one sentence each (`findings.json`).
        measured: the results of a run by the keys of `quantities`, written to `architecture.json`.
        headlines: keys of the test accuracies; the lowest one is the headline.
        headline: the head of the report.
        sections: the sections of the report.
        listings: the evaluated architectures, best first, as tables for the terminal and `summary.json`.
        training: the stages whose trials count as training cost of the run.
        progress: the best result by number of solver calls, for methods that are compared by it.
    """

    headline: "Callable[[Run[ConfigT]], Headline]"
    sections: "Sequence[MakeSection]"
    listings: Callable[[Run[ConfigT]], Sequence[Listing]]
    findings: Callable[[Run[ConfigT]], Sequence[str]] | None = None
    measured: "Callable[[Run[ConfigT]], Measured]" = lambda run: {}
    headlines: Sequence[str] = ("test_accuracy",)
    training: Sequence[str] = TRAINING_STAGES
    progress: Callable[[Run[ConfigT]], pd.DataFrame] | None = None


@dataclass(frozen=True, kw_only=True)
class Recipe(Generic[ConfigT]):
    """The stages of a method, and the location of its report.

    Attributes:
        stages: the stages in order, without the report.
        report_at: location of its `Report`, `module:attribute`; imported when the method runs or a report is written.
    """

    stages: Sequence[Stage[ConfigT]]
    report_at: str

    @property
    def report(self) -> Report[ConfigT]:
        report: Report[ConfigT] = load_reference(self.report_at)
        return report


def recipe_of(run: Run[Any]) -> Recipe[Any]:
    """The recipe of a run's method."""
    return get_method(run.config.method).recipe


def all_stages(recipe: Recipe[Any]) -> tuple[Stage[Any], ...]:
    """The stages of a recipe, and the stage that writes the report, which depends on the outputs of all others."""

    def depends(context: Context[Any]) -> dict[str, Any]:
        run = context.run
        done = {stage.name: (run.folder / stage.name).read_json(DONE)["outputs"] for stage in recipe.stages}
        return {"done": done, "config": run.manifest["config"]}

    def work(context: Context[Any], folder: Folder) -> None:
        run = context.run
        (run.folder / MODEL).copy_from(run.folder / ("baseline" if "found" in (run.result or {}) else "final") / MODEL)
        tables = {stage: run.table(stage, TRIALS) for stage in TRIAL_STAGES}
        trials = [table.assign(stage=stage) for stage, table in tables.items() if not table.empty]
        if trials:
            run.folder.write_parquet(TRIALS, pd.concat(trials, ignore_index=True))
        write_report(run)
        if recipe.report.progress is not None:
            run.folder.write_parquet(PROGRESS, recipe.report.progress(run))
        run.folder.write_json(FOUND if recipe.report.findings is None else FINDINGS, describe(run)["result"])

    def of_run(run: Run[Any]) -> dict[str, str]:
        """Checksums of the results, without the report, which `archray report` may rewrite."""
        names = [name for name in (FOUND, FINDINGS, TRIALS, PROGRESS) if run.folder.exists(name)]
        model = run.folder / MODEL
        written = {name: run.folder.sha256(name) for name in names}
        return {**written, **{f"{MODEL}/{name}": model.sha256(name) for name in model.files()}}

    title = "write results and report"
    report = WorkStage[Any](name="report", title=title, depends=depends, work=work, needs_ray=False, of_run=of_run)
    return (*recipe.stages, report)


def describe(run: Run[Any]) -> dict[str, Any]:
    """The parts `result` (as in `architecture.json` or `findings.json`) and `listings` of a run's `summary.json`."""
    from archray.platform.report.measures import costs, headline_key, over_repeats  # matplotlib

    report = recipe_of(run).report
    listings = [] if run.repeats else [asdict(listing) for listing in report.listings(run)]
    if report.findings is not None:
        return {"result": {"findings": list(report.findings(run.best))}, "listings": listings}
    measured = over_repeats(run, lambda one: {**report.measured(one), **costs(one, report.training)})
    result = {**(run.best.result or {}), HEADLINE: headline_key(measured, report.headlines)}
    for key, spread in measured.items():
        result |= spread.entries(key)
    return {"result": result, "listings": listings}


def write_report(run: Run[Any]) -> str:
    """Writes `report.html`, also for an unfinished run or for repeats. Returns: the path of the file."""
    from archray.platform.report.page import render  # matplotlib

    report = recipe_of(run).report
    run.folder.write_bytes(REPORT, render(run, report.headline(run), report.sections).encode())
    return f"{run.folder}/{REPORT}"
