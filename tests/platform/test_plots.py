"""Each figure of `archray.plots` draws a run of its family, and the documentation lists all figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from archray_test_activations import activations_run
from archray_test_ensemble_report import attacked_run, repeated_ensemble_run
from archray_test_feature_map_report import feature_map_run, leaders_run
from archray_test_plain_report import pareto_run, plain_run
from archray_test_report import hnas_run, write_run, write_summaries
from archray_test_split import split_run
from archray_test_supernet_report import gradient_run, nasi_run, scored_run
from archray_test_topology import topology_run
from matplotlib.figure import Figure

import archray
from archray import plots
from archray.errors import InvalidInput, RunFolderError
from archray.platform.methods import get_method
from archray.platform.plots import FIGURES, methods_of, opened
from archray.platform.report.figures import WIDTH, NothingToDraw
from archray.platform.run.run import Run
from archray.platform.run_result import RunResult
from archray.trainables.spaces import get_space

# The maker of a run with the data of a figure, by the part of its module that names the family.
small_hnas_run = partial(hnas_run, pool_size=30, trials=4, baseline=2, final_seeds=2, epochs=2)
MAKERS: dict[str, Callable[[Path], Run[Any]]] = {
    "report": small_hnas_run,
    "hnas": small_hnas_run,
    "plain": plain_run,
    "methods": partial(hnas_run, pool_size=30, trials=12, baseline=2, final_seeds=2, epochs=2),
    "feature_maps": partial(feature_map_run, repeats=2, candidates=16),
    "supernets": gradient_run,
    "nasi": nasi_run,
    "ensembles": repeated_ensemble_run,
    "pareto": pareto_run,
    "activations": activations_run,
    "split": split_run,
    "topology": topology_run,
}
OF_A_RUN = [name for name, (of, _) in FIGURES.items() if of == "run"]
OF_SEVERAL_RUNS = [name for name, (of, _) in FIGURES.items() if of in ("summaries", "progress")]


def family_of(name: str) -> str:
    return FIGURES[name][1].__module__.split(".")[-2]


OWN_RUN = {  # figures whose data not every run of the family has
    "ensemble_defense": attacked_run,
    "halving_generalization": leaders_run,
    "supernet_shared_scores": scored_run,
}


def is_drawn(figure: object) -> bool:
    """Whether this is a non-empty figure of the report's width that can be drawn."""
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    return figure.get_size_inches()[0] * 72 == pytest.approx(WIDTH) and any(axes.has_data() for axes in figure.axes)


@pytest.fixture(scope="module")
def made_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], Run[Any]]], Run[Any]]:
    """Returns the run of a maker, made once."""
    return cache(lambda make: make(tmp_path_factory.mktemp("runs") / "run"))


@pytest.mark.parametrize("name", OF_A_RUN)
def test_every_figure_draws_a_run_of_its_family(made_by: Callable[..., Run[Any]], name: str) -> None:
    family = family_of(name)
    assert is_drawn(getattr(plots, name)(made_by(OWN_RUN.get(name, MAKERS[family]))))


@pytest.mark.parametrize("name", ["nasi_samples", "nasi_constants", "nasi_agreement", "nasi_against_accuracy"])
def test_a_run_that_trained_a_supernet_has_no_trace_norms(tmp_path: Path, name: str) -> None:
    with pytest.raises(NothingToDraw):
        getattr(plots, name)(gradient_run(tmp_path / "run"))


@pytest.mark.parametrize("name", ["supernet_entropies", "supernet_discretization", "supernet_shared_scores"])
def test_a_run_of_nasi_has_no_mixture(tmp_path: Path, name: str) -> None:
    with pytest.raises(NothingToDraw):
        getattr(plots, name)(nasi_run(tmp_path / "run"))


@pytest.mark.parametrize("name", OF_SEVERAL_RUNS)
def test_figures_of_several_runs(tmp_path: Path, name: str) -> None:
    runs = [feature_map_run(tmp_path / f"{seed}", repeats=1, candidates=16, seed=seed) for seed in range(2)]
    for run in runs:
        write_summaries(run)
    assert is_drawn(getattr(plots, name)([runs[0], str(runs[1].folder)]))


# An empty run uses the first space that its method supports
SPACES = ("nasbench201", "darts", "fourier", "activations")


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_run_without_the_data_raises_an_error(tmp_path: Path, name: str) -> None:
    family = methods_of(name)
    for method in sorted({*family[:1], "hnas", "halving"}):
        space = next(space for space in SPACES if get_method(method).serves(get_space(space)) is None)
        empty = write_run(tmp_path / method, method, config={"space": space})
        other = family and method not in family
        with pytest.raises(NothingToDraw, match=f"got a run of {method}" if other else r"\w{3,} \w+"):
            getattr(plots, name)(empty)


def test_a_run_can_be_a_path_a_result_or_a_run(tmp_path: Path) -> None:
    hnas = small_hnas_run(tmp_path / "hnas")
    place = str(hnas.folder)
    result = RunResult(place, None, None, None)
    for run in (place, Path(place), result, replace(result, repeats=(result,))):
        assert opened(run).manifest == hnas.manifest
    assert opened(hnas) is hnas
    with pytest.raises(RunFolderError, match="expected the folder of a run"):
        plots.hnas_pool(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match=r"expected the folder of a run, an archray\.RunResult or a Run, got a int"):
        plots.hnas_pool(3)


def test_names_are_listed_once_and_exist() -> None:
    assert archray.plots is plots and plots.__all__ == list(FIGURES) and dir(plots) == sorted(FIGURES)
    assert [getattr(plots, name).__name__ for name in plots.__all__] == plots.__all__
    with pytest.raises(AttributeError, match=r"no figure 'hnas_landscpae'.*hnas_landscape"):
        plots.hnas_landscpae  # noqa: B018
