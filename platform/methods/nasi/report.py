"""What a run of NASI shows: what each seed found and why, its samples; the other sections have files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from archray.platform.methods.nasi.figures import accuracies_section, agreement_section, constants_section
from archray.platform.methods.nasi.tables import IN_TABLE, REWARD, NASISearchRow, searches
from archray.platform.methods.supernets.figures import selection_section
from archray.platform.methods.supernets.tables import FOUND_CELLS, SELECTED, fates, names_of
from archray.platform.quantities import quantity_of, significant
from archray.platform.report.cell import cell_section
from archray.platform.report.cost_sections import cost_sections
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, FINAL, TrainingCurves, Trainings
from archray.platform.report.figures import FOUND, INK, MUTED, RANDOM, NothingToDraw, drawing, figure, tell_points
from archray.platform.report.page import Headline, MakeSection, network_size
from archray.platform.report.run_sections import (
    Tables,
    accuracy_cards,
    accuracy_lead,
    comparison_section,
    failed,
    failures_section,
    manifest_section,
    repeats_section,
)
from archray.platform.report.section import Column, Section, captioned, names_section, numeric, paragraphs, table
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count
from archray.trainables.spaces import get_space
from archray.trainables.spaces.darts import DARTS
from archray.trainables.spaces.genotypes import CELLS, cell_shape

_TABLES: Tables = {
    "searches": ("search", FOUND_CELLS),
    "comparison of trace norms": ("agreement", TRIALS),
    "architectures of the table": ("table", IN_TABLE),
    "selection": ("selection", SELECTED),
    "final training": ("final", TRIALS),
    "random architectures": ("baseline", TRIALS),
}
_CURVES = TrainingCurves(
    stages=(Trainings("selection", "selection", "in the selection"), FINAL, BASELINE), names_of=names_of
)


def headline(run: Run[Any]) -> Headline:
    """What was chosen of what the search seeds found, and its test accuracy; of repeats, of the best."""
    best = run.best
    nasi, done = run.config.nasi, len(searches(best))
    return Headline(
        thing="architecture",
        lead=accuracy_lead(run),
        names=() if best.architecture is None else (best.architecture,),
        cards=accuracy_cards(run),
        facts={
            "Search": f"{count(done, 'search', 'searches')} of {count(nasi.steps, 'step')}" if done else None,
            "Labels and inputs": f"{nasi.labels} and {nasi.inputs}"
            + (f": {nasi.drawn_words}" if nasi.without_data else ""),
            "Network": network_size(best.table("final", TRIALS)),
            "Failures": failed(run, _TABLES),
        },
    )


def found_section(run: Run[Any]) -> Section | None:
    """A row per search seed: what it found, and the trace norm beside its constraint. Nothing before the search."""
    names, run = names_of(run), run.best
    rows, known = searches(run), fates(run)
    if not rows:
        return None
    columns = [Column("Architecture", "name"), Column("Reward", "number", "descending"), *numeric("Trace norm", "nu")]
    shapes = _shapes(run, rows)
    columns += [Column(f"{cell} width × depth") for cell in CELLS] if shapes else []
    columns += [Column("Outcome"), Column("Seed", "number")]
    cells = []
    for number, row in enumerate(rows):
        outcome = "chosen" if row.architecture == run.architecture else known.get(row.architecture, "")
        values = [significant(value) for value in (row.reward, row.trace, row.nu)]
        shape = shapes[number] if shapes else []
        cells.append((names.of(row.architecture), *values, *shape, outcome, str(row.seed)))
    text = "Nothing was trained. Each seed drew initial weights and architectures; its gradients at uniform "
    text += "probabilities made one step, and what became most probable was found. The reward is the trace norm of the "
    text += (
        f"neural tangent kernel, less {significant(run.config.nasi.mu)} times what it has above nu; in the table it "
    )
    text += "is that of the most probable sample, in units of random samples' mean trace norm."
    if shapes:
        text += " Width, in widths of a node, and depth are those of the thesis' section 4.2.2."
    marked = next((place for place, row in enumerate(rows) if row.architecture == run.architecture), None)
    return Section(
        "found-cells",
        "What each seed found",
        paragraphs([text]) + table(columns, cells, label="What each search seed found", marked=marked),
    )


def _shapes(run: Run[Any], rows: Sequence[NASISearchRow]) -> list[list[str]]:
    """Of each row width and depth of the two cells of DARTS; empty in other spaces."""
    space = get_space(run.space)
    if not isinstance(space, DARTS):
        return []
    of_rows = [map(cell_shape, space.genotype(space.decode(row.architecture))) for row in rows]
    return [[f"{significant(shape.width)} × {shape.depth}" for shape in cells] for cells in of_rows]


@figure(height=280)
def nasi_samples(run: Run[Any], canvas: Figure) -> None:
    """The trace norm of each architecture that the best seed of NASI sampled, and the constraint at that step."""
    rows = searches(run.best)
    if not rows:
        raise NothingToDraw("no search of the run has ended; its samples are known then")
    [best, *_] = rows
    steps = np.arange(1, len(best.traces) + 1)
    above = best.traces > best.nus
    axes = canvas.subplots()
    for mask, colour, name in ((~above, FOUND, "within nu"), (above, RANDOM, "above nu")):
        axes.scatter(steps[mask], best.traces[mask], s=16, color=colour, label=name, linewidths=0)
    axes.plot(steps, best.nus, color=INK, linewidth=1.5, label="nu")
    axes.axhline(best.trace, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="what was found")
    if (best.traces > 0).all():
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("trace norm")
    told = (f"step {step}: {significant(trace)}" for step, trace in zip(steps, best.traces, strict=True))
    tell_points(axes, steps, best.traces, told)
    canvas.legend(loc="outside upper left", ncols=4)


def samples_section(run: Run[Any]) -> Section | None:
    """The samples' trace norms by step. Nothing before the search."""
    rows = searches(run.best)
    if not rows:
        return None
    above = float((rows[0].traces > rows[0].nus).mean())
    told = f"The trace norms of {count(len(rows[0].traces), 'sampled architecture')}"
    shown = drawing("nasi-samples", nasi_samples(run), description=f"{told} by step, and nu.")
    caption = f"{told} of the best seed, by step; {100 * above:.0f} % of them are above nu, where the penalty works."
    return Section("samples", "What was sampled", captioned(shown, caption))


@figure(height=CURVES_HEIGHT)
def nasi_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of the selection, of final trainings and of random architectures, after NASI."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    """The training curves. The section is empty-handed before the first training has ended."""
    return _CURVES.section(run, nasi_training_curves(run))


SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    comparison_section,
    repeats_section,
    found_section,
    samples_section,
    constants_section,
    agreement_section,
    accuracies_section,
    selection_section,
    curves_section,
    *cost_sections(names_of),
    names_section(names_of, "architectures", "in the order of their reward"),
    failures_section(_TABLES),
    manifest_section,
)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """What every search seed found, the best reward first, and what became of it."""
    rows, known = searches(run), fates(run)
    listed = [
        {
            "outcome": "chosen" if row.architecture == run.architecture else known.get(row.architecture, ""),
            REWARD: row.reward,
            "found_trace": row.trace,
            "architecture": row.architecture,
        }
        for row in rows
    ]
    return (Listing.of(f"found by the search seeds, by {quantity_of(REWARD).label}", listed),) if listed else ()
