"""Recipes and report of searches over several metrics: the weights of the metrics after the trainings.

The weights are those of the surrogate of `rank-surrogate`, for RoBoT's trainings too: its own are of another scale.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from archray.platform.engine.pool_scoring import POOL
from archray.platform.methods.plain.report import Trials, best_so_far_section
from archray.platform.methods.plain.stages import plain_recipe
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.search_problem import MakeSearcher
from archray.platform.methods.several_metrics import searchers
from archray.platform.methods.several_metrics.searchers import codes_of, signed
from archray.platform.report.section import Column, Section, captioned, numeric, table
from archray.platform.report.statistics import spearman
from archray.platform.report.texts import texts_of
from archray.platform.run.run import Run
from archray.searchers.pool_file import PoolFile
from archray.searchers.rank_surrogate.search import load_metric_pool
from archray.searchers.rank_surrogate.surrogate import RankSurrogate, metric_scores
from archray.trainables.spaces import get_space
from archray.trainables.spaces.encodings import TOKENS
from archray.trainables.spaces.table_space import TableSpace

_text = texts_of(__package__)


def metric_trust(run: Run[Any]) -> pd.DataFrame:
    """A row per metric, the most trusted first: metric, before, weight, correlation, rank.

    before, weight: of its normal score in what is expected, before and after the trainings. correlation: Spearman's,
    with the values of the trainings; NaN where there are under three. rank: of what was found, in the pool by this
    metric, from 1.
    """
    table, trials = run.best.table("pool", POOL), Trials.of(run.best)
    named = run.config.searcher_options.get("proxies") or [signed(c) for c in table.columns if c != "architecture"]
    names = [name for name in named if table[name.removeprefix("-")].nunique() > 1]
    space = get_space(run.space)
    encoding = codes_of(space, space.encoding if isinstance(space, TableSpace) else TOKENS)
    pool = load_metric_pool(PoolFile.of((run.best.folder / "pool" / POOL).uri), names, encoding)
    place = {name: row for row, name in enumerate(pool.architectures)}
    finite = trials.values.notna()
    rows = [place[name] for name in trials.table["architecture"][finite]]
    losses = trials.losses[finite].tolist()
    surrogate = RankSurrogate(metric_scores(pool.columns), pool.codes)
    best = rows[int(np.argmin(losses))]
    frame = pd.DataFrame({"metric": names, "before": surrogate.metric_weights([], [])})
    frame["weight"] = surrogate.metric_weights(rows, losses)
    frame["correlation"] = [spearman(column[rows], -np.array(losses)) for column in pool.columns.T]
    frame["rank"] = [
        int(rankdata(-np.nan_to_num(column, nan=-np.inf), method="min")[best]) for column in pool.columns.T
    ]
    return frame.sort_values("weight", ascending=False, kind="stable", ignore_index=True)


def trust_section(run: Run[Any]) -> Section | None:
    """The table of `metric_trust`. Nothing before the first training has a value."""
    trials = Trials.of(run.best)
    if trials.table.empty or trials.best is None:
        return None
    trust, size = metric_trust(run), len(run.best.table("pool", POOL))
    columns = [
        Column("metric", "name"),
        *numeric("weight", "Spearman with the trainings", f"rank of what was found, of {size}"),
    ]
    rows = [
        (
            row["metric"],
            f"{row['weight']:.2f}",
            "" if np.isnan(rho := row["correlation"]) else f"{rho:.2f}",
            row["rank"],
        )
        for row in trust.to_dict("records")
    ]
    content = table(columns, rows, label="the weight of each metric after the trainings")
    caption = _text("trust", trainings=int(trials.values.notna().sum()), before=f"{trust['before'][0]:.2f}")
    return Section("trust", "What the metrics were worth", captioned(content, caption))


def _recipe(make: MakeSearcher, title: str) -> Recipe[Any]:
    """A plain search over a pool, whose report also says what the metrics were worth."""
    recipe = plain_recipe(make, title=title, pool=True)
    place = recipe.sections.index(best_so_far_section)
    return replace(recipe, sections=(*recipe.sections[:place], trust_section, *recipe.sections[place:]))


RANK_SURROGATE = _recipe(searchers.rank_surrogate, "train what several metrics and the trainings so far promise")
ROBOT = _recipe(searchers.robot, "train the best by weighted metrics, and learn the weights")
