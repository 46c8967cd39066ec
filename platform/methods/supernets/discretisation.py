"""What discretisation costs: the accuracy of the mixture, and of its architecture with the same shared weights."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from archray.platform.methods.supernets.search_seeds import (
    Supernet,
    by_epoch,
    seed_columns,
    seed_legend,
    several_repeats,
    supernets,
)
from archray.platform.report.plot import Size, plot
from archray.platform.report.quantity import MISSING, Quantity, count, finite_values, signed
from archray.platform.report.section import Column, Section, figure, table
from archray.platform.report.view import RunView, numbers

_ACCURACY = Quantity.of("validation_accuracy")
_PANELS = (("validation_accuracy", "mixture"), ("discretised_accuracy", "discretised"))


def discretisation_section(view: RunView) -> Section | None:
    """Two panels over the epochs and a table of the last one. Nothing if no architecture was discretised."""
    frame = view.curves
    if "stage" in frame:
        frame = frame[frame["stage"] == "search"].reset_index(drop=True)
    if not numbers(frame, "discretised_accuracy").notna().any() or "epoch" not in frame:
        return None
    nets = supernets(view, frame)

    def draw(canvas: Figure, narrow: bool) -> None:
        grid = canvas.subplots(*((2, 1) if narrow else (1, 2)), squeeze=False, sharex=True, sharey=True)
        for place, (axes, (metric, title)) in enumerate(zip(grid.flat, _PANELS, strict=True)):
            by_epoch(axes, nets, metric, _ACCURACY.factor)
            axes.set_title(title)
            axes.tick_params(labelbottom=True, labelleft=True)
            if narrow or place == 0:
                axes.set_ylabel(_ACCURACY.axis if not narrow else _ACCURACY.unit)
            if not narrow or place == 1:
                axes.set_xlabel("epoch")
        handles = seed_legend(nets)
        canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))

    ends = [at_the_end(net) for net in nets]
    drawing = plot(
        "discretisation",
        draw,
        description=(
            f"Validation accuracy by epoch of {count(len(nets), 'supernet')}: of the mixture, at the end "
            f"{_ACCURACY.spread(mixture for mixture, _ in ends)}, and of the discretised architecture with the same "
            f"weights, {_ACCURACY.spread(discrete for _, discrete in ends)}."
        ),
        wide=Size(760, 300),
        narrow=Size(350, 470),
    )
    return Section(
        "discretisation",
        "What does discretisation lose?",
        figure(drawing, _caption(ends)) + _table(nets, ends, several_repeats(frame)),
    )


def at_the_end(net: Supernet) -> tuple[float, float]:
    """Validation accuracy of mixture and discretised architecture in the last epoch; NaN where it has none."""
    last = net.rows.assign(epoch=numbers(net.rows, "epoch")).sort_values("epoch").tail(1)
    mixture, discrete = (float(numbers(last, name).iloc[0]) for name, _ in _PANELS)
    return mixture, discrete


def _caption(ends: list[tuple[float, float]]) -> str:
    text = (
        "Validation accuracy of the supernets by epoch: of the mixture of all operations, and of the architecture that "
        "it is discretised to, with the weights that it shares with all others. The latter is not trained on its own."
    )
    lost = finite_values(mixture - discrete for mixture, discrete in ends)
    if lost.size:
        text += f" In the last epoch discretisation loses {_points(lost.mean())} percentage points"
        text += f" on average over {count(lost.size, 'seed')}." if lost.size > 1 else "."
    return text


def _points(fraction: float) -> str:
    """A difference of accuracies in percentage points; a dash for NaN."""
    return MISSING if math.isnan(fraction) else signed(f"{100 * fraction:.2f}")


def _table(nets: list[Supernet], ends: list[tuple[float, float]], several: bool) -> str:
    columns = [*seed_columns(several), Column("Mixture (%)", "number")]
    columns += [Column("Discretised (%)", "number"), Column("Drop (points)", "number")]
    rows = [
        (
            *([net.repeat] if several else []),
            net.seed,
            _ACCURACY.bare(mixture),
            _ACCURACY.bare(discrete),
            _points(mixture - discrete),
        )
        for net, (mixture, discrete) in zip(nets, ends, strict=True)
    ]
    marked = next((place for place, net in enumerate(nets) if net.chosen), None)
    return table(columns, rows, label="Mixture and discretised architecture in the last epoch", marked=marked)
