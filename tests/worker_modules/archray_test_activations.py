"""A run of the study of activations without Ray, with the files that its stages would write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from archray_test_report import write_run
from rich.console import Console

from archray.platform.engine.stage import Context
from archray.platform.methods.understanding.activations.stages import teacher_pairs
from archray.platform.methods.understanding.activations.tables import (
    ACTIVATION_ROWS,
    AGREEMENTS,
    PAIRS,
    TEACHERS,
    agreement_rows,
    rows_of_activations,
    rows_of_pairs,
)
from archray.platform.run.layout import CURVES
from archray.platform.run.run import Run
from archray.trainables.activations.settings import ActivationSettings
from archray.trainables.tune.activation_trainable import ActivationTrainable

SMALL: dict[str, Any] = {
    "activations": ["relu", "tanh", "quadratic"],
    "width": 6,
    "dimension": 3,
    "samples": 16,
    "validation": 16,
    "risk_samples": 60,
    "steps": 20,
}
CONFIG: dict[str, Any] = {
    "space": "activations",
    "data": {"name": "gaussian"},
    "problem": SMALL,
    "labels": ["realizable", "outside"],
    "seeds": 3,
    "teachers": 30,
}


def activations_run(place: Path) -> Run[Any]:
    """A run with finished stages, for three seeds and two kinds of labels."""
    run = write_run(place, "activations", config=CONFIG)
    config, context = run.config, Context(run, Console(quiet=True))
    curves = []
    for labels in config.labels:
        settings = ActivationSettings(**dict(config.problem), seeds=config.seeds).model_dump(mode="json")
        trial = ActivationTrainable({"settings": settings, "labels": labels, "first": 0, "seed": 1})
        while not (curves and curves[-1]["labels"] == labels and curves[-1]["done"]):
            curves.append({"trial_id": labels, **trial.step()})
    table = pd.DataFrame(curves)
    rows = rows_of_activations(table[table["phase"].eq("instance")], config.problem.activations)
    pairs = rows_of_pairs(rows)
    teachers = [teacher_pairs(context, size, range(config.teachers), None) for size in config.sizes]
    tables = {
        ("teachers", TEACHERS): pd.concat(teachers, ignore_index=True),
        ("shared", CURVES): table,
        ("shared", ACTIVATION_ROWS): rows,
        ("shared", PAIRS): pairs,
        ("shared", AGREEMENTS): agreement_rows(rows, pairs, 0),
    }
    return write_run(place, "activations", config=CONFIG, tables=tables)
