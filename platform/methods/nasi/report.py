"""The report of NASI: headline, results by search seed, samples, training curves. Shu 2022, chapter 6."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from archray.platform.methods.nasi.config import IN_TABLE, REWARD
from archray.platform.methods.nasi.figures import COMPARISONS, searches
from archray.platform.methods.recipe import Report
from archray.platform.methods.report import network_headline, network_sections
from archray.platform.methods.supernets.figures import selection_section
from archray.platform.methods.supernets.tables import FOUND_CELLS, SELECTED, names_of, outcomes_of
from archray.platform.quantities import quantity_of, significant
from archray.platform.report import figures
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, FINAL, StageCurves, TrainingCurves
from archray.platform.report.figures import FOUND, INK, MUTED, RANDOM, NothingToDraw, figure, figure_section
from archray.platform.report.measures import measured_networks
from archray.platform.report.page import Headline
from archray.platform.report.run_sections import Tables
from archray.platform.report.section import Column, Section, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count
from archray.trainables.spaces import get_space
from archray.trainables.spaces.darts import DARTS
from archray.trainables.spaces.genotypes import CELLS, cell_shape

_text = texts_of(__package__)
_TABLES: Tables = {
    "searches": ("search", FOUND_CELLS),
    "comparison of trace norms": ("agreement", TRIALS),
    "scored architectures of the table": ("table", IN_TABLE),
    "selection": ("selection", SELECTED),
    "final training": ("final", TRIALS),
    "comparison": ("baseline", TRIALS),
}
_CURVES = TrainingCurves(
    (StageCurves("selection", "selection", "in the selection"), FINAL, BASELINE), names_of=names_of
)


def headline(run: Run[Any]) -> Headline:
    """The selected architecture and its test accuracy; for repeats, of the best run."""
    nasi, ended = run.config.nasi, len(searches(run.best))
    facts = {
        "Search": f"{count(ended, 'search', 'searches')} of {count(nasi.steps, 'step')}" if ended else None,
        "Labels and inputs": f"{nasi.labels} and {nasi.inputs}"
        + (f": {nasi.drawn_words}" if nasi.without_data else ""),
    }
    return network_headline(run, _TABLES, facts)


def found_section(run: Run[Any]) -> Section | None:
    """A row per search seed: architecture, reward, trace norm and constraint. None before the search has finished."""
    names, run = names_of(run), run.best
    rows, shapes, outcomes = searches(run), _shapes(run), outcomes_of(run)
    if not rows:
        return None
    columns = [Column("Architecture", "name"), Column("Reward", "number", "descending"), *numeric("Trace norm", "nu")]
    columns += [Column(f"{cell} width × depth") for cell in CELLS] if shapes else []
    columns += [Column("Outcome"), Column("Seed", "number")]
    cells = []
    for number, row in enumerate(rows):
        measures = [*map(significant, (row.reward, row.trace, row.nu)), *(shapes[number] if shapes else [])]
        cells.append((names.of(row.architecture), *measures, outcomes.get(row.architecture, ""), str(row.seed)))
    text = _text("searches_text", mu=run.config.nasi.mu, with_shapes=bool(shapes))
    marked = next((place for place, row in enumerate(rows) if row.architecture == run.architecture), None)
    content = table(columns, cells, label="Results by search seed", marked=marked)
    return Section("found-cells", "Results by search seed", paragraphs([text]) + content)


def _shapes(run: Run[Any]) -> list[list[str]]:
    """Width and depth of the two cells of each row in the DARTS space; empty in other spaces."""
    space = get_space(run.space)
    if not isinstance(space, DARTS):
        return []
    of_rows = [map(cell_shape, space.genotype(space.decode(row.architecture))) for row in searches(run)]
    return [[f"{significant(shape.width)} × {shape.depth}" for shape in cells] for cells in of_rows]


@figure(height=280)
def nasi_samples(run: Run[Any], canvas: Figure) -> None:
    """The trace norm of each sampled architecture of the best seed of NASI, and the constraint at that step."""
    rows = searches(run.best)
    if not rows:
        raise NothingToDraw("the run has no samples. Wait until a search has finished")
    [best, *_] = rows
    steps = np.arange(1, len(best.traces) + 1)
    above = best.traces > best.nus
    axes = canvas.subplots()
    for mask, color, name in ((~above, FOUND, "within nu"), (above, RANDOM, "above nu")):
        axes.scatter(steps[mask], best.traces[mask], s=16, color=color, label=name, linewidths=0)
    axes.plot(steps, best.nus, color=INK, linewidth=1.5, label="nu")
    axes.axhline(best.trace, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="found architecture")
    if (best.traces > 0).all():
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("trace norm")
    texts = (f"step {step}: {significant(trace)}" for step, trace in zip(steps, best.traces, strict=True))
    figures.add_tooltips(axes, steps, best.traces, texts)
    canvas.legend(loc="outside upper left", ncols=4)


def samples_section(run: Run[Any]) -> Section:
    """The trace norms of the samples by step."""
    canvas, best = nasi_samples(run), searches(run.best)[0]
    above = 100 * float((best.traces > best.nus).mean())
    subject = f"The trace norms of {count(len(best.traces), 'sampled architecture')}"
    return figure_section(
        "samples",
        "Sampled architectures",
        canvas,
        description=f"{subject} by step, and nu.",
        caption=f"{subject} of the best seed, by step. {above:.0f} % of them are above nu and have a penalty.",
    )


@figure(height=CURVES_HEIGHT)
def nasi_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch after a NASI search: selection, final training, random baseline."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    return _CURVES.section(run, nasi_training_curves(run))


SECTIONS = network_sections(
    found_section,
    samples_section,
    *COMPARISONS,
    selection_section,
    curves_section,
    tables=_TABLES,
    names_of=names_of,
    order="in the order of their reward",
)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The architecture and outcome of every search seed, best reward first."""
    outcomes, rows = outcomes_of(run), []
    for row in searches(run):
        measures = {REWARD: row.reward, "found_trace": row.trace, "architecture": row.architecture}
        rows.append({"outcome": outcomes.get(row.architecture, ""), **measures})
    return (Listing.of(f"architectures by search seed, sorted by {quantity_of(REWARD).label}", rows),) if rows else ()


REPORT = Report[Any](
    measured=measured_networks,
    training=("selection", "final"),  # a trial of the search trains nothing
    headline=headline,
    sections=SECTIONS,
    listings=listings,
)
