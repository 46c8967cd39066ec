"""The figures of runs by name, what `archray.plots` offers. Nothing heavy is imported before a figure is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from archray.errors import InvalidInput
from archray.platform.methods import open_run
from archray.platform.run.run import Run
from archray.platform.run_result import RunResult

if TYPE_CHECKING:  # loaded with the first figure
    from matplotlib.figure import Figure

    from archray.platform.bench.result import BenchResult

Place: TypeAlias = str | os.PathLike[str] | RunResult | Run[Any]

_REPORT = "archray.platform.report"

# A figure's name, that of the function that draws it, and the module that has it. docs/plots.md lists them in this
# order.
OF_A_RUN = {
    "test_accuracies": "archray.platform.report.run_sections",
    "hnas_landscape": "archray.platform.methods.hnas.figures",
    "hnas_pool": "archray.platform.methods.hnas.figures",
    "hnas_training_curves": "archray.platform.methods.hnas.report",
    "pool_bounds": "archray.platform.methods.report",
    "plain_best_so_far": "archray.platform.methods.plain.report",
    "plain_training_curves": "archray.platform.methods.plain.report",
    "pareto_front": "archray.platform.methods.pareto.report",
    "pareto_hypervolume": "archray.platform.methods.pareto.report",
    "halving_accuracy_by_calls": "archray.platform.methods.feature_maps.figures",
    "halving_accuracy_by_seconds": "archray.platform.methods.feature_maps.figures",
    "shared_against_standalone": "archray.platform.methods.feature_maps.figures",
    "halving_generalisation": "archray.platform.methods.feature_maps.figures",
    "supernet_entropies": "archray.platform.methods.supernets.figures",
    "supernet_discretisation": "archray.platform.methods.supernets.figures",
    "supernet_shared_scores": "archray.platform.methods.supernets.figures",
    "nasi_samples": "archray.platform.methods.nasi.report",
    "nasi_constants": "archray.platform.methods.nasi.figures",
    "nasi_agreement": "archray.platform.methods.nasi.figures",
    "nasi_against_accuracy": "archray.platform.methods.nasi.figures",
    "nasi_training_curves": "archray.platform.methods.nasi.report",
    "selection_curves": "archray.platform.methods.supernets.figures",
    "supernet_training_curves": "archray.platform.methods.supernets.report",
    "ensemble_test_accuracies": "archray.platform.methods.ensembles.report",
    "ensemble_defence": "archray.platform.methods.ensembles.attack_section",
    "ensemble_diversity": "archray.platform.methods.ensembles.report",
    "posterior_training": "archray.platform.methods.ensembles.figures",
    "ensembles_delta_effect": "archray.platform.methods.ensembles.figures",
    "ensembles_best_so_far": "archray.platform.methods.ensembles.figures",
    "ensembles_by_delta": "archray.platform.methods.ensembles.figures",
    "estimated_against_true": "archray.platform.methods.ensembles.figures",
    "ensemble_training_curves": "archray.platform.methods.ensembles.report",
    "activation_conditions": "archray.platform.methods.understanding.activations.figures",
    "activation_agreement": "archray.platform.methods.understanding.activations.figures",
    "activation_ranks": "archray.platform.methods.understanding.activations.figures",
    "activation_alpha": "archray.platform.methods.understanding.activations.figures",
    "split_losses": "archray.platform.methods.understanding.split.figures",
    "split_gradients": "archray.platform.methods.understanding.split.figures",
    "split_points_needed": "archray.platform.methods.understanding.split.figures",
    "split_spectral": "archray.platform.methods.understanding.split.figures",
    "split_rank_one": "archray.platform.methods.understanding.split.figures",
    "topology_convergence": "archray.platform.methods.understanding.topology.figures",
    "topology_trends": "archray.platform.methods.understanding.topology.figures",
    "topology_planes": "archray.platform.methods.understanding.topology.figures",
    "topology_gradient_planes": "archray.platform.methods.understanding.topology.figures",
    "topology_linear_bounds": "archray.platform.methods.understanding.topology.figures",
}
OF_SEVERAL_RUNS = {
    "runs_compared": "archray.platform.report.side_by_side",
    "accuracies_compared_by_calls": "archray.platform.methods.feature_maps.report",
    "accuracies_compared_by_seconds": "archray.platform.methods.feature_maps.report",
}
OF_A_BENCH = {"bench_regret": "archray.platform.bench.page"}
FIGURES = {**OF_A_RUN, **OF_SEVERAL_RUNS, **OF_A_BENCH}


@cache
def figure_of(name: str) -> Callable[[Any], Figure]:
    """The figure called `name`, as a function of a run, of several, or of a bench. Raises: KeyError."""
    draw = getattr(import_module(FIGURES[name]), name)

    def of_a_run(run: Place) -> Figure:
        from archray.platform.report.figures import NothingToDraw  # matplotlib

        run = opened(run)
        family = FIGURES[name].rpartition(".")[0]  # its figures are of runs with its configuration
        if family != _REPORT and not any(base.__module__.startswith(f"{family}.") for base in type(run.config).__mro__):
            raise NothingToDraw(
                f"{name} is no figure of a run of {run.config.method}; docs/plots.md says which runs each is of"
            )
        return draw(run)

    def of_several_runs(runs: Sequence[Place]) -> Figure:
        from archray.platform.compare import compared_progress, compared_runs

        places = [opened(run) for run in runs]
        of_summaries = FIGURES[name].startswith(f"{_REPORT}.")
        return draw(compared_runs([str(run.folder) for run in places]) if of_summaries else compared_progress(places))

    def of_a_bench(bench: BenchResult | str | os.PathLike[str]) -> Figure:
        from archray.platform.bench.result import BenchResult  # pandas

        return draw(bench if isinstance(bench, BenchResult) else BenchResult.read(bench))

    figure: Callable[[Any], Figure]
    if name in OF_A_BENCH:
        figure, takes = of_a_bench, "bench: its folder, or what `archray.bench` returned"
    elif name in OF_A_RUN:
        figure, takes = of_a_run, "run: its folder, an `archray.RunResult`, or a `Run`"
    else:
        figure, takes = of_several_runs, "runs: folders, `archray.RunResult`s, or `Run`s"
    figure.__name__ = figure.__qualname__ = name
    figure.__doc__ = f"""{draw.__doc__.strip()}

    {takes}.

    Raises: NothingToDraw if it has not the data that the figure shows; RunFolderError if a folder holds no run.
    """
    return figure


def opened(run: Place) -> Run[Any]:
    """The run of a folder or a result; one that is open stays as it is. Raises: InvalidInput, RunFolderError."""
    if isinstance(run, Run):
        return run
    if isinstance(run, RunResult):
        return open_run(run.path, trust=run.trust)
    if isinstance(run, (str, os.PathLike)):
        return open_run(run)
    raise InvalidInput(f"expected a run's folder, an archray.RunResult or a Run, got a {type(run).__name__}")
