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

    from archray.platform.bench.bench_result import BenchResult

Place: TypeAlias = str | os.PathLike[str] | RunResult | Run[Any]

_REPORT, _METHODS = "archray.platform.report", "archray.platform.methods"
_HNAS, _MAPS, _SUPERNETS = f"{_METHODS}.hnas", f"{_METHODS}.feature_maps", f"{_METHODS}.supernets"
_ACTIVATIONS = f"{_METHODS}.understanding.activations"
_SPLIT = f"{_METHODS}.understanding.split"
_ENSEMBLES, _PLAIN = f"{_METHODS}.ensembles", f"{_METHODS}.plain"
_TOPOLOGY = f"{_METHODS}.understanding.topology"

# A figure's name, that of the function that draws it, and the module that has it. docs/plots.md lists them in this
# order.
OF_A_RUN = {
    "test_accuracies": f"{_REPORT}.comparison",
    "hnas_landscape": f"{_HNAS}.landscape",
    "hnas_pool": f"{_HNAS}.pool_scatter",
    "hnas_training_curves": f"{_HNAS}.hnas_report",
    "pool_bounds": f"{_METHODS}.pool_bounds_section",
    "plain_best_so_far": f"{_PLAIN}.best_so_far",
    "plain_training_curves": f"{_PLAIN}.plain_report",
    "pareto_front": f"{_METHODS}.pareto.pareto_report",
    "pareto_hypervolume": f"{_METHODS}.pareto.pareto_report",
    "halving_accuracy_by_calls": f"{_MAPS}.solver_calls",
    "halving_accuracy_by_seconds": f"{_MAPS}.solver_calls",
    "shared_against_standalone": f"{_MAPS}.correlation",
    "halving_generalisation": f"{_MAPS}.generalisation",
    "supernet_entropies": f"{_SUPERNETS}.mixture_curves",
    "supernet_discretisation": f"{_SUPERNETS}.mixture_curves",
    "supernet_shared_scores": f"{_SUPERNETS}.shared_score_plot",
    "nasi_samples": f"{_SUPERNETS}.nasi_report",
    "nasi_constants": f"{_SUPERNETS}.nasi_constants",
    "nasi_agreement": f"{_SUPERNETS}.nasi_agreement",
    "nasi_against_accuracy": f"{_SUPERNETS}.nasi_accuracies",
    "nasi_training_curves": f"{_SUPERNETS}.nasi_report",
    "selection_curves": f"{_SUPERNETS}.selection_curves",
    "supernet_training_curves": f"{_SUPERNETS}.supernet_report",
    "ensemble_test_accuracies": f"{_ENSEMBLES}.ensemble_result",
    "ensemble_defence": f"{_ENSEMBLES}.attack_section",
    "ensemble_diversity": f"{_ENSEMBLES}.ensemble_result",
    "posterior_training": f"{_ENSEMBLES}.posterior_curves",
    "ensembles_delta_effect": f"{_ENSEMBLES}.ensemble_members",
    "ensembles_best_so_far": f"{_ENSEMBLES}.sampled_ensembles",
    "ensembles_by_delta": f"{_ENSEMBLES}.sampled_ensembles",
    "estimated_against_true": f"{_ENSEMBLES}.ensemble_members",
    "ensemble_training_curves": f"{_ENSEMBLES}.ensemble_report",
    "activation_conditions": f"{_ACTIVATIONS}.activation_figures",
    "activation_agreement": f"{_ACTIVATIONS}.activation_figures",
    "activation_ranks": f"{_ACTIVATIONS}.activation_figures",
    "activation_alpha": f"{_ACTIVATIONS}.activation_figures",
    "split_losses": f"{_SPLIT}.split_figures",
    "split_gradients": f"{_SPLIT}.split_figures",
    "split_points_needed": f"{_SPLIT}.split_figures",
    "split_spectral": f"{_SPLIT}.split_figures",
    "split_rank_one": f"{_SPLIT}.split_figures",
    "topology_convergence": f"{_TOPOLOGY}.topology_figures",
    "topology_trends": f"{_TOPOLOGY}.topology_figures",
    "topology_planes": f"{_TOPOLOGY}.surroundings_figures",
    "topology_gradient_planes": f"{_TOPOLOGY}.surroundings_figures",
    "topology_linear_bounds": f"{_TOPOLOGY}.surroundings_figures",
}
OF_SEVERAL_RUNS = {
    "runs_compared": f"{_REPORT}.side_by_side",
    "accuracies_compared_by_calls": f"{_MAPS}.equal_cost_sections",
    "accuracies_compared_by_seconds": f"{_MAPS}.equal_cost_sections",
}
OF_A_BENCH = {"bench_regret": "archray.platform.bench.regret_figure"}
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
        from archray.platform.bench.bench_result import BenchResult  # pandas

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
