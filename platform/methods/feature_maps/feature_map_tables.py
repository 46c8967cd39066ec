"""The tables of a search for a feature map that its report and comparisons read. Accuracies and errors are fractions.

`correlation.parquet`, of the stage `correlation`, has a row per `bases` (`shared` or `independent`), `dimension` and
`architecture`: the validation accuracy with shared weights, `shared`, and solved for on its own, `standalone`.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from archray.platform.run.layout import PROGRESS
from archray.platform.run.run import Run

CORRELATION = "correlation.parquet"


def progress_of(run: Run[Any]) -> pd.DataFrame:
    """A row per solver call of a search, in order, of all repeats; no row before the search has ended.

    Columns: `repeat`, `calls` (so far), `seconds` (so far, of featurising, solving and scoring), `architecture` (the
    best so far), `dimension` (of this solve), `candidates` (that shared it), `score`, `test_error` (of the best so far;
    where solves are shared that of an oracle, which solves for it alone at the full dimension; NaN if not known),
    `final` (whether this is the standalone solve that ends the search).
    """
    repeats = [_own_progress(repeat).assign(repeat=number) for number, repeat in enumerate(run.repeats or [run])]
    return pd.concat(repeats, ignore_index=True)


def _own_progress(run: Run[Any]) -> pd.DataFrame:
    with_oracle = run.table("oracle", PROGRESS)
    return run.table("search", PROGRESS) if with_oracle.empty else with_oracle
