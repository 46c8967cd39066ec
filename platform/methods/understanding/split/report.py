"""Report of the study of validation sets: headline, claims with verdicts, figures. Oymak et al. 2021."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from archray.platform.methods.understanding.split import tables
from archray.platform.quantities import significant, whole_number
from archray.platform.report import figures
from archray.platform.report.figures import DASHED, FOUND, GREEN, INK, MUTED, RANDOM, TRIAL, NothingToDraw, figure
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.run_sections import Tables, failed, failures_section, manifest_section
from archray.platform.report.section import Column, Section, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count
from archray.trainables.validation_split.measures import Array

_TABLES: Tables = {"measures": (tables.MEASURES, TRIALS), "spectral solutions": (tables.SPECTRAL, TRIALS)}
_text = texts_of(__package__)
_BAND = (25, 75)  # percentiles of the problems
_TICKS = 4  # on an axis of half a figure's width
_MIN_EXCESS = 1e-4  # the smallest excess in a figure: it may be 0


def headline(run: Run[Any]) -> Headline:
    """When validation data are enough, in a sentence and three numbers."""
    config, problem = run.config, run.config.problem
    facts = {
        "Problems": count(config.seeds * len(config.parameters), "problem"),
        "Models": "one layer, activations added up" if problem.form == "activation" else "a layer of each activation",
        "Training points": whole_number(problem.train_size),
        "Hidden units": whole_number(problem.width),
        "Failed": failed(run, _TABLES),
    }
    try:
        frame, h = tables.largest(run)
    except NothingToDraw:
        return Headline("finding", tables.enough(run), facts=facts)
    top = whole_number(frame["points"].max())
    losses = {
        "selected": tables.at_largest_size(frame, "selected_test_loss"),
        "best": tables.of_problems(frame, "best"),
        "uniform": tables.of_problems(frame, "uniform"),
    }
    values = {name: significant(np.median(loss)) for name, loss in losses.items()}
    text = _text("lead", enough=tables.enough(run), points=top, h=h, **values)
    cards = (
        Card("found", values["selected"], f"test loss, selected with {top} points"),
        Card("trial", values["best"], "test loss of the best"),
        Card("random", values["uniform"], "test loss of equal weights"),
    )
    return Headline("finding", text, cards=cards, facts=facts)


def claims_section(run: Run[Any]) -> Section | None:
    """The paper's claims, with measured values and verdicts."""
    rows = [(claim.text, claim.measure, claim.verdict) for claim in tables.claims(run)]
    if not rows:
        return None
    columns = (Column("Claim"), Column("Measured here"), Column("Verdict"))
    body = paragraphs([_text("claims")]) + table(columns, rows, label="Claims and verdicts", sortable=False)
    return Section("claims", "Which claims hold here?", body)


def losses_section(run: Run[Any]) -> Section:
    _, h = tables.largest(run)
    title, description = "What does a validation set select?", f"Losses of the selected architecture, h = {h}."
    caption = _text("losses", h=h)
    return figures.figure_section("losses", title, split_losses(run), description=description, caption=caption)


@figure(height=300)
def split_losses(run: Run[Any], canvas: Figure) -> None:
    """Validation and test loss of what each size of the validation set selects, at the largest h; median and quartiles.

    Lines without points: the best architecture, equal weights, and random architectures.
    """
    frame, _ = tables.largest(run)
    axes = canvas.subplots()
    sizes = sorted(int(size) for size in frame["points"].unique())
    levels = (
        ("best", "best", INK, "--"),
        ("uniform", "equal weights", MUTED, (0, (1, 2))),
        ("random", "random", TRIAL, "-."),
    )
    for column, words, colour, dashes in levels:
        value = float(np.median(tables.of_problems(frame, column)))
        axes.axhline(value, color=colour, linewidth=1.2, linestyle=dashes, zorder=1, label=words)
        figures.tell_line(axes, [sizes[0], sizes[-1]], [value, value], f"{words}\ntest loss {significant(value)}")
    for column, words, colour in (
        ("single_test_loss", "single activation, test", GREEN),
        ("selected_validation_loss", "selected, validation", RANDOM),
        ("selected_test_loss", "selected, test", FOUND),
    ):
        _band(axes, *tables.curves(frame, column), colour, words)
    _log_axes(axes, sizes)
    axes.set_ylabel("mean square error")
    canvas.legend(loc="outside lower center", ncols=3)


def gradients_section(run: Run[Any]) -> Section:
    """Distances of validation loss and hyper-gradient from the test set's."""
    (frame, h), problem = tables.largest(run), run.config.problem
    columns = numeric(
        "Points", "Loss, mean", "Loss, largest", "Gradient, mean", "Gradient, largest", "Rank correlation"
    )
    names = ["loss_gap_mean", "loss_gap_sup", "gradient_gap_mean", "gradient_gap_sup", "rank_correlation"]
    means = frame.groupby("points")[names].mean()
    rows = [(whole_number(size), *(significant(value) for value in row)) for size, row in means.iterrows()]
    return figures.figure_section(
        "gradients",
        "Is the validation set's hyper-gradient that of the test set?",
        split_gradients(run),
        description="Distances of loss and hyper-gradient by size.",
        caption=_text("gradients", architectures=problem.architectures, h=h, points=problem.test_size),
        below=table(columns, rows, label="Distances by validation points, means over seeds"),
    )


@figure(height=290)
def split_gradients(run: Run[Any], canvas: Figure) -> None:
    """How far validation loss and hyper-gradient are from the test set's, over random architectures, at the largest h.

    The largest and the mean distance; the mean over seeds and its quartiles. Dashed: the slope of n^(-1/2).
    """
    frame, _ = tables.largest(run)
    left, right = canvas.subplots(1, 2)
    for axes, name, title in ((left, "loss", "loss"), (right, "gradient", "hyper-gradient")):
        for column, words, colour in ((f"{name}_gap_sup", "largest", RANDOM), (f"{name}_gap_mean", "mean", FOUND)):
            sizes, values = tables.curves(frame, column)
            _band(axes, sizes, values, colour, words)
        start = float(np.median(values[:, 0]))
        axes.plot(sizes, start * (np.array(sizes) / sizes[0]) ** -0.5, **DASHED)
        _log_axes(axes, sizes)
        axes.set_title(title)
    left.set_ylabel("distance from the test set's")
    canvas.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def needed_section(run: Run[Any]) -> Section:
    """Validation points that suffice, by the number of parameters."""
    _, excess = tables.excess_by_parameters(run)
    columns = numeric("h", "Points needed (90 % of resampled seeds)", "Excess with fewest (%)", "with most (%)")
    rows = [
        (h, tables.points(needed), *(f"{100 * float(np.median(excess[h][:, end])):.1f}" for end in (0, -1)))
        for h, needed in tables.needed_by_parameters(run).items()
    ]
    return figures.figure_section(
        "needed",
        "How many validation points per architecture parameter?",
        split_points_needed(run),
        description="Excess by points, and points needed by h.",
        caption=_text("needed"),
        below=table(columns, rows, label="Validation points needed", sortable=False),
    )


@figure(height=300)
def split_points_needed(run: Run[Any], canvas: Figure) -> None:
    """Excess test loss of what is selected, by validation points, a line for each h; and the points needed by h.

    Medians over seeds with quartiles on the left, 90 % of resampled seeds on the right.
    """
    sizes, excess = tables.excess_by_parameters(run)
    left, right = canvas.subplots(1, 2)
    for place, (h, values) in enumerate(excess.items()):
        _band(left, sizes, np.maximum(values, _MIN_EXCESS), _colour(place), f"h = {h}")
    left.axhline(run.config.tolerance, **DASHED)
    _log_axes(left, sizes)
    left.set_ylabel("excess test loss")
    left.set_title("by validation points")
    needed = {h: points for h, points in tables.needed_by_parameters(run).items() if np.isfinite(points.value)}
    for place, (h, points) in enumerate(needed.items()):
        high = points.high if np.isfinite(points.high) else sizes[-1]
        right.plot([h, h], [points.low, high], color=_colour(place), linewidth=1.5)
        right.scatter([h], [points.value], s=34, color=_colour(place), zorder=3)
        figures.tell_points(right, [h], [points.value], [f"h = {h}\n{tables.points(points)}"])
    if needed:
        h, points = next(iter(needed.items()))
        numbers = np.array(sorted(excess))
        right.plot(numbers, points.value * numbers / h, **DASHED)
    right.set(xscale="log", yscale="log", xlabel="architecture parameters h", ylabel="points needed")
    right.set_xticks(list(excess), [str(h) for h in excess])
    right.minorticks_off()
    figures.plain(right.yaxis)
    right.set_title(f"within {100 * run.config.tolerance:g} % of the best")
    canvas.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(excess))


def spectral_section(run: Run[Any]) -> Section:
    """Spectral solutions compared with gradient ascent, and their test losses."""
    frame = tables.spectral_of(run)
    columns = [Column("Problem"), *numeric("Comparisons", "Largest difference", "Steps of ascent", "Times as long")]
    rows = []
    for design, part in frame.groupby("design", sort=False):
        times = (part["ascent_seconds"] / part["spectral_seconds"]).median()
        values = (part["difference"].max(), part["ascent_steps"].median(), times)
        rows.append((tables.DESIGNS[str(design)], len(part), *map(significant, values)))
    return figures.figure_section(
        "spectral",
        "Does an eigenvector solve the upper problem?",
        split_spectral(run),
        description="Excess test loss of spectral solution and descent.",
        caption=_text("spectral", h=int(frame["parameters"].iloc[0])),
        below=paragraphs([_text("ascent")]) + table(columns, rows, label="Spectral solution and ascent"),
    )


@figure(height=300)
def split_spectral(run: Run[Any], canvas: Figure) -> None:
    """The spectral solution of the upper problem and descent on the validation loss: excess test loss by points.

    A panel for the low-rank form and one for multiple kernels, both of activations; median and quartiles over seeds.
    """
    frame = tables.spectral_of(run)
    designs = {"activation": "low-rank form", "kernels": "multiple kernels"}
    panels = canvas.subplots(1, 2, sharey=True)
    for axes, (design, title) in zip(panels, designs.items(), strict=True):
        rows = frame[frame["design"] == design]
        if rows.empty:
            raise NothingToDraw("the run has no spectral solutions of its activations")
        for column, colour in (("spectral", FOUND), ("descent", RANDOM)):
            sizes, values = tables.curves(rows.assign(excess=rows[column] / rows["best"] - 1), "excess")
            _band(axes, sizes, np.maximum(values, _MIN_EXCESS), colour, column)
        _log_axes(axes, sizes)
        axes.tick_params(labelleft=True)
        axes.set_title(title)
    panels[0].set_ylabel("excess test loss")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


def rank_one_section(run: Run[Any]) -> Section:
    canvas, title = split_rank_one(run), "Does it find the teacher of a low-rank problem?"
    description, caption = "Angle between spectral solution and teacher.", _text("rank_one")
    return figures.figure_section("rank-one", title, canvas, description=description, caption=caption)


@figure(height=250)
def split_rank_one(run: Run[Any], canvas: Figure) -> None:
    """How near the spectral solution comes to a teacher of Gaussian features, by validation points.

    1 - cosine^2 of the angle between them, median and quartiles over seeds. Dashed: by the training points alone.
    """
    rows = tables.spectral_of(run)
    rows = rows[rows["design"] == "gaussian"]
    if rows.empty:
        raise NothingToDraw("the run has no low-rank problems of Gaussian features")
    axes = canvas.subplots()
    sizes, values = tables.curves(rows.assign(angle=1 - rows["cosine"] ** 2), "angle")
    _band(axes, sizes, values, FOUND, "split")
    alone = float(np.median(1 - tables.of_problems(rows, "cosine_single") ** 2))
    axes.axhline(alone, label="training points alone", **DASHED)
    _log_axes(axes, sizes)
    axes.set_ylabel("1 − cosine²")
    canvas.legend(loc="outside lower center", ncols=2)


def _band(axes: Axes, sizes: Sequence[int], values: Array, colour: str, words: str) -> None:
    """The median over problems, and its quartiles."""
    middle = np.median(values, axis=0)
    low, high = np.percentile(values, _BAND, axis=0)
    axes.fill_between(sizes, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(sizes, middle, color=colour, linewidth=1.8, marker="o", markersize=3.5, label=words)
    texts = (f"{words}, {size} points\n{significant(value)}" for size, value in zip(sizes, middle, strict=True))
    figures.tell_points(axes, sizes, middle, texts)


def _log_axes(axes: Axes, sizes: Sequence[int]) -> None:
    """Both axes logarithmic, ticks at sizes of the validation set."""
    axes.set(xscale="log", yscale="log", xlabel="validation points")
    ticks = sizes[:: math.ceil(len(sizes) / _TICKS)]
    axes.set_xticks(ticks, [str(size) for size in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    (figures.logarithmic if high > 300 * low else figures.plain)(axes.yaxis)


def _colour(place: int) -> str:
    return figures.SERIES[place % len(figures.SERIES)]


def listings(run: Run[Any]) -> list[Listing]:
    """The points needed by h."""
    try:
        needed = tables.needed_by_parameters(run)
    except NothingToDraw:
        return []
    rows = [{"h": h, "points": points.value, "low": points.low, "high": points.high} for h, points in needed.items()]
    return [Listing.of("validation points needed, by the number of architecture parameters", rows)]


SECTIONS: tuple[MakeSection, ...] = (
    claims_section,
    losses_section,
    gradients_section,
    needed_section,
    spectral_section,
    rank_one_section,
    failures_section(_TABLES),
    manifest_section,
)
