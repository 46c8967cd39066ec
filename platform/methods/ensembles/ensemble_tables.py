"""What the report of a search for an ensemble reads: its tables, and what they say of its members.

Errors, PPD (pairwise predictive disagreement) and ECE (expected calibration error) are fractions, losses nats.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run

SEARCH, SUPERNET, POSTERIOR_LEARNT = "search", "supernet", "posterior"  # stages
ENSEMBLE = "ensemble.json"  # of the final stage: the measures of the ensemble and of its members
POSTERIOR = "posterior.json"
MEMBERS = "members.parquet"  # of the search: a row per sampled member, with its error by shared weights
METRICS = ("validation_loss", "validation_error")  # the first that is known ranks the sampled ensembles


def found_members(run: Run[Any]) -> list[str]:
    """The members of the found ensemble; none before the search has ended."""
    return list((run.found or {}).get("members", ()))


def trained_models(run: Run[Any]) -> pd.DataFrame:
    """A row of the ensemble, then one per member: `kind`, `name`, `architecture`, `test_error`, `nll`, `ece`, and of
    the ensemble `ate` (average test error of its members) and `ppd`. Empty before they are trained."""
    measured = run.document("final", ENSEMBLE)
    if measured is None:
        return pd.DataFrame()
    names = {"test_error": "test_error", "nll": "test_nll", "ece": "ece"}
    size = len(measured["members"])
    own = {"kind": "ensemble", "name": f"ensemble of {size}", "ate": measured["ate"], "ppd": measured["ppd"]}
    rows = [own | {name: measured[key] for name, key in names.items()}]
    for number, member in enumerate(measured["members"], start=1):
        described = {"kind": "member", "name": f"member {number}", "architecture": member.get("architecture")}
        rows.append(described | {name: member[key] for name, key in names.items()})
    return pd.DataFrame(rows)


def sampled_ensembles(run: Run[Any]) -> pd.DataFrame:
    """A row per sampled ensemble of every repeat, in order; empty where none has a finite loss or error.

    Columns: `repeat`, `sampler`, `evaluations` (of this repeat until then, from 1), `delta` (NaN for a sampler
    without), `temperature`, `members` (a tuple), `validation_loss`, `validation_error` (NaN of a failure), `failure`.
    """
    frame = run.pooled(SEARCH, TRIALS)
    reasons = failures(frame)
    rows = pd.DataFrame(
        {
            "repeat": frame["repeat"],
            "sampler": frame.get("sampler"),
            "members": [tuple(map(str, members)) for members in frame.get("members", [()] * len(frame))],
            "failure": reasons,
            **{name: numbers(frame, name) for name in ("delta", "temperature")},
            **{name: numbers(frame, name).where(reasons.isna()) for name in METRICS},
        },
        index=frame.index,
    )
    if not rows[list(METRICS)].notna().any(axis=None):
        return pd.DataFrame()
    return rows.assign(evaluations=rows.groupby("repeat", sort=False).cumcount() + 1)


def known_metrics(sampled: pd.DataFrame) -> list[str]:
    """The metrics with a value; the first ranks the ensembles."""
    return [name for name in METRICS if sampled[name].notna().any()]


def chosen_ensemble(run: Run[Any], sampled: pd.DataFrame) -> int | None:
    """The row of the ensemble that the run chose, the best and the first of equals; None if it was not sampled."""
    members = sorted(found_members(run.best))
    if not members or sampled.empty:
        return None
    own = sampled[[sorted(row) == members for row in sampled["members"]]]
    values = own[known_metrics(sampled)[0]].dropna()
    return int(values.index[int(values.to_numpy().argmin())]) if len(values) else None


def estimates(run: Run[Any]) -> pd.DataFrame:
    """Validation errors with shared weights beside test errors after training: `name`, `estimated`, `true`, a row per
    trained member. Empty without shared weights, or before the ensemble is trained."""
    shared, measured = run.table(SEARCH, MEMBERS), run.document("final", ENSEMBLE)
    if measured is None or shared.empty:
        return pd.DataFrame()
    errors = dict(zip(shared["architecture"], shared["error"], strict=True))
    members = pd.DataFrame(measured["members"])
    estimated = members["architecture"].map(errors)
    return pd.DataFrame({"name": members["architecture"], "estimated": estimated, "true": members["test_error"]})
