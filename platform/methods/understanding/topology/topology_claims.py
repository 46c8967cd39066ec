"""What chapter 4 of Shu 2022 claims of cells, and which of it a run's tables bear out: computed, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from archray.platform.methods.understanding.topology.topology_tables import SHAPES, connected, networks
from archray.platform.run.run import Run

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
