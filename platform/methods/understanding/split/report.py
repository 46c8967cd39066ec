"""The report of the study of validation sets: headline, claims with verdicts, figures. Oymak et al. 2021."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from archray.platform.methods.recipe import Report
from archray.platform.methods.understanding.split import tables
from archray.platform.methods.understanding.split.config import MEASURES, SPECTRAL
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

_TABLES: Tables = {"measures": (MEASURES, TRIALS), "spectral solutions": (SPECTRAL, TRIALS)}
_text = texts_of(__package__)
_BAND = (25, 75)  # percentiles of the problems
_TICKS = 4  # maximal number of ticks on an axis of half the figure's width
_MIN_EXCESS = 1e-4  # the smallest excess on a logarithmic axis, as it may be 0


def headline(run: Run[Any]) -> Headline:
    """The required number of validation samples in a sentence, and three test losses."""
    config, problem = run.config, run.config.problem
    facts = {
        "Problems": count(config.seeds * len(config.parameters), "problem"),
        "Models": "one layer, sum of activations" if problem.form == "activation" else "one layer per activation",
        "Training samples": whole_number(problem.train_size),
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
        Card("found", values["selected"], f"test loss, selected with {top} samples"),
        Card("trial", values["best"], "test loss of the best architecture"),
        Card("random", values["uniform"], "test loss of equal weights"),
    )
    return Headline("finding", text, cards=cards, facts=facts)


def claims_section(run: Run[Any]) -> Section | None:
    """The claims of the paper, with measured values and verdicts."""
    rows = [(claim.text, claim.measure, claim.verdict) for claim in tables.claims(run)]
    if not rows:
        return None
    columns = (Column("Claim"), Column("Measured"), Column("Verdict"))
    body = paragraphs([_text("claims")]) + table(columns, rows, label="Claims and verdicts", sortable=False)
    return Section("claims", "Claims and verdicts", body)


def losses_section(run: Run[Any]) -> Section:
    _, h = tables.largest(run)
    title, description = "Loss of the selected architecture", f"Losses of the selected architecture, h = {h}."
    caption = _text("losses", h=h)
    return figures.figure_section("losses", title, split_losses(run), description=description, caption=caption)


@figure(height=300)
def split_losses(run: Run[Any], canvas: Figure) -> None:
    """Validation and test loss of the selected architecture by size of the validation set, at the largest h.

    Median and quartiles. Lines without points: the best architecture, equal weights, and random architectures.
    """
    frame, _ = tables.largest(run)
    axes = canvas.subplots()
    sizes = sorted(int(size) for size in frame["points"].unique())
    levels = (
        ("best", "best", INK, "--"),
        ("uniform", "equal weights", MUTED, (0, (1, 2))),
        ("random", "random", TRIAL, "-."),
    )
    for column, words, color, dashes in levels:
        value = float(np.median(tables.of_problems(frame, column)))
        axes.axhline(value, color=color, linewidth=1.2, linestyle=dashes, zorder=1, label=words)
        figures.add_line_tooltip(
            axes, [sizes[0], sizes[-1]], [value, value], f"{words}\ntest loss {significant(value)}"
        )
    for column, words, color in (
        ("single_test_loss", "single activation, test", GREEN),
        ("selected_validation_loss", "selected, validation", RANDOM),
        ("selected_test_loss", "selected, test", FOUND),
    ):
        _band(axes, *tables.curves(frame, column), color, words)
    _log_axes(axes, sizes)
    axes.set_ylabel("mean squared error")
    canvas.legend(loc="outside lower center", ncols=3)


def gradients_section(run: Run[Any]) -> Section:
    """Distances of loss and hypergradient between validation and test set."""
    (frame, h), problem = tables.largest(run), run.config.problem
    columns = numeric(
        "Samples", "Loss, mean", "Loss, largest", "Gradient, mean", "Gradient, largest", "Rank correlation"
    )
    names = ["loss_gap_mean", "loss_gap_sup", "gradient_gap_mean", "gradient_gap_sup", "rank_correlation"]
    means = frame.groupby("points")[names].mean()
    rows = [(whole_number(size), *(significant(value) for value in row)) for size, row in means.iterrows()]
    return figures.figure_section(
        "gradients",
        "Distance between validation and test set",
        split_gradients(run),
        description="Distances of loss and hypergradient by size of the validation set.",
        caption=_text("gradients", architectures=problem.architectures, h=h, points=problem.test_size),
        below=table(columns, rows, label="Distances by validation samples, means over seeds"),
    )


@figure(height=290)
def split_gradients(run: Run[Any], canvas: Figure) -> None:
    """Distances of loss and hypergradient between validation and test set, over random architectures, at the largest h.

    Largest and mean distance; mean over seeds and quartiles. Dashed: the slope of n^(-1/2).
    """
    frame, _ = tables.largest(run)
    left, right = canvas.subplots(1, 2)
    for axes, name, title in ((left, "loss", "loss"), (right, "gradient", "hypergradient")):
        for column, words, color in ((f"{name}_gap_sup", "largest", RANDOM), (f"{name}_gap_mean", "mean", FOUND)):
            sizes, values = tables.curves(frame, column)
            _band(axes, sizes, values, color, words)
        start = float(np.median(values[:, 0]))
        axes.plot(sizes, start * (np.array(sizes) / sizes[0]) ** -0.5, **DASHED)
        _log_axes(axes, sizes)
        axes.set_title(title)
    left.set_ylabel("distance from the test set")
    canvas.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def needed_section(run: Run[Any]) -> Section:
    """The required number of validation samples by the number of architecture parameters."""
    _, excess = tables.excess_by_parameters(run)
    columns = numeric(
        "h", "Required samples (90 % of resampled seeds)", "Excess, fewest samples (%)", "Excess, most samples (%)"
    )
    rows = [
        (h, tables.points(needed), *(f"{100 * float(np.median(excess[h][:, end])):.1f}" for end in (0, -1)))
        for h, needed in tables.needed_by_parameters(run).items()
    ]
    return figures.figure_section(
        "needed",
        "Required validation samples",
        split_points_needed(run),
        description="Excess test loss by samples, and required samples by h.",
        caption=_text("needed"),
        below=table(columns, rows, label="Required validation samples", sortable=False),
    )


@figure(height=300)
def split_points_needed(run: Run[Any], canvas: Figure) -> None:
    """Excess test loss of the selected architecture by validation samples, a line per h; and required samples by h.

    Left: medians over seeds with quartiles. Right: 90 % of resampled seeds.
    """
    sizes, excess = tables.excess_by_parameters(run)
    left, right = canvas.subplots(1, 2)
    for place, (h, values) in enumerate(excess.items()):
        _band(left, sizes, np.maximum(values, _MIN_EXCESS), _color(place), f"h = {h}")
    left.axhline(run.config.tolerance, **DASHED)
    _log_axes(left, sizes)
    left.set_ylabel("excess test loss")
    left.set_title("by validation samples")
    needed = {h: points for h, points in tables.needed_by_parameters(run).items() if np.isfinite(points.value)}
    for place, (h, points) in enumerate(needed.items()):
        high = points.high if np.isfinite(points.high) else sizes[-1]
        right.plot([h, h], [points.low, high], color=_color(place), linewidth=1.5)
        right.scatter([h], [points.value], s=34, color=_color(place), zorder=3)
        figures.add_tooltips(right, [h], [points.value], [f"h = {h}\n{tables.points(points)}"])
    if needed:
        h, points = next(iter(needed.items()))
        numbers = np.array(sorted(excess))
        right.plot(numbers, points.value * numbers / h, **DASHED)
    right.set(xscale="log", yscale="log", xlabel="architecture parameters h", ylabel="required samples")
    right.set_xticks(list(excess), [str(h) for h in excess])
    right.minorticks_off()
    figures.plain(right.yaxis)
    right.set_title(f"within {100 * run.config.tolerance:g} % of the best")
    canvas.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(excess))


def spectral_section(run: Run[Any]) -> Section:
    """Spectral solutions, gradient ascent, and their test losses."""
    frame = tables.spectral_of(run)
    columns = [Column("Problem"), *numeric("Comparisons", "Largest difference", "Ascent steps", "Ratio of times")]
    rows = []
    for design, part in frame.groupby("design", sort=False):
        times = (part["ascent_seconds"] / part["spectral_seconds"]).median()
        values = (part["difference"].max(), part["ascent_steps"].median(), times)
        rows.append((tables.DESIGNS[str(design)], len(part), *map(significant, values)))
    return figures.figure_section(
        "spectral",
        "Spectral solution of the upper-level problem",
        split_spectral(run),
        description="Excess test loss of the spectral solution and of descent.",
        caption=_text("spectral", h=int(frame["parameters"].iloc[0])),
        below=paragraphs([_text("ascent")]) + table(columns, rows, label="Spectral solution and gradient ascent"),
    )


@figure(height=300)
def split_spectral(run: Run[Any], canvas: Figure) -> None:
    """Excess test loss of the spectral solution and of descent on the validation loss, by validation samples.

    A panel for the low-rank form and one for multiple kernels, both of activations; median and quartiles over seeds.
    """
    frame = tables.spectral_of(run)
    designs = {"activation": "low-rank form", "kernels": "multiple kernels"}
    panels = canvas.subplots(1, 2, sharey=True)
    for axes, (design, title) in zip(panels, designs.items(), strict=True):
        rows = frame[frame["design"] == design]
        if rows.empty:
            raise NothingToDraw("the run has no spectral solutions for activations. Resume it")
        for column, color in (("spectral", FOUND), ("descent", RANDOM)):
            sizes, values = tables.curves(rows.assign(excess=rows[column] / rows["best"] - 1), "excess")
            _band(axes, sizes, np.maximum(values, _MIN_EXCESS), color, column)
        _log_axes(axes, sizes)
        axes.tick_params(labelleft=True)
        axes.set_title(title)
    panels[0].set_ylabel("excess test loss")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


def rank_one_section(run: Run[Any]) -> Section:
    canvas, title = split_rank_one(run), "Recovery of a low-rank teacher"
    description, caption = "Angle between spectral solution and teacher.", _text("rank_one")
    return figures.figure_section("rank-one", title, canvas, description=description, caption=caption)


@figure(height=250)
def split_rank_one(run: Run[Any], canvas: Figure) -> None:
    """Angle between the spectral solution and a teacher with Gaussian features, by validation samples.

    1 - cosine^2 of the angle, median and quartiles over seeds. Dashed: with only the training samples.
    """
    rows = tables.spectral_of(run)
    rows = rows[rows["design"] == "gaussian"]
    if rows.empty:
        raise NothingToDraw("the run has no low-rank problems with Gaussian features. Resume it")
    axes = canvas.subplots()
    sizes, values = tables.curves(rows.assign(angle=1 - rows["cosine"] ** 2), "angle")
    _band(axes, sizes, values, FOUND, "split")
    alone = float(np.median(1 - tables.of_problems(rows, "cosine_single") ** 2))
    axes.axhline(alone, label="only training samples", **DASHED)
    _log_axes(axes, sizes)
    axes.set_ylabel("1 − cosine²")
    canvas.legend(loc="outside lower center", ncols=2)


def _band(axes: Axes, sizes: Sequence[int], values: Array, color: str, words: str) -> None:
    """Draws the median over problems, and the quartiles."""
    middle = np.median(values, axis=0)
    low, high = np.percentile(values, _BAND, axis=0)
    axes.fill_between(sizes, low, high, color=color, alpha=0.18, linewidth=0)
    axes.plot(sizes, middle, color=color, linewidth=1.8, marker="o", markersize=3.5, label=words)
    texts = (f"{words}, {size} samples\n{significant(value)}" for size, value in zip(sizes, middle, strict=True))
    figures.add_tooltips(axes, sizes, middle, texts)


def _log_axes(axes: Axes, sizes: Sequence[int]) -> None:
    """Makes both axes logarithmic, with ticks at sizes of the validation set."""
    axes.set(xscale="log", yscale="log", xlabel="validation samples")
    ticks = sizes[:: math.ceil(len(sizes) / _TICKS)]
    axes.set_xticks(ticks, [str(size) for size in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    (figures.logarithmic if high > 300 * low else figures.plain)(axes.yaxis)


def _color(place: int) -> str:
    return figures.SERIES[place % len(figures.SERIES)]


def listings(run: Run[Any]) -> list[Listing]:
    """The required samples by h."""
    try:
        needed = tables.needed_by_parameters(run)
    except NothingToDraw:
        return []
    rows = [{"h": h, "points": points.value, "low": points.low, "high": points.high} for h, points in needed.items()]
    return [Listing.of("required validation samples by number of architecture parameters", rows)]


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


REPORT = Report[Any](
    findings=tables.findings,
    headline=headline,
    sections=SECTIONS,
    listings=listings,
)
