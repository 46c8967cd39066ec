"""A run of the study of cells without Ray: tables in the form that its stages write."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from archray_test_report import write_run

from archray.platform.methods.understanding.topology.tables import BOUNDS, PLANES, SHAPES, VARIANTS
from archray.platform.run.layout import CURVES, TRIALS
from archray.platform.run.run import Run
from archray.trainables.landscape.linear_cells import bounds_table

CONFIG: dict[str, Any] = {"data": {"name": "digits"}, "plane": {"points": 5, "gradient_points": 3}}
CELLS = ("darts-v2", "snas-mild")
EPOCHS = 3


@cache
def _bounds() -> pd.DataFrame:
    return bounds_table(108, seed=0)


def topology_run(place: Path) -> Run[Any]:
    """A run with finished stages: two cells with two variants each."""
    rng = np.random.default_rng(0)
    networks, trials, curves, planes = [], [], [], []
    for cell in CELLS:
        for kind, number in (("cell", 1), ("connections", 1), ("connections", 2)):
            name = f"{cell}-{kind}-{number}"
            shape = {"width": 4.0 - number, "depth": 1 + number, "reduce_width": 4.0, "reduce_depth": 2}
            row = {"cell": cell, "kind": kind, "number": number, "space": "darts", **shape, "parameters": 1000}
            networks.append(row | {"architecture": name})
            trials.append({"trial_id": name, "architecture": name, "lr_factor": 1.0, "failure": None})
            for epoch in range(1, EPOCHS + 1):
                known = {"trial_id": name, "architecture": name, "epoch": epoch, "failure": None}
                losses = {"validation_loss": 2.0 / epoch, "test_loss": 2.1 / epoch, "test_accuracy": 0.2 * epoch}
                curves.append(known | losses)
            steps = np.linspace(-1, 1, 5)
            losses = 0.5 + number * (steps[:, None] ** 2 + steps[None, :] ** 2)
            measured = {"center": 0.5, "rise": 1.0, "flat": 0.4, "gradient_variance": 1.5, "plane_variance": 2.5}
            squares = {"plane": losses.tolist(), "variances": (1 + rng.random((3, 3))).tolist()}
            text = {key: json.dumps(square) for key, square in squares.items()}
            planes.append({"architecture": name, **text, **measured, "hessian": 9.0, "failure": None, "seconds": 1.0})
    shapes = [{key: network[key] for key in ("cell", "width", "depth")} for network in networks]
    tables = {
        ("variants", VARIANTS): pd.DataFrame(networks),
        ("variants", SHAPES): pd.DataFrame(shapes),
        ("trainings", TRIALS): pd.DataFrame(trials),
        ("trainings", CURVES): pd.DataFrame(curves),
        ("planes", PLANES): pd.DataFrame(planes),
        ("linear", BOUNDS): _bounds(),
    }
    return write_run(place, "topology", config=CONFIG, tables=tables)
