"""What a method is: stages, a configuration, presets, a report, the spaces it serves; and what it ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any, Generic, TypeVar

import pandas as pd

from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.engine.stage import Context, Stage, WorkStage
from archray.platform.report.page import Headline, MakeSection, render
from archray.platform.run.layout import DONE, FOUND, MODEL, PROGRESS, REPORT, TRIALS
from archray.platform.run.listing import Listing
from archray.platform.run.run import Run
from archray.registry import Registry
from archray.trainables.spaces import Space

ConfigT = TypeVar("ConfigT", bound=SearchConfig)
TRAINING_STAGES = ("search", "selection", "final", "baseline")  # whose trials stand in the run's own table


def serves_networks(space: Space) -> str | None:
    """None for a space whose architectures are networks; else why it cannot be searched."""
    return None if space.kind == "network" else f"its architectures are {space.kind}s, not networks"


@dataclass(frozen=True, kw_only=True)
class Method(Generic[ConfigT]):
    """A recipe.

    Attributes:
        name: as on the command line.
        summary: one sentence, with the paper.
        config: its configuration.
        stages: what it does, in order, before the report.
        presets: `smoke` (seconds), `demo` (minutes on two cores), `paper`, each a nested dictionary.
        defaults: the papers' options for a space, by its name or reference, where they are not those of `config`.
        flags: where the command line's short flags go in the configuration: `{"budget": "search.budget"}`.
        extendable: the flags that `resume` may change on a finished run.
        serves: None if the method can search the space, else why not.
        results: what the run's `architecture.json` says beside what was found: test accuracies (fractions).
        progress: the best so far by solver calls, of methods that are compared by it.
        headline: the head of the report. sections: what the report is made of.
        listings: what the search tried, best first, as tables of the terminal and of `summary.json`.
    """

    name: str
    summary: str
    config: type[ConfigT]
    stages: Sequence[Stage[ConfigT]]
    presets: Mapping[str, Mapping[str, Any]]
    results: Callable[[Run[ConfigT]], dict[str, Any]]
    headline: Callable[[Run[ConfigT]], Headline]
    sections: Sequence[MakeSection]
    listings: Callable[[Run[ConfigT]], Sequence[Listing]]
    defaults: Callable[[str], Mapping[str, Any]] = lambda space: {}
    flags: Mapping[str, str] = field(default_factory=dict)
    extendable: tuple[str, ...] = ()
    serves: Callable[[Space], str | None] = serves_networks
    progress: Callable[[Run[ConfigT]], pd.DataFrame] | None = None


METHODS: Registry[Method[Any]] = Registry("method")


def get_method(name: str) -> Method[Any]:
    """The method called `name`. Raises: UnknownName, with the known ones."""
    return METHODS.get(name)


def open_run(place: str | PathLike[str] | Folder, *, force: bool = False, to_resume: bool = False) -> Run[Any]:
    """The run in a folder. Raises: RunFolderError if it is none, or other versions made it."""
    return Run.open(place, lambda method: get_method(method).config, force=force, to_resume=to_resume)


# The last stage of every run


def all_stages(method: Method[Any]) -> tuple[Stage[Any], ...]:
    """The stages of a method, and one that writes what the run shows: it depends on all that the others wrote."""

    def depends(context: Context[Any]) -> dict[str, Any]:
        run = context.run
        done = {stage.name: (run.folder / stage.name).read_json(DONE)["outputs"] for stage in method.stages}
        return {"done": done, "config": run.manifest["config"]}

    def work(context: Context[Any], folder: Folder) -> None:
        run = context.run
        (run.folder / MODEL).copy_from(run.folder / "final" / MODEL)
        tables = {stage: run.table(stage, TRIALS) for stage in TRAINING_STAGES}
        trials = [table.assign(stage=stage) for stage, table in tables.items() if not table.empty]
        run.folder.write_parquet(TRIALS, pd.concat(trials, ignore_index=True))
        write_report(run)
        if method.progress is not None:
            run.folder.write_parquet(PROGRESS, method.progress(run))
        run.folder.write_json(FOUND, describe(run)["result"])

    title = "write what was found, and why"
    report = WorkStage[Any](name="report", title=title, depends=depends, work=work, needs_ray=False)
    return (*method.stages, report)


def describe(run: Run[Any]) -> dict[str, Any]:
    """What the run's `summary.json` says: `result`, as its `architecture.json`, and `listings`; of what is there."""
    if run.config.repeats > 1:
        return {"result": {key: value for key, value in run.ended.items() if key != "repeats"}, "listings": []}
    method = get_method(run.config.method)
    listings = [asdict(listing) for listing in method.listings(run)]
    return {"result": {**(run.found or {}), **method.results(run)}, "listings": listings}


def write_report(run: Run[Any]) -> str:
    """Writes `report.html`, also of a run that has not ended, or of repeats; returns where it lies."""
    method = get_method(run.config.method)
    run.folder.write_bytes(REPORT, render(run, method.headline(run), method.sections).encode())
    return f"{run.folder}/{REPORT}"
