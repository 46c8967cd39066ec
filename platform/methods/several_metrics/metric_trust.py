"""What the metrics of a search turned out to be worth: their weights after the trainings, and where they had the best.

The weights are those of the surrogate of `rank-surrogate`, for RoBoT's trainings too: its own are of another scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from archray.platform.engine.pool_scoring import POOL
from archray.platform.methods.plain.plain_tables import ASKED, best_trial, values_of
from archray.platform.report.section import Column, Section, captioned, numeric, table
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers.rank_surrogate.normal_scores import metric_scores
from archray.searchers.rank_surrogate.rank_surrogate import RankSurrogate
from archray.trainables.spaces import get_space


def metric_trust(run: Run[Any]) -> pd.DataFrame:
    """A row per metric, the most trusted first: metric, weight, correlation, rank.

    weight: of its normal score in what is expected, a fraction of the 1 that all have together before any training.
    correlation: Spearman's, with the values of the trainings; NaN where there are under three. rank: of what was found,
    in the pool by this metric, from 1.
    """
    pool, trials = run.best.table("pool", POOL), run.best.table(*ASKED)
    names = [name for name in run.config.columns if pool[name.removeprefix("-")].nunique() > 1]
    columns = np.column_stack(
        [
            pool[name.removeprefix("-")].to_numpy(float, na_value=np.nan) * (-1 if name[0] == "-" else 1)
            for name in names
        ]
    )
    values = values_of(trials)
    known = trials[values.notna()]
    place = {name: row for row, name in enumerate(pool["architecture"])}
    rows = [place[name] for name in known["architecture"]]
    space = get_space(run.space)
    codes = np.array([space.rank(space.decode(name)) for name in pool["architecture"]])
    losses = (-values[values.notna()]).tolist()
    weights = RankSurrogate(metric_scores(columns), codes).metric_weights(rows, losses)
    best = rows[int(np.argmin(losses))]
    frame = pd.DataFrame({"metric": names, "weight": weights})
    frame["correlation"] = [
        pd.Series(column[rows]).corr(-pd.Series(losses), method="spearman") if len(rows) > 2 else np.nan
        for column in columns.T
    ]
    frame["rank"] = [int(rankdata(-np.nan_to_num(column, nan=-np.inf), method="min")[best]) for column in columns.T]
    return frame.sort_values("weight", ascending=False, kind="stable", ignore_index=True)


def trust_section(run: Run[Any]) -> Section | None:
    """The table of `metric_trust`. Nothing before the first training has a value."""
    trials = run.best.table(*ASKED)
    if trials.empty or best_trial(trials) is None:
        return None
    trust, rows = metric_trust(run), len(run.best.table("pool", POOL))
    trainings = int(values_of(trials).notna().sum())
    content = table(
        [
            Column("metric", "name"),
            *numeric("weight", "Spearman with the trainings", f"rank of what was found, of {rows}"),
        ],
        [
            [row.metric, f"{row.weight:.2f}", "" if correlation != correlation else f"{correlation:.2f}", row.rank]
            for row, correlation in zip(trust.itertuples(), trust["correlation"].tolist(), strict=True)
        ],
        label="the weight of each metric after the trainings",
    )
    caption = (
        f"What each metric came to weigh after {count(trainings, 'training')}; before, each weighed "
        f"{1 / len(trust):.2f}. Below zero: the less, the better, as far as these trainings say. They were "
        "chosen to be good, so a correlation among them is lower than in the pool. The rank says how soon the metric "
        "alone would have come to what was found."
    )
    return Section("trust", "What the metrics were worth", captioned(content, caption))
