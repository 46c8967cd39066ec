"""The tables of the study of validation sets, and what is computed of them over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.report.figures import NothingToDraw
from archray.platform.run.run import Run
from archray.trainables.validation_split.points_needed import Array, Interval, decay, growth, points_needed

MEASURES, SPECTRAL = "measures", "spectral"  # stages
MEASURES_TABLE, SPECTRAL_TABLE = "measures.parquet", "spectral.parquet"
DESIGNS = {  # of the table of spectral solutions, in words
    "gaussian": "low-rank form, Gaussian features",
    "activation": "low-rank form, activations",
    "kernels": "multiple kernels",
}


def rows_of(trials: pd.DataFrame) -> pd.DataFrame:
    """A row per trial and size of the validation set, with the trial's `parameters` and `seed`; failed trials none."""
    rows: list[dict[str, Any]] = []
    for trial in trials.to_dict("records"):
        whole = json.loads(trial["whole"])
        own = {"parameters": int(trial["parameters"]), "seed": int(trial["seed"])}
        rows += [{**own, **row, **whole} for row in json.loads(trial["rows"])]
    return pd.DataFrame(rows)


def measures_of(run: Run[Any]) -> pd.DataFrame:
    """Of all repeats, with a `repeat`, and `problem`, which tells seeds apart. Raises: NothingToDraw without a row."""
    return _told_apart(run, MEASURES, MEASURES_TABLE)


def spectral_of(run: Run[Any]) -> pd.DataFrame:
    """As `measures_of`."""
    return _told_apart(run, SPECTRAL, SPECTRAL_TABLE)


def _told_apart(run: Run[Any], stage: str, name: str) -> pd.DataFrame:
    frame = run.pooled(stage, name)
    if frame.empty or "points" not in frame:
        raise NothingToDraw(f"the run has no table of its stage {stage}; understand split to its end")
    return frame.assign(problem=frame["repeat"].astype(str) + "-" + frame["seed"].astype(str))


def curves(frame: pd.DataFrame, column: str) -> tuple[list[int], Array]:
    """The sizes, and a row per problem of the column's values by size."""
    wide = frame.pivot_table(index="problem", columns="points", values=column)
    return [int(size) for size in wide.columns], wide.to_numpy(float)


def excess_by_parameters(run: Run[Any]) -> tuple[list[int], Mapping[int, Array]]:
    """The sizes, and by h the excess test losses, (problems, sizes)."""
    frame = measures_of(run)
    numbers = sorted(int(h) for h in frame["parameters"].unique())
    pairs = {h: curves(frame[frame["parameters"] == h], "excess") for h in numbers}
    return pairs[numbers[0]][0], {h: values for h, (_, values) in pairs.items()}


def needed_by_parameters(run: Run[Any]) -> dict[int, Interval]:
    """By h, the points from which on the median excess is within the tolerance."""
    sizes, excess = excess_by_parameters(run)
    return {h: points_needed(sizes, values, run.config.tolerance) for h, values in excess.items()}


def growth_of(run: Run[Any]) -> Interval:
    """The exponent of the points needed over h."""
    sizes, excess = excess_by_parameters(run)
    return growth(sizes, excess, run.config.tolerance)


def largest(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the largest h."""
    return frame[frame["parameters"] == frame["parameters"].max()]


def decay_of(frame: pd.DataFrame, column: str, test_size: int) -> Interval:
    """The exponent of a column's mean over n = 1 / (1 / validation points + 1 / test points).

    Of two independent samples' means, whose distance it is, n is what counts: a finite test set is no expectation.
    """
    sizes, values = curves(frame, column)
    return decay([1 / (1 / size + 1 / test_size) for size in sizes], values)


def of_problems(frame: pd.DataFrame, column: str) -> np.ndarray:
    """One value per problem of what does not depend on the size of the validation set."""
    values: np.ndarray = frame.groupby("problem")[column].first().to_numpy(float)
    return values


def at_largest_size(frame: pd.DataFrame, column: str) -> np.ndarray:
    """One value per problem, at the largest size."""
    last: np.ndarray = frame[frame["points"] == frame["points"].max()].sort_values("problem")[column].to_numpy(float)
    return last
