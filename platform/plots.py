"""Figures of `archray.plots`: functions of a run's folder, of several runs, or of a bench."""

import os
import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

from matplotlib.figure import Figure

from archray.errors import InvalidInput
from archray.platform import bench, methods, report
from archray.platform.bench.result import BenchResult
from archray.platform.compare import compared_progress, compared_runs
from archray.platform.methods import METHODS, STUDIES, open_run
from archray.platform.report.figures import FIGURES, NothingToDraw
from archray.platform.run.run import Run
from archray.platform.run_result import RunResult

Place: TypeAlias = str | os.PathLike[str] | RunResult | Run[Any]
_MODULES = ("figures", "report", "run_sections", "side_by_side", "page")  # modules that contain figures
_TAKES = {
    "run": "run: folder of the run, an `archray.RunResult`, or a `Run`",
    "summaries": "runs: folders, `archray.RunResult`s, or `Run`s",
    "progress": "runs: folders, `archray.RunResult`s, or `Run`s",
    "bench": "bench: folder of the bench, or the result of `archray.bench`",
}

for _package in (report, methods, bench):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        if _module.name.rpartition(".")[2] in _MODULES:
            import_module(_module.name)  # where each figure registers itself


@cache
def figure_of(name: str) -> Callable[[Any], Figure]:
    """Returns the figure `name` as a function of a run, of several runs, or of a bench. Raises: KeyError."""
    of, draw = FIGURES[name]

    def figure(place: Any) -> Figure:
        if of == "bench":
            return draw(place if isinstance(place, BenchResult) else BenchResult.read(place))
        if of == "run":
            run, kinds = opened(place), methods_of(name)
            if kinds and run.config.method not in kinds:
                raise NothingToDraw(
                    f"expected a run of {', '.join(kinds)} for {name}, got a run of {run.config.method}. See "
                    "docs/plots.md for the figures of each method"
                )
            return draw(run)
        runs = [opened(run) for run in place]
        return draw(compared_runs([str(run.folder) for run in runs]) if of == "summaries" else compared_progress(runs))

    figure.__name__ = figure.__qualname__ = name
    figure.__doc__ = f"""{(draw.__doc__ or "").strip()}

    Args:
        {_TAKES[of]}.

    Raises: NothingToDraw if the data of the figure is missing; RunFolderError if a folder contains no run.
    """
    return figure


def methods_of(name: str) -> list[str]:
    """Returns the methods and studies whose runs have a figure; empty if all runs have it."""
    family = FIGURES[name][1].__module__.rpartition(".")[0]
    if family in (report.__name__, methods.__name__):
        return []
    kinds = {method: registry.get(method).config for registry in (METHODS, STUDIES) for method in registry}
    return [m for m, kind in kinds.items() if any(base.__module__.startswith(f"{family}.") for base in kind.__mro__)]


def opened(run: Place) -> Run[Any]:
    """Opens the run of a folder or a result; returns an open run unchanged. Raises: InvalidInput, RunFolderError."""
    if isinstance(run, Run):
        return run
    if isinstance(run, RunResult):
        return open_run(run.path, trust=run.trust)
    if isinstance(run, (str, os.PathLike)):
        return open_run(run)
    raise InvalidInput(f"expected the folder of a run, an archray.RunResult or a Run, got a {type(run).__name__}")
