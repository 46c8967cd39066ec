"""What discretisation costs: the accuracy of the mixture, and of its architecture with the same shared weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from archray.platform.methods.supernets.search_seeds import Supernet, by_epoch, draw_seed_legend, supernets
from archray.platform.report.figures import NothingToDraw, drawing, figure
from archray.platform.report.quantity import Quantity, count, finite_values, numbers
from archray.platform.report.section import Section, captioned, numeric, table
from archray.platform.run.run import CURVES, Run

_ACCURACY = Quantity.of("validation_accuracy")
_DROP = Quantity("drop", "percentage points", 100.0, 2)
_PANELS = (("validation_accuracy", "mixture"), ("discretised_accuracy", "discretised"))


def discretisation_section(run: Run[Any]) -> Section:
    """Two panels over the epochs and a table of the last one."""
    nets = discretised_supernets(run)
    ends = [at_the_end(net) for net in nets]
    shown = drawing(
        "discretisation",
        supernet_discretisation(run),
        description=(
            f"Validation accuracy by epoch of {count(len(nets), 'supernet')}: of the mixture, at the end "
            f"{_ACCURACY.spread(mixture for mixture, _ in ends)}, and of the discretised architecture with the same "
            f"weights, {_ACCURACY.spread(discrete for _, discrete in ends)}."
        ),
    )
    body = captioned(shown, _caption(ends)) + _table(nets, ends)
    return Section("discretisation", "What does discretisation lose?", body)


@figure(height=270)
def supernet_discretisation(run: Run[Any], canvas: Figure) -> None:
    """Validation accuracy by epoch of each search seed's mixture, and of the architecture that it is discretised to."""
    nets = discretised_supernets(run)
    left, right = canvas.subplots(1, 2, sharex=True, sharey=True)
    for axes, (metric, title) in zip((left, right), _PANELS, strict=True):
        by_epoch(axes, nets, metric, _ACCURACY.factor)
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.tick_params(labelleft=True)
    left.set_ylabel(_ACCURACY.axis)
    draw_seed_legend(canvas, nets)


def discretised_supernets(run: Run[Any]) -> list[Supernet]:
    """The supernets with the curves of their search. Raises: NothingToDraw if none has a discretised accuracy."""
    curves = run.best.table("search", CURVES)
    if "epoch" not in curves or numbers(curves, "discretised_accuracy").isna().all():
        raise NothingToDraw(
            "no epoch of the run has a discretised accuracy; it needs a search that learns an architecture, as darts"
        )
    return supernets(run.best, curves)


def at_the_end(net: Supernet) -> tuple[float, float]:
    """Validation accuracy of mixture and discretised architecture in the last epoch; NaN where it has none."""
    last = net.rows.assign(epoch=numbers(net.rows, "epoch")).sort_values("epoch").tail(1)
    mixture, discrete = (float(numbers(last, name).iloc[0]) for name, _ in _PANELS)
    return mixture, discrete


def _caption(ends: Sequence[tuple[float, float]]) -> str:
    text = (
        "Validation accuracy of the supernets by epoch: of the mixture of all operations, and of the architecture that "
        "it is discretised to, with the weights that it shares with all others. The latter is not trained on its own."
    )
    lost = finite_values(mixture - discrete for mixture, discrete in ends)
    if lost.size:
        text += f" In the last epoch discretisation loses {_DROP.bare(lost.mean())} percentage points"
        text += f" on average over {count(lost.size, 'seed')}." if lost.size > 1 else "."
    return text


def _table(nets: Sequence[Supernet], ends: Sequence[tuple[float, float]]) -> str:
    rows = [
        (net.seed, _ACCURACY.bare(mixture), _ACCURACY.bare(discrete), _DROP.bare(mixture - discrete))
        for net, (mixture, discrete) in zip(nets, ends, strict=True)
    ]
    return table(
        numeric("Seed", "Mixture (%)", "Discretised (%)", "Drop (points)"),
        rows,
        label="Mixture and discretised architecture in the last epoch",
        marked=next((place for place, net in enumerate(nets) if net.chosen), None),
    )
