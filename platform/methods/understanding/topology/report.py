"""What chapter 4 of Shu 2022 claims of cells, and which of it a run's tables bear out: computed, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from archray.platform.report.figures import NothingToDraw, drawing
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.run_sections import Tables, failures_section, manifest_section
from archray.platform.report.section import Column, Section, captioned, folded, numeric, paragraphs, table
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided at this scale"
DRAWS = 2000  # of the bootstrap
WEAK = 0.3  # a rank correlation that is called none in effect: it explains less than a tenth of the ranks' variance
FEWEST = 12  # networks that a correlation is computed of


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        text: what is claimed. measure: what `value` is, in words. value, low, high: with its 95 % interval; NaN: it
            could not be computed. verdict: one of three.
    """

    text: str
    source: str
    measure: str
    value: float
    low: float
    high: float
    verdict: str


def spearman_within(table: pd.DataFrame, x: str, y: str, seed: int = 0) -> tuple[float, float, float]:
    """Spearman's correlation of two columns within cells, and its 95 % interval by the bootstrap over networks.

    Ranks are taken within each cell and centred there, and pooled: how a cell's operations or its space differ from
    another's plays no part. NaN for fewer than FEWEST networks or where a column is constant in every cell.
    """
    groups = [
        group[[x, y]].to_numpy(float).T
        for _, group in table[["cell", x, y]].dropna().groupby("cell")
        if len(group) > 2  # two ranks are always in line
    ]
    if sum(group.shape[1] for group in groups) < FEWEST:
        return np.nan, np.nan, np.nan
    rng = np.random.default_rng(seed)
    value = _pooled([group[:, None] for group in groups])
    drawn = _pooled([group[:, rng.integers(group.shape[1], size=(DRAWS, group.shape[1]))] for group in groups])
    return float(value[0]), *_middle(drawn)


def _pooled(groups: Sequence[np.ndarray]) -> np.ndarray:
    """Of groups (2, draws, networks) the correlation (draws,) of their ranks, centred in each group."""
    ranks = [rankdata(group, axis=-1) for group in groups]
    centred = np.concatenate([rank - rank.mean(axis=-1, keepdims=True) for rank in ranks], axis=-1)
    one, other = centred
    norms = np.sqrt((one**2).sum(-1) * (other**2).sum(-1))
    with np.errstate(invalid="ignore"):
        return (one * other).sum(-1) / np.where(norms > 0, norms, np.nan)


def _middle(drawn: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The middle 95 % of what a bootstrap has drawn; NaN where nothing is finite."""
    finite = np.asarray(drawn)[np.isfinite(drawn)]
    low, high = np.quantile(finite, (0.025, 0.975)) if finite.size else (np.nan, np.nan)
    return float(low), float(high)


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
    told = _popular(table, run.table("variants", SHAPES))
    of_connections = connected(table)
    for text, source, x, y, words, verdict in _TRENDS:
        if of_connections[y].notna().any():
            value, low, high = spearman_within(of_connections, x, y)
            told.append(Claim(text, source, f"Spearman's ρ of {x} and {words}", value, low, high, verdict(low, high)))
    if table["mean_loss"].notna().any():
        told.append(_operations(table))
    return told


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
    told = []
    for text, column, sign in (("wide", "width", 1), ("shallow", "depth", -1)):
        shares = []
        for name, drawn in shapes.groupby("cell"):
            [own] = table.loc[(table["cell"] == name) & (table["kind"] == "cell"), column]
            beyond = sign * (own - drawn[column].to_numpy(float))
            shares.append(float((beyond > 0).mean() + (beyond == 0).mean() / 2))
        means = np.random.default_rng(0).choice(shares, size=(DRAWS, len(shares))).mean(axis=1)
        low, high = _middle(means)
        verdict = positive(low - 0.5, high - 0.5) if len(shares) > 1 else UNDECIDED
        measure = f"share of random connections that are {'narrower' if sign > 0 else 'deeper'}, mean over cells"
        told.append(Claim(f"popular cells are {text}", "4.2.2", measure, float(np.mean(shares)), low, high, verdict))
    return told


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
    low, high = _middle([log_ratio([drawn_again(group) for group in kinds]) for _ in range(DRAWS)])
    return Claim(
        "operations matter less than connections",
        "4.3.1",
        "standard deviation of the mean loss among variants of operations, over that among variants of connections",
        float(np.exp(value)),
        float(np.exp(low)),
        float(np.exp(high)),
        negative(low, high),
    )


# What the study of cells shows: its claims, the cells beside their variants, figures, and the linear cells.


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
    told, rows = claims(run), run.table("variants", VARIANTS)
    verdicts = [claim.verdict for claim in told]
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
    told = claims(run.best)
    if not told:
        return None
    columns = [Column("Claim"), Column("Verdict"), *numeric("Value [95 %]"), Column("Measured"), Column("Section")]
    rows = [(claim.text, claim.verdict, interval(claim), claim.measure, claim.source) for claim in told]
    text = (
        "Verdicts are computed: a claim holds where the whole 95 % interval is on its side, does not hold where the "
        "whole interval is on the other side, and is undecided otherwise. That wider cells are not better in the end "
        "holds where no correlation above 0.3 is in the interval, and does not where all of it is above 0. "
        "Correlations are of ranks within each cell and its variants of connections, pooled over cells; intervals are "
        "the bootstrap's over networks, each trained as often as the configuration says."
    )
    return Section("claims", "Claims", table(columns, rows, label="Claims", sortable=False) + paragraphs([text]))


def cells_section(run: Run[Any]) -> Section | None:
    """Each cell, and the means of its variants of a kind."""
    run = run.best
    known = networks(run)
    if known.empty:
        return None
    rows: list[tuple[object, ...]] = []
    marked: list[int] = []
    for name, of_cell in known.groupby("cell", sort=False):
        for kind in _OF_KIND:
            of_kind = of_cell[of_cell["kind"] == kind]
            if len(of_kind):
                marked += [len(rows)] if kind != "cell" else []
                number = f" ({len(of_kind)})" if len(of_kind) > 1 else ""
                values = [significant(of_kind[column].mean() * factor) for column, factor in _MEANS.values()]
                rows.append((name, f"{KINDS[kind]}{number}", *values))
    columns = [Column("Cell"), Column("Kind"), *numeric(*_MEANS)]
    caption = (
        "Each cell, its widest form, and the means over its variants. Width and depth of the normal cell, by section "
        "4.2.2. The mean loss is over the epochs, the smaller the faster; rise: by how much the loss is higher than in "
        "the middle, median over the plane; flat: the share of the plane at most 1 nat above the middle; the variance "
        "of the gradient is the mean over a square of half that side; curvature: the Hessian's largest eigenvalue, in "
        "size, at the trained weights. Below, every network has its final loss, and the epochs until its loss was "
        f"below {significant(loss_threshold(run))}, half of a uniform guess's."
    )
    body = table(columns, rows, label="Cells and their variants", faint=frozenset(marked), sortable=False)
    return Section("cells", "Cells and their variants", captioned(body, caption) + folded("Every network", _all(known)))


def _all(known: pd.DataFrame) -> str:
    columns = [Column("Cell"), Column("Kind"), *numeric("No.", *_COLUMNS), Column("Genotype", "code")]
    rows = [
        (
            row["cell"],
            KINDS[row["kind"]],
            row["number"],
            *[significant(row[column] * factor) for column, factor in _COLUMNS.values()],
            row["architecture"],
        )
        for _, row in known.iterrows()
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
        known = networks(run, factor)
        for kind in _OF_KIND:
            of_kind = known[known["kind"] == kind]
            if len(of_kind):
                means = (of_kind["mean_loss"].mean(), of_kind["test_accuracy"].mean() * 100)
                rows.append((significant(factor * run.config.train.lr), KINDS[kind], *map(significant, means)))
    columns = [*numeric("Learning rate"), Column("Kind"), *numeric("Mean loss", "Test accuracy, %")]
    body = captioned(table(columns, rows, label="Learning rates"), "Means over all cells, and over their variants.")
    return Section("rates", "Learning rates", body)


def convergence_section(run: Run[Any]) -> Section | None:
    canvas = topology_convergence(run)
    caption = (
        "Validation loss by epoch of each cell, of its widest form, and of its variants. Dotted: half of a uniform "
        "guess's loss; losses above twice a uniform guess's are drawn there."
    )
    content = drawing("convergence", canvas, description="Validation loss of each cell and its variants by epoch.")
    return Section("convergence", "Convergence", captioned(content, caption))


def trends_section(run: Run[Any]) -> Section | None:
    canvas = topology_trends(run)
    caption = "Every network that differs from its cell by connections alone, against the width of its normal cell."
    content = drawing(
        "trends", canvas, description="What is measured of the networks against the width of their cells."
    )
    return Section("trends", "Against width", captioned(content, caption))


def planes_section(run: Run[Any]) -> Section | None:
    canvas = topology_planes(run)
    caption = (
        "How much higher the validation loss is than that of the trained weights, on a square through these along two "
        "random directions as long as the weights, filter by filter: each cell, and its narrowest variant if any."
    )
    content = drawing("planes", canvas, description="The loss around the trained weights of each cell.")
    try:
        canvas = topology_gradient_planes(run)
    except NothingToDraw:
        return Section("planes", "Landscapes", captioned(content, caption))
    deviations = drawing("gradients", canvas, description="How far gradients of instances spread around each cell.")
    told = (
        "The standard deviation of the gradient over instances, the root of E|g − E g|², on the inner square of half "
        "that side, for the same networks; one scale for all."
    )
    return Section("planes", "Landscapes", captioned(content, caption) + captioned(deviations, told))


def linear_section(run: Run[Any]) -> Section | None:
    """In how many instances and blocks the measured value is below the bounds."""
    bounds = run.best.table("linear", BOUNDS)
    if bounds.empty:
        return None
    rows = []
    for (theorem, gradient), group in bounds.groupby(["theorem", "gradient"]):
        for form in ("printed", "corrected"):
            known = group[group[form].notna()]
            if known.empty:
                continue
            kept = known["measured"] <= known[form] * (1 + 1e-9)
            instances = kept.groupby(known["instance"]).all()
            ratio = (known["measured"] / known[form]).max()
            rows.append((theorem, gradient, form, f"{instances.sum()} of {len(instances)}", significant(ratio)))
    columns = [
        Column("Theorem"),
        Column("Gradient"),
        Column("Bound"),
        *numeric("Instances that keep it", "Largest ratio"),
    ]
    caption = (
        "Random linear cells, in float64: an instance keeps a bound if no block's measured value is above it. What the "
        "gradients and the corrected bounds are, notes U1 and U2 say."
    )
    body = captioned(table(columns, rows, label="Linear cells", sortable=False), caption)
    description = "Bounds against measured values, with the line on which both are equal."
    told = (
        "Each point is a weight matrix of a random linear cell: the bound on the narrowest cell's gradient against "
        "what was measured; below the dashed line one fails. Left its Lipschitz constant by block, right its variance."
    )
    body += captioned(drawing("linear-bounds", topology_linear_bounds(run), description=description), told)
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
    known = networks(run.best)
    if known.empty:
        return []
    cells = known[known["kind"] == "cell"].sort_values("mean_loss")
    keys = ["cell", "width", "depth", "parameters", "mean_loss", "test_accuracy", "rise"]
    rows = cells[keys].to_dict("records")
    return [
        Listing.of(
            "cells, by their mean loss over the epochs",
            [{str(key): value for key, value in row.items()} for row in rows],
        )
    ]
