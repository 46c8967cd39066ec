"""A run of the study of validation sets, measured in this process, for tests that read its tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from archray_test_report import write_run

from archray.platform.methods.understanding.split.config import MEASURES_TABLE, SPECTRAL_TABLE
from archray.platform.methods.understanding.split.tables import rows_of
from archray.platform.run.run import Run
from archray.trainables.tune.split_trainable import SplitTrainable

PROBLEM = {
    "width": 16, "train_size": 8, "validation_sizes": (8, 16, 32), "test_size": 32, "architectures": 4, "steps": 5,
}  # fmt: skip
CONFIG = {
    "space": "activations", "data": {"name": "gaussian"}, "problem": PROBLEM, "parameters": (2, 3),
    "spectral_parameters": 2, "seeds": 2,
}  # fmt: skip


@cache
def _trials(spectral: bool) -> pd.DataFrame:
    """Returns the trials of two seeds in the form of the stage."""
    trials = []
    for parameters in (2,) if spectral else (2, 3):
        for seed in (0, 1):
            keys = {"parameters": parameters, "seed": seed, "spectral": spectral}
            trials.append({**keys, **SplitTrainable({"settings": {**PROBLEM, "threads": 1}, **keys}).step()})
    return pd.DataFrame(trials)


def split_run(place: Path) -> Run[Any]:
    """A run with two seeds and two numbers of parameters."""
    tables = {
        ("measures", MEASURES_TABLE): rows_of(_trials(False)),
        ("spectral", SPECTRAL_TABLE): rows_of(_trials(True)),
    }
    return write_run(place, "split", config=CONFIG, tables=tables)
