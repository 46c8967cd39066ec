"""What selection by validation points cost in a search for a feature map, beside Theorem 3.1's bounds. Khodak et al.

2020, section 3. The loss is 0-1 (B = 1), and the solver's own of decision values clipped to [-1, 1]: the square, hinge
and log loss have no bound without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.methods.feature_maps.selection_bound import (
    gap_bound,
    hoeffding_bound,
    rounds_entropy,
    selection_bound,
)
from archray.platform.report.table_columns import numbers
from archray.platform.run.layout import CURVES, TRIALS
from archray.platform.run.run import Run

LOSSES = ("error", "clipped")  # 0-1, and the solver's own of clipped decision values


def selection_gaps(run: Run[Any]) -> pd.DataFrame:
    """A row per solve that selected, and loss; of all repeats, in the order of rounds. Empty without test points.

    Columns: `repeat`, `round` (of halving, from 1; 1 else), `shared` (whether the candidates shared the weights),
    `winner` (whether it is what the search ends with), `loss` (of LOSSES), `B`, `candidates` (|C|; of the winner all
    of the search), `points` (|V|: validation points that it was scored on), `test_points`, `train_points`,
    `weight_norm`, `validation`, `test` (mean losses), `gap` (test - validation), `bound` (`gap_bound` with log |C|),
    `hoeffding`, `alone` (`gap_bound` of a single candidate), `reused` (`gap_bound` where the points served the rounds
    before, too), `selection` (`selection_bound`).
    """
    rows = []
    for repeat, own in enumerate(run.repeats or [run]):
        for solve in _solves(own.table("search", TRIALS), own.table("search", CURVES), run.config.mode):
            rows += [{"repeat": repeat, **row} for row in _losses(solve)]
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class _Solve:
    """A solve that selected one of `candidates` hypotheses. columns: as the trainable reported it."""

    number: int
    shared: bool
    winner: bool
    candidates: int
    entropy_reused: float
    columns: dict[Any, Any]


def _solves(trials: pd.DataFrame, curves: pd.DataFrame, mode: str) -> list[_Solve]:
    """The solves of a search; none of one whose tables have no leaders, or whose test points were left alone."""
    if "leader" not in trials:
        return []
    left = numbers(trials, "candidates_left")
    if not (left > 1).any():
        return _standalone(curves, mode)
    most, solves = int(left.max()), []
    for columns in trials.assign(left=left).sort_values(["round", "trial_id"]).to_dict("records"):
        if columns["left"] >= 1:
            shared = columns["left"] > 1
            size = int(columns["left"]) if shared else most
            reused = rounds_entropy(most, size) if shared else math.log(most)
            solves.append(_Solve(int(columns["round"]), shared, not shared, size, reused, columns))
    return solves


def _standalone(curves: pd.DataFrame, mode: str) -> list[_Solve]:
    """Of a search that solves for one map at a time, the best: of as many hypotheses as maps and dimensions."""
    score = numbers(curves, "score")
    if not score.notna().any():
        return []
    best = curves.iloc[int(np.nanargmin(score) if mode == "min" else np.nanargmax(score))].to_dict()
    hypotheses = curves["architecture"].nunique() * curves["dimension"].nunique()
    return [_Solve(1, False, True, hypotheses, math.log(hypotheses), best)]


def _losses(solve: _Solve) -> list[dict[str, Any]]:
    """A row per loss, without those that are not known."""
    told, rows = solve.columns, []
    for loss in LOSSES:
        validation, test = (float(told.get(f"leader_{part}_{loss}", math.nan)) for part in ("validation", "test"))
        if not (math.isfinite(validation) and math.isfinite(test)):
            continue
        largest = 1.0 if loss == "error" else float(told["loss_bound"])
        points, entropy = float(told["leader_points"]), math.log(solve.candidates)
        rows.append(
            {
                "round": solve.number,
                "shared": solve.shared,
                "winner": solve.winner,
                "loss": loss,
                "B": largest,
                "candidates": solve.candidates,
                "points": points,
                **{name: float(told[name]) for name in ("test_points", "train_points", "weight_norm")},
                "validation": validation,
                "test": test,
                "gap": test - validation,
                "bound": gap_bound(largest, points, entropy),
                "hoeffding": hoeffding_bound(largest, points, entropy),
                "alone": gap_bound(largest, points, 0.0),
                "reused": gap_bound(largest, points, solve.entropy_reused),
                "selection": selection_bound(largest, points, entropy),
            }
        )
    return rows


def excess_errors(run: Run[Any]) -> pd.DataFrame:
    """A row per repeat: how far the winner's test error lies above the least of the maps solved alone at its dimension.

    Columns: `repeat`, `excess` (0-1), `known` (how many maps were solved alone, by the search or an oracle), `of` (how
    many there were to select from). Of halving only the leaders of its rounds are known, so that the excess over all
    candidates can be larger.
    """
    rows = []
    for repeat, own in enumerate(run.repeats or [run]):
        trials, curves = own.table("search", TRIALS), own.table("search", CURVES)
        solves = [solve for solve in _solves(trials, curves, run.config.mode) if solve.winner]
        if not solves:
            continue
        told = solves[0].columns
        alone = [frame for frame in (curves, own.table("oracle", TRIALS)) if "test_accuracy" in frame]
        known = pd.concat([frame[["architecture", "dimension", "test_accuracy"]] for frame in alone])
        known = known[(known["dimension"] == told["dimension"]) & known["test_accuracy"].notna()]
        own_accuracy = float(told["test_accuracy"])
        best = float(np.nanmax([own_accuracy, *known["test_accuracy"]]))
        maps = {*known["architecture"].dropna(), told["leader"]}
        rows.append({"repeat": repeat, "excess": best - own_accuracy, "known": len(maps), "of": solves[0].candidates})
    return pd.DataFrame(rows)
