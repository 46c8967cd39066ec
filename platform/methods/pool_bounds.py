"""How well the bounds of Corollaries 7.1 and 7.2 order what a run trained, of a pool that was scored without training.

Shu 2022, sections 7.3.3 and 7.5.2; note U9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.engine.pool_scoring import POOL
from archray.platform.report.rank_agreement import FEWEST, Agreement, rank_agreement
from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.searchers.hnas.trade_off_fit import chance_correlations, fit_trade_off
from archray.trainables.spaces import get_space
from archray.trainables.spaces.cell_shape import cell_shape
from archray.trainables.spaces.genotypes import GenotypeSpace
from archray.trainables.spaces.table_space import PREFIX

KAPPA = "kappa"
METRICS = ("ntk_trace", "grad_norm", "snip", "grasp")  # of section 7.2.2, which the bounds are about
CHANCES = 200  # orders drawn at random, to know what a fit finds in none
_VALUES = ("test_accuracy", "result", "validation_accuracy", "objective")  # of a trained one: the first that is known


@dataclass(frozen=True)
class Promise:
    """A number per trained architecture that promises a small error where it is small.

    Attributes:
        name: as `κ/M, M = snip`. values: (n,). group: what it comes from: `bound`, `fitted` or `plain`.
        chance: Spearman's rho, its 95 % quantile over orders without any meaning, that the same fit reaches; NaN
            without a fit.
    """

    name: str
    values: np.ndarray
    group: str
    chance: float = math.nan


@dataclass(frozen=True)
class Judged:
    """The trainings of a run that its pool has, and how each promise orders them.

    Attributes:
        value: the column that the error comes from. rows: `architecture`, `error`, `gap` (of training over the error's
            split, NaN if not kept), of each architecture that was trained, and the pool's columns.
        promises: in the order of the table. errors, gaps: the agreement of each with the error, and with the gap.
    """

    value: str
    rows: pd.DataFrame
    promises: list[Promise]
    errors: list[Agreement]
    gaps: list[Agreement]


def judged_bounds(run: Run[Any]) -> Judged | None:
    """Of one run. None without a pool with kappa and one of METRICS, or with fewer than three trained of it."""
    trained, value = _trained(run)
    return judge_bounds(run.table("pool", POOL), trained, value, run.space)


def judge_bounds(pool: pd.DataFrame, trained: pd.DataFrame, value: str, space: str) -> Judged | None:
    """How the bounds of a scored pool order errors; None as of `judged_bounds`.

    Args:
        pool: `architecture`, a column per metric and kappa. trained: `architecture`, `error`, `gap`.
        value: what the errors come from. space: of the architectures, by name or reference.
    """
    metrics = [name for name in METRICS if numbers(pool, name).notna().any()]
    if "architecture" not in pool or not numbers(pool, KAPPA).notna().any() or not metrics or trained.empty:
        return None
    columns = {name: numbers(pool, name) for name in (*metrics, KAPPA, "parameters", "multiply_adds")}
    scored = pd.DataFrame({"architecture": pool["architecture"], **columns}).drop_duplicates("architecture")
    rows = trained.merge(scored, on="architecture").reset_index(drop=True)
    if len(rows) < FEWEST:
        return None
    largest = {name: float(columns[name].abs().max()) for name in metrics}
    promises = [*_bounds(rows, largest), *_plain(space, rows)]
    error, gap = rows["error"].to_numpy(), rows["gap"].to_numpy()
    promises = [each for each in promises if math.isfinite(rank_agreement(each.values, error).tau)]
    errors, gaps = ([rank_agreement(each.values, side) for each in promises] for side in (error, gap))
    return Judged(value, rows, promises, errors, gaps)


def _trained(run: Run[Any]) -> tuple[pd.DataFrame, str]:
    """`architecture`, `error`, `gap` of the search's trainings that were compared, each once; and which value."""
    trials = run.table("search", TRIALS)
    if trials.empty:  # of HNAS there is what its optimiser asked for
        asked = run.table("search", "asked.parquet")
        told = "objective" if run.config.space.startswith(PREFIX) else "validation_accuracy"
        trials = asked.rename(columns={"value": told})
    nothing = pd.DataFrame(columns=["architecture", "error", "gap"])
    value = next((name for name in _VALUES if numbers(trials, name).notna().sum() >= FEWEST), "")
    if "architecture" not in trials or not value:
        return nothing, value
    reached = numbers(trials, value).where(failures(trials).isna())
    epochs = numbers(trials, "epoch")
    reached = reached.where(epochs.isna() | (epochs == epochs.max()))  # a scheduler stops trials early
    smaller = (run.document("search") or {}).get("mode") == "min"
    if value.endswith("accuracy"):
        error, gap = 1 - reached, numbers(trials, "train_accuracy") - reached
    else:
        error, gap = reached if smaller else -reached, reached * math.nan
    frame = pd.DataFrame({"architecture": trials["architecture"], "error": error, "gap": gap})
    return frame[error.notna()].groupby("architecture", as_index=False, sort=False).mean(), value


def _bounds(rows: pd.DataFrame, largest: dict[str, float]) -> Iterator[Promise]:
    """kappa/M of Theorem 7.2, 1/M of Corollary 7.1, and Eq. 7.6 fitted, for each metric M over the pool's largest."""
    for name, top in largest.items():
        metric, kappa = rows[name].abs().to_numpy() / top, rows[KAPPA].to_numpy()
        known = np.isfinite(metric) & np.isfinite(kappa) & (metric > 0)
        metric, kappa = np.where(known, metric, np.nan), np.where(known, kappa, np.nan)
        yield Promise(f"κ/M, M = {name}", kappa / metric, "bound")
        yield Promise(f"1/M, M = {name}", 1 / metric, "bound")
        if known.sum() >= FEWEST:
            yield _fitted(name, metric, kappa / metric, rows["error"].to_numpy(), known)


def _fitted(name: str, metric: np.ndarray, quotient: np.ndarray, error: np.ndarray, known: np.ndarray) -> Promise:
    """kappa/M + mu (M^2 - nu)^2 with the mu and nu that order these very errors best, and what chance gives so."""
    fit = fit_trade_off(metric[known], quotient[known], -error[known])
    chance = chance_correlations(metric[known], quotient[known], CHANCES)
    bound = quotient + fit.mu * (metric**2 - fit.nu) ** 2
    return Promise(f"κ/M + μ(M² − ν)², M = {name}", bound, "fitted", float(np.quantile(chance, 0.95)))


def _plain(space_name: str, rows: pd.DataFrame) -> Iterator[Promise]:
    """What no bound is needed for: kappa alone, sizes, and of genotypes the normal cell's width and depth."""
    yield Promise("κ alone", rows[KAPPA].to_numpy(), "plain")
    for column, words in (("parameters", "most parameters"), ("multiply_adds", "most multiply-adds")):
        if rows[column].notna().any():
            yield Promise(words, -rows[column].to_numpy(), "plain")
    space = get_space(space_name)
    if isinstance(space, GenotypeSpace):
        shapes = [cell_shape(space.genotype(space.decode(name)).normal) for name in rows["architecture"]]
        yield Promise("widest normal cell", -np.array([shape.width for shape in shapes]), "plain")
        yield Promise("shallowest normal cell", np.array([float(shape.depth) for shape in shapes]), "plain")
