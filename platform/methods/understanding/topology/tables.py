"""Tables of the study of cells: a row per network, and verdicts on the claims of Shu (2022), chapter 4."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.quantities import signed
from archray.platform.report.statistics import FAILS, HOLDS, Claim, middle
from archray.platform.run.layout import CURVES, TRIALS
from archray.platform.run.run import Run

VARIANTS, SHAPES = "variants.parquet", "shapes.parquet"
PLANES, BOUNDS = "planes.parquet", "bounds.parquet"
WEIGHTS = "weights"
KINDS = {"cell": "original", "widest": "widest", "connections": "connections", "operations": "operations"}
MEASURED = (
    "epochs_to_threshold", "mean_loss", "final_loss", "test_loss", "test_accuracy", "rise", "flat",
    "gradient_variance", "plane_variance",
)  # fmt: skip


def loss_threshold(run: Run[Any]) -> float:
    """The validation loss that counts as learned: half the loss of a uniform prediction, (ln K) / 2."""
    from archray.trainables.data import load_images

    return math.log(load_images(run.data).num_classes) / 2


def architectures_of(run: Run[Any]) -> list[str]:
    """The distinct architectures of `variants.parquet`, in its order."""
    return list(dict.fromkeys(run.table("variants", VARIANTS)["architecture"]))


def networks(run: Run[Any], factor: float = 1.0) -> pd.DataFrame:
    """A row per network: the columns of `variants.parquet`, and MEASURED (NaN if unknown).

    Values are means over seeds of the training runs at `factor` times the learning rate. `mean_loss` is the mean
    validation loss over the epochs, which measures convergence; losses are clipped at twice the loss of a uniform
    prediction, so that a single bad epoch does not dominate. `epochs_to_threshold` is the first epoch with a loss below
    `loss_threshold`, NaN if there is none. Other losses and accuracies are of the last epoch.
    """
    table = run.table("variants", VARIANTS)
    if table.empty:
        return table
    table = table.merge(_trained(run, factor), on="architecture", how="left")
    planes = run.table("planes", PLANES)
    if not planes.empty and factor == 1.0:
        table = table.merge(planes.drop(columns=["seconds", "failure"]), on="architecture", how="left")
    return table.reindex(columns=list(dict.fromkeys([*table.columns, *MEASURED])))


def curves_of(run: Run[Any], factor: float = 1.0) -> pd.DataFrame:
    """The training curves at a factor of the learning rate, without failed trials."""
    curves = run.table("trainings", CURVES)
    trials = run.table("trainings", TRIALS)
    if curves.empty or trials.empty:
        return pd.DataFrame(columns=["trial_id", "architecture", "epoch", "validation_loss"])
    factors = trials.set_index("trial_id")["lr_factor"]
    curves = curves[curves["trial_id"].map(factors) == factor]
    return curves[curves["failure"].isna()] if "failure" in curves else curves


def _trained(run: Run[Any], factor: float) -> pd.DataFrame:
    curves = curves_of(run, factor)
    if curves.empty:
        return pd.DataFrame(columns=["architecture"])
    threshold = loss_threshold(run)
    rows = []
    for (_, architecture), curve in curves.sort_values("epoch").groupby(["trial_id", "architecture"]):
        loss = curve["validation_loss"].to_numpy(float)
        below = np.flatnonzero(loss < threshold)
        last = curve.iloc[-1]
        rows.append(
            {
                "architecture": architecture,
                "epochs_to_threshold": float(curve["epoch"].iloc[below[0]]) if below.size else math.nan,
                "mean_loss": float(np.minimum(loss, 4 * threshold).mean()),
                "final_loss": float(last["validation_loss"]),
                "test_loss": float(last["test_loss"]),
                "test_accuracy": float(last["test_accuracy"]),
            }
        )
    return pd.DataFrame(rows).groupby("architecture", as_index=False).mean()


def connected(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that differ only in their connections."""
    return table if table.empty else table[table["kind"] != "operations"]


def square(text: str) -> np.ndarray:
    """(points, points) values of a row's `plane` or `variances`; NaN if missing."""
    return np.array(json.loads(text), dtype=float)


UNDECIDED = "undecided at this scale"
DRAWS = 2000  # number of bootstrap samples
WEAK = 0.3  # a rank correlation below this counts as none: it explains less than a tenth of the ranks' variance
MIN_NETWORKS = 12  # minimal number of networks for a correlation


def spearman_within(table: pd.DataFrame, x: str, y: str, seed: int = 0) -> tuple[float, float, float]:
    """Spearman's correlation of two columns within cells, and its 95 % interval by bootstrap over networks.

    Ranks are computed and centered within each cell and then pooled, so that differences between cells have no effect.
    NaN for fewer than MIN_NETWORKS networks, or if a column is constant in every cell.
    """
    groups = [
        group[[x, y]].to_numpy(float).T
        for _, group in table[["cell", x, y]].dropna().groupby("cell")
        if len(group) > 2  # two ranks are always perfectly correlated
    ]
    if sum(group.shape[1] for group in groups) < MIN_NETWORKS:
        return np.nan, np.nan, np.nan
    rng = np.random.default_rng(seed)
    value = _pooled([group[:, None] for group in groups])
    draws = _pooled([group[:, rng.integers(group.shape[1], size=(DRAWS, group.shape[1]))] for group in groups])
    return float(value[0]), *middle(draws)


def _pooled(groups: Sequence[np.ndarray]) -> np.ndarray:
    """The correlation (draws,) of ranks, centered in each group. groups: arrays (2, draws, networks)."""
    from scipy.stats import rankdata  # half a second

    ranks = [rankdata(group, axis=-1) for group in groups]
    centered = np.concatenate([rank - rank.mean(axis=-1, keepdims=True) for rank in ranks], axis=-1)
    one, other = centered
    norms = np.sqrt((one**2).sum(-1) * (other**2).sum(-1))
    with np.errstate(invalid="ignore"):
        return (one * other).sum(-1) / np.where(norms > 0, norms, np.nan)


def positive(low: float, high: float) -> str:
    """The verdict on a quantity that is claimed to be positive. low, high: its interval; NaN is undecided."""
    return HOLDS if low > 0 else FAILS if high < 0 else UNDECIDED


def negative(low: float, high: float) -> str:
    """As `positive`, for a quantity that is claimed to be negative."""
    return positive(-high, -low)


def no_gain(low: float, high: float) -> str:
    """The verdict on a correlation that is claimed to be absent or weak."""
    return HOLDS if high < WEAK else FAILS if low > 0 else UNDECIDED


_RISE, _VARIANCE = "rise of the loss over the plane", "gradient variance"
_LOSS = "mean loss over the epochs"
# The claim, its section, the two columns of its correlation, the label of the second, and the rule for the verdict.
_TRENDS: tuple[tuple[str, str, str, str, str, Callable[[float, float], str]], ...] = (
    ("wider cells converge faster", "4.3.1", "width", "mean_loss", _LOSS, negative),
    ("shallower cells converge faster", "4.3.1", "depth", "mean_loss", _LOSS, positive),
    ("wider cells have a smoother loss landscape", "4.3.2.1", "width", "rise", _RISE, negative),
    ("shallower cells have a smoother loss landscape", "4.3.2.1", "depth", "rise", _RISE, positive),
    ("wider cells have a smaller gradient variance", "4.3.2.2", "width", "plane_variance", _VARIANCE, negative),
    ("shallower cells have a smaller gradient variance", "4.3.2.2", "depth", "plane_variance", _VARIANCE, positive),
    ("wider cells are not more accurate", "4.4", "width", "test_accuracy", "final test accuracy", no_gain),
)


def claims(run: Run[Any]) -> list[Claim]:
    """The claims for which the run has measurements."""
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
    """A sentence per claim with its verdict."""
    sentences = [f"{claim.text}: {claim.verdict} ({claim.measure} {interval(claim)})" for claim in claims(run)]
    return [sentence[:1].upper() + sentence[1:] for sentence in sentences]


def interval(claim: Claim) -> str:
    """`-0.42 [-0.61, -0.18]`."""
    if np.isnan(claim.value):
        return "unknown"
    value, low, high = (signed(f"{number:.2f}") for number in (claim.value, claim.low, claim.high))
    return f"{value} [{low}, {high}]"


def _popular(table: pd.DataFrame, shapes: pd.DataFrame) -> list[Claim]:
    """Observation 1 for the normal cell: the shares of random connections that are narrower, and that are deeper."""
    measured = []
    for text, column, sign, other in (
        ("popular cells are wide", "width", 1, "narrower"),
        ("popular cells are shallow", "depth", -1, "deeper"),
    ):
        shares = []
        for name, connections in shapes.groupby("cell"):
            [of_cell] = table.loc[(table["cell"] == name) & (table["kind"] == "cell"), column]
            beyond = sign * (of_cell - connections[column].to_numpy(float))
            shares.append(float((beyond > 0).mean() + (beyond == 0).mean() / 2))
        low, high = middle(np.random.default_rng(0).choice(shares, size=(DRAWS, len(shares))).mean(axis=1))
        verdict = positive(low - 0.5, high - 0.5) if len(shares) > 1 else UNDECIDED
        measure = f"share of random connections that are {other}, mean over cells"
        measured.append(Claim(text, measure, verdict, "4.2.2", float(np.mean(shares)), low, high))
    return measured


def _operations(table: pd.DataFrame) -> Claim:
    """The spread of convergence among variants of operations, relative to variants of connections of the same cell."""
    kinds = []
    for kind in ("operations", "connections"):
        groups = table[table["kind"].isin(("cell", kind))].groupby("cell")
        kinds.append([group["mean_loss"].dropna().to_numpy() for _, group in groups])
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
        "ratio of the standard deviations of the mean loss, variants of operations to variants of connections",
        negative(low, high),
        "4.3.1",
        *map(float, np.exp([value, low, high])),
    )
