"""The tables of a run of NASI: what each seed found, and the trace norms that are compared."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.methods.supernets.tables import FOUND_CELLS
from archray.platform.report.section import failures
from archray.platform.run.run import Run

AGREEMENT = "agreement.parquet"  # of the stage of that name, a row per architecture; see `NASIAgreementTrainable`
IN_TABLE = "table.parquet"  # of the stage `table`, a row per architecture that a user's table has
TABLE = "table.json"  # of the same stage: what that table is
METRICS = ("ntk_trace_batch", "snip", "grasp", "synflow", "naswot")  # of Table 6.5, NASI's first
REWARD = "found_reward"  # by which the found architectures of several seeds are compared


@dataclass(frozen=True)
class NASISearchRow:
    """What one search seed did, in numbers.

    Attributes:
        seed, architecture, nu, trace, reward: of what it found; nu is that of its last step.
        traces, nus: (T,), of the samples, in the order of the steps.
        constants: a row per pair of constants that was tried on the same gradients: `nu` (the first step's), `mu`,
            `architecture`, `trace`, `parameters`.
    """

    seed: int
    architecture: str
    nu: float
    trace: float
    reward: float
    traces: np.ndarray
    nus: np.ndarray
    constants: pd.DataFrame


def searches(run: Run[Any]) -> list[NASISearchRow]:
    """The searches that ended without a failure, the best first, as they are compared."""
    cells = run.table("search", FOUND_CELLS)
    if REWARD not in cells:  # empty, or of another method
        return []
    cells = cells[failures(cells).isna()].sort_values(REWARD, ascending=False, kind="stable")
    rows = []
    for row in cells.to_dict("records"):
        samples = json.loads(row["samples"])
        rows.append(
            NASISearchRow(
                int(row["seed"]),
                row["architecture"],
                float(row["nu"]),
                float(row["found_trace"]),
                float(row[REWARD]),
                np.array(samples["trace"]),
                np.array(samples["nu"]),
                pd.DataFrame(json.loads(row["constants"])),
            )
        )
    return rows
