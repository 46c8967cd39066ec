"""Tables of an HNAS run: pool, objective, trials, and the plane of (mu, nu). Shu 2022, Eq. 7.7."""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from archray.errors import InvalidPool
from archray.platform.quantities import MISSING, quantity_of
from archray.platform.report.section import ShortNames, failures, flags, numbers, short_names
from archray.platform.run.run import Run
from archray.searchers.hnas.objective import Penalty, Pool, PoolCoordinates, build_pool, distance, objective

POOL = ("pool", "pool.parquet")
SUGGESTIONS = ("search", "suggestions.parquet")

VALUE = quantity_of("validation_accuracy")  # of a trial; larger is better


@dataclass(frozen=True)
class Objective:
    """The objective of HNAS, kappa/M + mu F(M^2 - nu) (Shu 2022, Eq. 7.7), and the search range of nu."""

    penalty: Penalty = "square"  # name of F (note H2)
    root_nu_bounds: tuple[float, float] = (0.0, 1.0)  # in units of the pool's largest |M| (note H1)
    epsilon: float = 0.0  # added to M in the quotient; 1e-6 in the preset `paper-code`


def objective_of(run: Run[Any]) -> Objective | None:
    """The objective of the search; None before the search has finished."""
    document = run.document("search", "objective.json")
    if document is None:
        return None
    return Objective(document["penalty"], tuple(document["root_nu"]), document["epsilon"])


def usable_pool(run: Run[Any]) -> Pool | None:
    """The rows of the pool with a finite objective; None if a column is missing or no row is finite."""
    table, proxy = run.table(*POOL), run.config.proxy
    if not {"architecture", proxy, "kappa"} <= set(table.columns):
        return None
    columns = {name: numbers(table, name) for name in (proxy, "kappa")}
    try:
        return build_pool(table[["architecture"]].assign(**columns), proxy)
    except InvalidPool:
        return None


def row_of(pool: Pool, architecture: str | None) -> int | None:
    """The row of an architecture in the pool; None if the pool does not contain it."""
    names = list(pool.architectures)
    return names.index(architecture) if architecture in names else None


def rank(pool: Pool, mu: float, nu: float, how: Objective) -> NDArray[np.float64]:
    """The objective of every row of the pool, (n,); lower is better."""
    return objective(pool.kappa, pool.metric, mu, nu, how.penalty, how.epsilon)


def best_trial(questions: pd.DataFrame) -> int | None:
    """The row with the best value, the first among equals; None without a finite value."""
    values = numbers(questions, "value").where(failures(questions).isna() & ~flags(questions, "repeat"))
    return int(np.nanargmax(values.to_numpy())) if values.notna().any() else None


def trial_numbers(questions: pd.DataFrame) -> pd.Series:
    """The numbers of the training runs, from 1; NaN for repeats and for evaluations passed by the user (number < 0)."""
    counted = ~flags(questions, "repeat") & ~(numbers(questions, "number") < 0)
    return counted.cumsum().astype(float).where(counted)


def names_of(run: Run[Any]) -> ShortNames:
    """Short names of the selected architecture and of all trained ones of the best repeat, by value."""
    questions = run.best.table(*SUGGESTIONS)
    values = values_by_architecture(questions)
    return short_names(run, (*sorted(values, key=lambda name: -values[name]), *questions.get("architecture", ())))


def values_by_architecture(questions: pd.DataFrame) -> dict[str, float]:
    """The value of each architecture in its first successful training run."""
    if "architecture" not in questions:
        return {}
    values = numbers(questions, "value").where(failures(questions).isna())
    rows = pd.DataFrame({"architecture": questions["architecture"], "value": values}).dropna()
    rows = rows.drop_duplicates("architecture")
    return dict(zip(rows["architecture"], rows["value"], strict=True))


def question_points(questions: pd.DataFrame) -> pd.DataFrame:
    """The suggestions: `number` of the training run, `mu`, `nu`, `repeat`, ..., with the index of the trials."""
    path = pd.DataFrame(
        {
            "number": trial_numbers(questions),
            "mu": numbers(questions, "mu"),
            "nu": numbers(questions, "nu"),
            "failed": failures(questions).notna(),
            "repeat": flags(questions, "repeat"),
            "value": numbers(questions, "value"),
            "architecture": questions.get("architecture"),
        }
    )
    return path[(path["mu"] > 0) & (path["nu"] >= 0) & (path["number"].notna() | path["repeat"])]


class PenaltyScale:
    """The conversion between mu and odds, the ratio of the penalty to kappa/M in a pool (note H1)."""

    def __init__(self, pool: Pool, how: Objective) -> None:
        self._coordinates = PoolCoordinates(pool, how.penalty, (-2.0, 2.0))

    def unit(self, nu: float) -> float:
        """The mu at which both terms have equal weight."""
        return float(10 ** self._coordinates.log10_unit(math.sqrt(nu)))

    def odds(self, mu: float, nu: float) -> float:
        """The odds of the penalty; NaN without mu and nu."""
        return mu / self.unit(nu) if mu > 0 and nu >= 0 else math.nan


def in_percent(odds: float) -> str:
    """The odds as a share in percent, without the sign: `83`, `0.4`, `99.7`; a dash for NaN."""
    if math.isnan(odds):
        return MISSING
    share, rest = 100 * odds / (1 + odds), 100 / (1 + odds)
    if 1 <= share <= 99:
        return f"{share:.0f}"
    one_digit = Decimal(f"{min(share, rest):.1g}")  # digits of the smaller side: `99.997`, not `100`
    return format(one_digit if share < 1 else 100 - one_digit, "f")


ODDS = (0.01, 100.0)  # minimal range of a plane: shares from 1 % to 99 %, the default of the search
_GRID = 144  # points of the plane on each axis: finer than a visible region


@dataclass(frozen=True)
class Plane:
    """The architecture that each (mu, nu) selects."""

    root_nu: NDArray[np.float64]  # (w,) evenly spaced; on a logarithmic scale unless it starts at 0
    odds: NDArray[np.float64]  # (h,) of the penalty, evenly spaced on a logarithmic scale; see `PenaltyScale`
    mu: NDArray[np.float64]  # (h, w) values with these odds at each nu
    selected: NDArray[np.int64]  # (h, w) rows of the pool


def plane(pool: Pool, how: Objective, odds: tuple[float, float] = ODDS) -> Plane:
    """The plane of (odds, sqrt(nu)) over the bounds of both, with the objective of the search."""
    root_nu = (np.geomspace if how.root_nu_bounds[0] > 0 else np.linspace)(*how.root_nu_bounds, _GRID)
    scale, rising = PenaltyScale(pool, how), np.geomspace(*odds, _GRID)
    mu = rising[:, None] * np.array([scale.unit(root**2) for root in root_nu.tolist()])  # (h, w)
    selected = np.empty(mu.shape, dtype=np.int64)
    quotient = pool.kappa / (pool.metric + how.epsilon)
    rising_quotient = np.argsort(quotient, kind="stable")
    for j, root in enumerate(root_nu.tolist()):
        far = distance(pool.metric[rising_quotient], root**2, how.penalty)
        nearest = np.minimum.accumulate(np.concatenate([[np.inf], far[:-1]]))
        rows = rising_quotient[far < nearest]  # rows that no other row beats in both kappa/M and penalty
        weights: Any = mu[:, j, None]
        values = objective(pool.kappa[rows], pool.metric[rows], weights, root**2, how.penalty, how.epsilon)  # (h, rows)
        selected[:, j] = rows[values.argmin(1)]
    return Plane(root_nu, rising, mu, selected)
