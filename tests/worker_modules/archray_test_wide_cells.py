"""A run of the study of cells without Ray: sampled variants with synthetic training runs and planes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from archray_test_report import write_run
from rich.console import Console

from archray.platform.engine.stage import Context
from archray.platform.methods.understanding.topology.stages import RECIPE
from archray.platform.methods.understanding.topology.tables import BOUNDS, PLANES, VARIANTS
from archray.platform.run.layout import CURVES, TRIALS
from archray.platform.run.run import Run
from archray.trainables.landscape.linear_cells import bounds_table

EPOCHS, POINTS = 3, 5
CONFIG = {
    "space": "darts",
    "architectures": ["darts-v2", "amoebanet", "snas-mild"],
    "connections": 4,
    "operations": 2,
    "shapes": 20,
    "network": {"channels": 2, "cells": 1},
    "plane": {"points": POINTS},
}


def wide_run(place: Path) -> Run[Any]:
    """A run with finished stages. The wider a cell, the faster, the flatter and the less noisy it is."""
    run = write_run(place, "topology", config=CONFIG)
    variants = next(stage for stage in RECIPE.stages if stage.name == "variants")
    variants.execute(Context(run, Console(quiet=True)), run.folder / "variants")
    trials, curves, planes = [], [], []
    square = np.add.outer(np.linspace(-1, 1, POINTS) ** 2, np.linspace(-1, 1, POINTS) ** 2)
    for number, row in enumerate(run.table("variants", VARIANTS).itertuples()):
        row_start = {"trial_id": f"t{number:03d}", "architecture": row.architecture, "failure": None}
        trials.append({**row_start, "lr_factor": 1.0, "seed": 0})
        for epoch in range(1, EPOCHS + 1):
            loss = 2.3 - epoch * (0.2 + 0.05 * row.width + 0.001 * (number % 5))
            accuracy = 0.3 * epoch + 0.001 * (number % 7)
            losses = {"validation_loss": loss, "test_loss": loss, "test_accuracy": accuracy}
            curves.append({**row_start, "epoch": epoch, **losses})
        rise = 5 / row.width
        planes.append(
            {
                "architecture": row.architecture,
                "plane": json.dumps((0.1 + rise * square).tolist()),
                "variances": json.dumps((10 / row.width + square).tolist()),
                "hessian": 9.0,
                "center": 0.1,
                "rise": rise,
                "flat": 0.2,
                "gradient_variance": 9 / row.width,
                "plane_variance": 10 / row.width,
                "seconds": 1.0,
                "failure": None,
            }
        )
    tables = {
        ("trainings", TRIALS): pd.DataFrame(trials),
        ("trainings", CURVES): pd.DataFrame(curves),
        ("planes", PLANES): pd.DataFrame(planes),
        ("linear", BOUNDS): bounds_table(36, 0),
    }
    return write_run(place, "topology", config=CONFIG, tables=tables)
