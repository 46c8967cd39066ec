"""The tables of the study of cells: a row a network, with all that was measured of it."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.run.layout import CURVES, TRIALS
from archray.platform.run.run import Run

VARIANTS, SHAPES = "variants.parquet", "shapes.parquet"
WEIGHTS = "weights"
PLANES = "planes.parquet"
BOUNDS = "bounds.parquet"
KINDS = {"cell": "the cell", "widest": "widest", "connections": "connections", "operations": "operations"}
MEASURED = (
    "epochs_to_threshold",
    "mean_loss",
    "final_loss",
    "test_loss",
    "test_accuracy",
    "rise",
    "flat",
    "gradient_variance",
    "plane_variance",
)


def loss_threshold(run: Run[Any]) -> float:
    """The validation loss that is counted as learnt: half of a uniform guess's, (ln K) / 2."""
    from archray.trainables.data import load_images

    return math.log(load_images(run.data).num_classes) / 2


def architectures_of(run: Run[Any]) -> list[str]:
    """The distinct architectures of `variants.parquet`, in its order."""
    return list(dict.fromkeys(run.table("variants", VARIANTS)["architecture"]))


def networks(run: Run[Any], factor: float = 1.0) -> pd.DataFrame:
    """A row a network: the columns of `variants.parquet`, and MEASURED, NaN where it is not known.

    Means over seeds, of the trainings at `factor` times the learning rate. `mean_loss`: of the validation loss over
    the epochs, the area under its curve, by which convergence is compared; a loss counts at most twice a uniform
    guess's, so that one bad epoch is not all of it. `epochs_to_threshold`: until the loss is first below
    `loss_threshold`, NaN if never. Losses and accuracies are of the last epoch.
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
    """The epochs of the trainings at a factor, those of failed ones left out."""
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
    """The rows that differ by their connections alone."""
    return table if table.empty else table[table["kind"] != "operations"]


def plane_of(text: object) -> np.ndarray | None:
    """(points, points) losses of a row's `plane`; None without one."""
    if not isinstance(text, str):
        return None
    return np.array(json.loads(text), dtype=float)
