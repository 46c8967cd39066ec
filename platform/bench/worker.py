"""What a task of a bench does: one row's searches with some seeds, trial by trial, answered from the table."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from archray.files import Folder
from archray.platform.bench.folder import Share, problem_in
from archray.searchers import drive

COLUMNS = ("seed", "number", "row", "objective", "seconds")


class BenchWorker:
    """Answers shares of the bench in a folder; the table is read once.

    A share's answer has a row per evaluation: `seed`, `number` (from 1, in the order of suggestion), `row` of the
    table (-1 where the trial failed), `objective` (NaN there), and `seconds` of the training (NaN where the table has
    none).
    """

    def __init__(self, folder: str) -> None:
        self._table, self._problem = problem_in(Folder(folder))
        self._oracle = self._table.oracle()

    def __call__(self, share: Share) -> pd.DataFrame:
        return pd.concat([self._search(share, seed) for seed in share.seeds], ignore_index=True)

    def _search(self, share: Share, seed: int) -> pd.DataFrame:
        spent = Spending(share.seconds, self._oracle)
        searcher = share.entrant.searcher(self._problem, share.budget, seed)
        problem = self._problem
        frame = drive(searcher, spent.answer, metric=problem.objective, mode=problem.mode, stop=spent.is_over)
        answers = pd.DataFrame(
            {
                "seed": seed,
                "number": np.arange(1, len(frame) + 1),
                "row": frame["row"].fillna(-1).astype(int) if "row" in frame else -1,
                "objective": frame["value"],
                "seconds": frame.get("seconds", np.nan),
            },
            columns=list(COLUMNS),
        )
        if share.seconds is not None:  # the training that would have ended after the time does not count
            answers = answers[answers["seconds"].cumsum() <= share.seconds]
        return answers


class Spending:
    """The training seconds of a search, and whether they are spent."""

    def __init__(self, seconds: float | None, oracle: Callable[..., dict[str, float]]) -> None:
        self._seconds, self._oracle, self._spent = seconds, oracle, 0.0

    def answer(self, config: dict[str, object]) -> dict[str, float]:
        result = self._oracle(config)
        self._spent += result.get("seconds", 0.0)
        return result

    def is_over(self) -> bool:
        return self._seconds is not None and self._spent >= self._seconds
