"""The result of a bench: the architecture that each search found, means over seeds, and differences by seed."""

import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.stats import t

from archray.errors import InvalidInput, UnknownName
from archray.files import Folder
from archray.platform.bench.question import RANDOM_SEARCH, Question, problem_in, read_parts
from archray.trainables.tabular import Table

CONFIDENCE = 0.95
DIFFERENCE_COLUMNS = [
    "method", "against", "budget", "difference", "low", "high", "low_all", "high_all", "seeds", "better",
]  # fmt: skip


@dataclass(frozen=True)
class BenchResult:
    """A finished bench in a folder.

    Attributes:
        trials: a row per evaluation: `method`, `budget`, `seed`, `number` (from 1), `row` of the table (-1: the trial
            failed), `objective`, `seconds` of the training run (NaN if the table has none).
    """

    folder: Folder
    question: Question
    table: Table
    trials: pd.DataFrame

    @classmethod
    def read(cls, place: str | os.PathLike[str] | Folder) -> "BenchResult":
        """Reads a bench. Raises: RunFolderError for a folder without a bench, or with an unfinished bench."""
        folder = place if isinstance(place, Folder) else Folder(place)
        question = Question.read(folder)
        table, _ = problem_in(folder)
        return cls(folder, question, table, read_parts(folder, question, table))

    @property
    def sign(self) -> int:
        """1 if larger values are better, -1 if smaller values are."""
        return 1 if self.table.mode == "max" else -1

    @cached_property
    def labels(self) -> list[str]:
        return [entrant.label for entrant in self.question.entrants]

    @cached_property
    def best_objective(self) -> float:
        """The best objective in the table."""
        return float(self.sign * np.max(self.sign * self.table.objective[self.table.rows]))

    def ranks(self, objective: np.ndarray) -> np.ndarray:
        """Returns the ranks of objective values among all distinct networks of the table, 1 is best; NaN for NaN."""
        ordered = np.sort(-self.sign * self.table.objective[self.table.rows])
        ranks = 1.0 + np.searchsorted(ordered, -self.sign * objective, side="left")
        return np.where(np.isnan(objective), np.nan, ranks)

    @cached_property
    def searches(self) -> pd.DataFrame:
        """A row per search.

        Columns: `method`, `budget`, `seed`; for the evaluated architecture with the best objective (the first of equal
        ones) `architecture`, `objective`, `result`, `rank` of the objective, and costs; the number of `evaluations`,
        and the `seconds` of their training runs.
        """
        trials, table = self.trials, self.table
        worth = (self.sign * trials["objective"]).fillna(-np.inf)
        keys = ["method", "budget", "seed"]
        chosen = trials.loc[worth.groupby([trials[key] for key in keys], sort=False).idxmax()].reset_index(drop=True)
        spent = trials.groupby(keys, sort=False)["seconds"]
        rows = chosen["row"].to_numpy()
        evaluated = rows >= 0
        return chosen[[*keys, "objective"]].assign(
            architecture=[table.architectures[row] if row >= 0 else "" for row in rows],
            result=np.where(evaluated, table.result[rows], np.nan),
            rank=self.ranks(chosen["objective"].to_numpy()),
            evaluations=spent.size().to_numpy(),
            seconds=spent.sum(min_count=1).to_numpy(),
            **{name: np.where(evaluated, cost[rows], np.nan) for name, cost in table.costs.items()},
        )

    def summary(self) -> pd.DataFrame:
        """Returns a row per method and budget.

        Columns: `seeds` (1 if the method does not depend on the seed); mean, standard deviation (n - 1) and worst value
        of `result` and `rank`; means of `objective`, `evaluations`, `seconds` of the training runs, and costs of the
        found architecture.
        """
        rows = []
        for (method, budget), group in self.searches.groupby(["method", "budget"], sort=False):
            row = {"method": method, "budget": budget, "seeds": len(group)}
            worst = group["result"].min() if self.sign > 0 else group["result"].max()
            row |= {"result": group["result"].mean(), "result_std": group["result"].std(), "result_worst": worst}
            row |= {"rank": group["rank"].mean(), "rank_std": group["rank"].std(), "rank_worst": group["rank"].max()}
            row |= {key: group[key].mean() for key in ("objective", "evaluations", "seconds", *self.table.costs)}
            rows.append(row)
        return pd.DataFrame(rows)

    def differences(self, against: str = RANDOM_SEARCH) -> pd.DataFrame:
        """Compares the result of each method with one method, seed by seed; see `paired`. Raises: UnknownName."""
        if against not in self.labels:
            raise UnknownName(f"expected one of the rows {', '.join(self.labels)}, got {against!r}")
        rows = []
        for budget, group in self.searches.groupby("budget"):
            results = {label: rows_of["result"].to_numpy() for label, rows_of in group.groupby("method", sort=False)}
            others = [label for label in self.labels if label != against]
            for label in others:
                interval = paired(self.sign * results[label], self.sign * results[against], len(others))
                rows.append({"method": label, "against": against, "budget": budget, **interval})
        return pd.DataFrame(rows, columns=DIFFERENCE_COLUMNS)  # empty if the bench has one method


def paired(values: np.ndarray, others: np.ndarray, comparisons: int = 1) -> dict[str, float]:
    """Computes the mean of n paired differences with Student's 95 % interval.

    Args:
        values, others: (n,) values by seed, or (1,) for a row that does not depend on the seed.
        comparisons: number of comparisons for the Bonferroni interval.

    Returns: `difference`, `low`, `high`; `low_all`, `high_all`, the wider interval for all `comparisons` together
    (Bonferroni); `seeds` n; `better`, the share of seeds in which the first is better, where ties count half. The
    intervals are NaN for n = 1.
    """
    if len(values) != len(others) and 1 not in (len(values), len(others)):
        raise InvalidInput(f"expected equal numbers of values, or one value, got {len(values)} and {len(others)}")
    differences = values - others
    differences = differences[~np.isnan(differences)]
    n = len(differences)
    mean = float(differences.mean()) if n else np.nan
    half = {end: _half_width(differences, of) for end, of in (("", 1), ("_all", comparisons))}
    limits = {f"{side}{end}": mean + sign * half[end] for end in half for side, sign in (("low", -1), ("high", 1))}
    better = float((np.sign(differences) + 1).mean() / 2) if n else np.nan
    return {"difference": mean, **limits, "seeds": n, "better": better}


def _half_width(differences: np.ndarray, comparisons: int) -> float:
    n = len(differences)
    if n < 2:
        return float("nan")
    quantile = t.ppf(1 - (1 - CONFIDENCE) / (2 * comparisons), n - 1)
    return float(quantile * differences.std(ddof=1) / np.sqrt(n))
