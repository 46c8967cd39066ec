"""Report of the study of cells: claims of chapter 4 of Shu 2022 with verdicts and intervals, and sections."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from archray.platform.methods.understanding.topology.figures import (
    topology_convergence,
    topology_gradient_planes,
    topology_linear_bounds,
    topology_planes,
    topology_trends,
)
from archray.platform.methods.understanding.topology.tables import (
    BOUNDS,
    KINDS,
    PLANES,
    SHAPES,
    VARIANTS,
    connected,
    loss_threshold,
    networks,
)
from archray.platform.quantities import significant
from archray.platform.report.figures import NothingToDraw, drawing, figure_section
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.run_sections import Tables, failures_section, manifest_section
from archray.platform.report.section import Column, Section, captioned, folded, numeric, paragraphs, table
from archray.platform.report.statistics import FAILS, HOLDS, Claim, middle
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

_text = texts_of(__package__)
UNDECIDED = "undecided at this scale"
DRAWS = 2000  # of the bootstrap
WEAK = 0.3  # a rank correlation that is called none in effect: it explains less than a tenth of the ranks' variance
MIN_NETWORKS = 12  # networks that a correlation is computed of


def spearman_within(table: pd.DataFrame, x: str, y: str, seed: int = 0) -> tuple[float, float, float]:
    """Spearman's correlation of two columns within cells, and its 95 % interval by the bootstrap over networks.

    Ranks are taken within each cell and centred there, and pooled: how a cell's operations or its space differ from
    another's plays no part. NaN for fewer than MIN_NETWORKS networks or where a column is constant in every cell.
    """
    groups = [
        group[[x, y]].to_numpy(float).T
        for _, group in table[["cell", x, y]].dropna().groupby("cell")
        if len(group) > 2  # two ranks are always in line
    ]
    if sum(group.shape[1] for group in groups) < MIN_NETWORKS:
        return np.nan, np.nan, np.nan
    rng = np.random.default_rng(seed)
    value = _pooled([group[:, None] for group in groups])
    drawn = _pooled([group[:, rng.integers(group.shape[1], size=(DRAWS, group.shape[1]))] for group in groups])
    return float(value[0]), *middle(drawn)


def _pooled(groups: Sequence[np.ndarray]) -> np.ndarray:
    """Of groups (2, draws, networks) the correlation (draws,) of their ranks, centred in each group."""
    ranks = [rankdata(group, axis=-1) for group in groups]
    centred = np.concatenate([rank - rank.mean(axis=-1, keepdims=True) for rank in ranks], axis=-1)
    one, other = centred
    norms = np.sqrt((one**2).sum(-1) * (other**2).sum(-1))
    with np.errstate(invalid="ignore"):
        return (one * other).sum(-1) / np.where(norms > 0, norms, np.nan)


def positive(low: float, high: float) -> str:
    """The verdict on a quantity that is claimed to be above 0."""
    if np.isnan(low):
        return UNDECIDED
    return HOLDS if low > 0 else FAILS if high < 0 else UNDECIDED


def negative(low: float, high: float) -> str:
    return positive(-high, -low)


def no_gain(low: float, high: float) -> str:
    """The verdict on a correlation that is claimed to be none, or at most weak."""
    if np.isnan(low):
        return UNDECIDED
    return HOLDS if high < WEAK else FAILS if low > 0 else UNDECIDED


_RISE, _VARIANCE = "rise of the loss over the plane", "gradient variance"
_LOSS = "mean loss over the epochs"
# What is claimed, where, of which columns, what the second is in words, and when that holds.
_TRENDS: tuple[tuple[str, str, str, str, str, Callable[[float, float], str]], ...] = (
    ("wider cells converge faster", "4.3.1", "width", "mean_loss", _LOSS, negative),
    ("shallower cells converge faster", "4.3.1", "depth", "mean_loss", _LOSS, positive),
    ("wider cells lie in a smoother landscape", "4.3.2.1", "width", "rise", _RISE, negative),
    ("shallower cells lie in a smoother landscape", "4.3.2.1", "depth", "rise", _RISE, positive),
    ("wider cells have a smaller gradient variance", "4.3.2.2", "width", "plane_variance", _VARIANCE, negative),
    ("shallower cells have a smaller gradient variance", "4.3.2.2", "depth", "plane_variance", _VARIANCE, positive),
    ("wider cells are not better in the end", "4.4", "width", "test_accuracy", "final test accuracy", no_gain),
)


def claims(run: Run[Any]) -> list[Claim]:
    """Every claim that the run has measured something about."""
    table = networks(run)
    if table.empty:
        return []
    measured = _popular(table, run.table("variants", SHAPES))
    of_connections = connected(table)
    for text, source, x, y, words, verdict in _TRENDS:
        if of_connections[y].notna().any():
            value, low, high = spearman_within(of_connections, x, y)
            measure = f"Spearman's ρ of {x} and {words}"
            measured.append(Claim(text, measure, verdict(low, high), source, value, low, high))
    if table["mean_loss"].notna().any():
        measured.append(_operations(table))
    return measured


def findings(run: Run[Any]) -> list[str]:
    """The verdicts, a sentence each."""
    return [
        f"{claim.text[:1].upper()}{claim.text[1:]}: {claim.verdict} ({claim.measure} {interval(claim)})"
        for claim in claims(run)
    ]


def interval(claim: Claim) -> str:
    """`-0.42 [-0.61, -0.18]`."""
    if np.isnan(claim.value):
        return "not known"
    numbers = (claim.value, claim.low, claim.high)
    value, low, high = (f"{number:.2f}".replace("-", "\N{MINUS SIGN}") for number in numbers)
    return f"{value} [{low}, {high}]"


def _popular(table: pd.DataFrame, shapes: pd.DataFrame) -> list[Claim]:
    """Observation 1, of the normal cell: how much wider, and how much shallower, it is than random connections."""
    measured = []
    for text, column, sign in (("wide", "width", 1), ("shallow", "depth", -1)):
        shares = []
        for name, drawn in shapes.groupby("cell"):
            [of_cell] = table.loc[(table["cell"] == name) & (table["kind"] == "cell"), column]
            beyond = sign * (of_cell - drawn[column].to_numpy(float))
            shares.append(float((beyond > 0).mean() + (beyond == 0).mean() / 2))
        means = np.random.default_rng(0).choice(shares, size=(DRAWS, len(shares))).mean(axis=1)
        low, high = middle(means)
        verdict = positive(low - 0.5, high - 0.5) if len(shares) > 1 else UNDECIDED
        measure = f"share of random connections that are {'narrower' if sign > 0 else 'deeper'}, mean over cells"
        text = f"popular cells are {text}"
        measured.append(Claim(text, measure, verdict, "4.2.2", float(np.mean(shares)), low, high))
    return measured


def _operations(table: pd.DataFrame) -> Claim:
    """How far convergence differs among variants of operations against variants of connections of the same cell."""
    kinds = [
        [
            group["mean_loss"].dropna().to_numpy()
            for _, group in table[table["kind"].isin(("cell", kind))].groupby("cell")
        ]
        for kind in ("operations", "connections")
    ]
    rng = np.random.default_rng(0)

    def log_ratio(of_kinds: Sequence[Sequence[np.ndarray]]) -> float:
        variances = [[part.var(ddof=1) for part in group if len(part) > 2] for group in of_kinds]
        if not all(variances) or min(map(sum, variances)) <= 0:
            return np.nan
        of_operations, of_connections = map(np.mean, variances)
        return float(np.log(of_operations / of_connections) / 2)

    def drawn_again(group: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [part[rng.integers(len(part), size=len(part))] for part in group if len(part)]

    value = log_ratio(kinds)
    low, high = middle([log_ratio([drawn_again(group) for group in kinds]) for _ in range(DRAWS)])
    return Claim(
        "operations matter less than connections",
        "standard deviation of the mean loss among variants of operations, over that among variants of connections",
        negative(low, high),
        "4.3.1",
        *map(float, np.exp([value, low, high])),
    )


_TABLES: Tables = {"training": ("trainings", TRIALS), "planes": ("planes", PLANES)}
_OF_KIND = ("cell", "widest", "connections", "operations")
_COLUMNS = {  # of a table of networks: heading, column, factor
    "Width, c": ("width", 1),
    "Depth": ("depth", 1),
    "Parameters": ("parameters", 1),
    "Epochs to loss": ("epochs_to_threshold", 1),
    "Mean loss": ("mean_loss", 1),
    "Final loss": ("final_loss", 1),
    "Test accuracy, %": ("test_accuracy", 100),
    "Rise": ("rise", 1),
    "Flat, %": ("flat", 100),
    "Gradient variance": ("plane_variance", 1),
    "Curvature": ("hessian", 1),
}
_MEANS = {name: of for name, of in _COLUMNS.items() if name not in ("Epochs to loss", "Final loss")}  # as many as fit


def headline(run: Run[Any]) -> Headline:
    """What held, in numbers."""
    run = run.best
    rows = run.table("variants", VARIANTS)
    verdicts = [claim.verdict for claim in claims(run)]
    cells = count(len(set(rows["cell"])), "cell") if len(rows) else "no cell yet"
    lead = f"{cells} and their variants, {count(len(rows), 'network')} trained at equal budget"
    if verdicts:
        parts = [count(verdicts.count(one), one, many) for one, many in _VERDICTS.items() if one in verdicts]
        lead += f". Of {count(len(verdicts), 'claim')} of the thesis' chapter 4, {', '.join(parts)}"
    cards = [Card("found", str(verdicts.count(one)), many) for one, many in _VERDICTS.items()]
    spaces = ", ".join(dict.fromkeys(rows["space"])) if len(rows) else run.config.space
    return Headline("cells", f"{lead}.", cards=cards if verdicts else (), facts={"Space": spaces})


_VERDICTS = {HOLDS: "hold", FAILS: "do not hold", UNDECIDED: UNDECIDED}  # of one claim, of several


def claims_section(run: Run[Any]) -> Section | None:
    """What is claimed, and what the run says of it."""
    rows = [(claim.text, claim.verdict, interval(claim), claim.measure, claim.source) for claim in claims(run.best)]
    if not rows:
        return None
    columns = [Column("Claim"), Column("Verdict"), *numeric("Value [95 %]"), Column("Measured"), Column("Section")]
    body = table(columns, rows, label="Claims", sortable=False) + paragraphs([_text("claims")])
    return Section("claims", "Claims", body)


def cells_section(run: Run[Any]) -> Section | None:
    """Each cell, and the means of its variants of a kind."""
    run = run.best
    every = networks(run)
    if every.empty:
        return None
    rows: list[tuple[object, ...]] = []
    marked: list[int] = []
    for name, of_cell in every.groupby("cell", sort=False):
        for kind in _OF_KIND:
            of_kind = of_cell[of_cell["kind"] == kind]
            if len(of_kind):
                marked += [len(rows)] if kind != "cell" else []
                number = f" ({len(of_kind)})" if len(of_kind) > 1 else ""
                values = [significant(of_kind[column].mean() * factor) for column, factor in _MEANS.values()]
                rows.append((name, f"{KINDS[kind]}{number}", *values))
    columns = [Column("Cell"), Column("Kind"), *numeric(*_MEANS)]
    caption = _text("cells", threshold=loss_threshold(run))
    body = table(columns, rows, label="Cells and their variants", faint=frozenset(marked), sortable=False)
    return Section("cells", "Cells and their variants", captioned(body, caption) + folded("Every network", _all(every)))


def _all(every: pd.DataFrame) -> str:
    columns = [Column("Cell"), Column("Kind"), *numeric("No.", *_COLUMNS), Column("Genotype", "code")]
    rows = [
        (
            row["cell"],
            KINDS[row["kind"]],
            row["number"],
            *[significant(row[column] * factor) for column, factor in _COLUMNS.values()],
            row["architecture"],
        )
        for _, row in every.iterrows()
    ]
    return table(columns, rows, label="Every network")


def rates_section(run: Run[Any]) -> Section | None:
    """How fast and how good the cells are at other learning rates. Nothing with one rate alone."""
    run = run.best
    factors = sorted(run.config.learning_rates)
    if len(factors) < 2 or networks(run).empty:
        return None
    rows = []
    for factor in factors:
        trained = networks(run, factor)
        for kind in _OF_KIND:
            of_kind = trained[trained["kind"] == kind]
            if len(of_kind):
                means = (of_kind["mean_loss"].mean(), of_kind["test_accuracy"].mean() * 100)
                rows.append((significant(factor * run.config.train.lr), KINDS[kind], *map(significant, means)))
    columns = [*numeric("Learning rate"), Column("Kind"), *numeric("Mean loss", "Test accuracy, %")]
    body = captioned(table(columns, rows, label="Learning rates"), "Means over all cells, and over their variants.")
    return Section("rates", "Learning rates", body)


def convergence_section(run: Run[Any]) -> Section:
    return figure_section(
        "convergence",
        "Convergence",
        topology_convergence(run),
        description="Validation loss of each cell and its variants by epoch.",
        caption=_text("convergence"),
    )


def trends_section(run: Run[Any]) -> Section:
    return figure_section(
        "trends",
        "Against width",
        topology_trends(run),
        description="What is measured of the networks against the width of their cells.",
        caption="Every network that differs from its cell by connections alone, against the width of its normal cell.",
    )


def planes_section(run: Run[Any]) -> Section:
    canvas = topology_planes(run)
    try:
        description = "How far gradients of instances spread around each cell."
        deviations = drawing("gradients", topology_gradient_planes(run), description=description)
        below = captioned(deviations, _text("gradient_planes"))
    except NothingToDraw:
        below = ""
    description = "The loss around the trained weights of each cell."
    caption = _text("planes")
    return figure_section("planes", "Landscapes", canvas, description=description, caption=caption, below=below)


def linear_section(run: Run[Any]) -> Section | None:
    """In how many instances and blocks the measured value is below the bounds."""
    bounds = run.best.table("linear", BOUNDS)
    if bounds.empty:
        return None
    rows = []
    for (theorem, gradient), group in bounds.groupby(["theorem", "gradient"]):
        for form in ("printed", "corrected"):
            bounded = group[group[form].notna()]
            if bounded.empty:
                continue
            kept = bounded["measured"] <= bounded[form] * (1 + 1e-9)
            instances = kept.groupby(bounded["instance"]).all()
            ratio = (bounded["measured"] / bounded[form]).max()
            rows.append((theorem, gradient, form, f"{instances.sum()} of {len(instances)}", significant(ratio)))
    columns = [*map(Column, ("Theorem", "Gradient", "Bound")), *numeric("Instances that keep it", "Largest ratio")]
    body = captioned(table(columns, rows, label="Linear cells", sortable=False), _text("linear_cells"))
    description = "Bounds against measured values, with the line on which both are equal."
    content = drawing("linear-bounds", topology_linear_bounds(run), description=description)
    body += captioned(content, _text("linear_bounds"))
    return Section("linear", "Theorems 4.3 and 4.4 on linear cells", body)


SECTIONS: tuple[MakeSection, ...] = (
    claims_section,
    cells_section,
    convergence_section,
    trends_section,
    planes_section,
    rates_section,
    linear_section,
    failures_section(_TABLES),
    manifest_section,
)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The cells, the fastest first."""
    table = networks(run.best)
    if table.empty:
        return []
    cells = table[table["kind"] == "cell"].sort_values("mean_loss")
    keys = ["cell", "width", "depth", "parameters", "mean_loss", "test_accuracy", "rise"]
    rows = [dict(zip(keys, row, strict=True)) for row in cells[keys].itertuples(index=False)]
    return [Listing.of("cells, by their mean loss over the epochs", rows)]
