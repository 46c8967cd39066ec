"""What the report of a search for an ensemble reads: its tables, and what they say of its members.

Accuracies, PPD (pairwise predictive disagreement) and ECE (expected calibration error) are fractions, losses nats.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.quantities import quantity_of, signed, significant
from archray.platform.report.section import ShortNames, failures, finite_values, numbers, short_names
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.plurals import count

SEARCH, SUPERNET, POSTERIOR_LEARNT = "search", "supernet", "posterior"  # stages
ENSEMBLE = "ensemble.json"  # of the final stage: the measures of the ensemble and of its members
POSTERIOR = "posterior.json"
MEMBERS = "members.parquet"  # of the search: a row per sampled member, with `shared_loss`, `shared_accuracy`, `failure`
OF_EACH = ("test_accuracy", "test_nll", "ece")  # measures of the ensemble and of each member
OF_ENSEMBLE = ("members_test_accuracy", "ppd")  # and of the ensemble alone
METRICS = ("shared_loss", "shared_accuracy")  # the first that is known ranks the sampled ensembles


def found_members(run: Run[Any]) -> list[str]:
    """The members of the found ensemble; none before the search has ended."""
    return list((run.found or {}).get("members", ()))


def names_of(run: Run[Any]) -> ShortNames:
    """The names of the members found, then of those that were sampled or trained, the best alone first."""
    best = run.best
    alone, pool = run.pooled(SEARCH, MEMBERS), best.table("pool", TRIALS)
    sampled = [member for row in run.pooled(SEARCH, TRIALS).get("members", ()) for member in row]
    return short_names(run, (*_by(alone, "shared_accuracy"), *sampled, *_by(pool, "validation_accuracy")))


def _by(frame: pd.DataFrame, accuracy: str) -> list[str]:
    """The architectures of a table, that with the highest `accuracy` first."""
    if "architecture" not in frame:
        return []
    best = numbers(frame, accuracy).sort_values(ascending=False, kind="stable").index
    return list(frame["architecture"].reindex(best))


def trained_models(run: Run[Any]) -> pd.DataFrame:
    """A row of the ensemble, then one per member: `kind`, `name`, `architecture`, `test_accuracy`, `test_nll`, `ece`,
    and of the ensemble `members_test_accuracy` and `ppd`. Empty before they are trained."""
    measured = run.document("final", ENSEMBLE)
    if measured is None:
        return pd.DataFrame()
    size = len(measured["members"])
    own = {"kind": "ensemble", "name": f"ensemble of {size}", **{key: measured[key] for key in OF_ENSEMBLE}}
    rows = [own | {key: measured[key] for key in OF_EACH}]
    for number, member in enumerate(measured["members"], start=1):
        described = {"kind": "member", "name": f"member {number}", "architecture": member.get("architecture")}
        rows.append(described | {key: member[key] for key in OF_EACH})
    return pd.DataFrame(rows)


def sampled_ensembles(run: Run[Any]) -> pd.DataFrame:
    """A row per sampled ensemble of every repeat, in order; empty where none has a finite loss or accuracy.

    Columns: `repeat`, `sampler`, `evaluations` (of this repeat until then, from 1), `delta` (NaN for a sampler
    without), `temperature`, `members` (a tuple), `shared_loss`, `shared_accuracy` (NaN of a failure), `failure`.
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


def sampled_texts(sampled: pd.DataFrame, names: ShortNames) -> list[str]:
    """What each sampled ensemble says of itself where it is pointed at."""
    shown = {name: quantity_of(name) for name in known_metrics(sampled)}
    several = sampled["repeat"].nunique() > 1
    return [
        "\n".join(
            [
                f"ensemble {row['evaluations']}" + (f" of repeat {row['repeat']}" if several else ""),
                ", ".join(map(str, names.all_of(row["members"]))),
                *(f"{quantity.label} {quantity.show(row[name])}" for name, quantity in shown.items()),
                *([] if math.isnan(row["delta"]) else [f"δ = {signed(format(row['delta'], '.3g'))}"]),
            ]
        )
        for row in sampled.to_dict("records")
    ]


def chosen_ensemble(run: Run[Any], sampled: pd.DataFrame) -> int | None:
    """The row of the ensemble that the run chose, the best and the first of equals; None if it was not sampled."""
    members = sorted(found_members(run.best))
    if not members or sampled.empty:
        return None
    own = sampled[[sorted(row) == members for row in sampled["members"]]]
    values = own[known_metrics(sampled)[0]].dropna()
    return int(values.index[int(values.to_numpy().argmin())]) if len(values) else None


def estimates(run: Run[Any]) -> pd.DataFrame:
    """A row per trained member: `name`, `shared_accuracy` beside `test_accuracy` after training.

    Empty without shared weights, or before the ensemble is trained."""
    shared, measured = run.table(SEARCH, MEMBERS), run.document("final", ENSEMBLE)
    if measured is None or shared.empty:
        return pd.DataFrame()
    accuracies = dict(zip(shared["architecture"], shared["shared_accuracy"], strict=True))
    members = pd.DataFrame(measured["members"])
    estimated = members["architecture"].map(accuracies)
    tested = members["test_accuracy"]
    return pd.DataFrame({"name": members["architecture"], "shared_accuracy": estimated, "test_accuracy": tested})


# What a search for an ensemble did less well than its figures look, in sentences: its ELBO, its calibration.


_PART = 0.25  # of the epochs, whose ELBOs are averaged: that of one epoch is an estimate from a few draws
_LOST = 0.5  # of what the ELBO had gained: a loss of more is no noise of those estimates
# Our choice: above all networks on CIFAR-10 of Guo et al. 2017, Table 1, before they are calibrated (3.0 to 4.6 %), and
# below four of its five on CIFAR-100 (10.4 to 16.5 %), whose probabilities that paper sets out to mend.
POOR_ECE = 0.05
_ECE = quantity_of("ece")


def elbo_doubt(elbo: pd.Series) -> str | None:
    """That the ELBO fell where training was to raise it; None where it did not. elbo: by epoch, in order."""
    known = elbo.dropna()
    if len(known) < 2:
        return None
    part = max(1, round(_PART * len(known)))
    means = known.rolling(part).mean().dropna()
    first, last, highest = float(means.iloc[0]), float(means.iloc[-1]), float(means.max())
    over = f"means of {count(part, 'epoch')}" if part > 1 else f"in {count(len(known), 'epoch')}"
    if last < first:
        return (
            f"The ELBO fell from {significant(first)} to {significant(last)} ({over}), where training was to raise it: "
            "the posterior fits the data less well than the one it began with, and its probabilities mean little. Try "
            "a lower learning rate of the posterior, or more epochs."
        )
    if highest - last > _LOST * (highest - first):
        return (
            f"The ELBO was highest around epoch {means.idxmax():g}, {significant(highest)}, and has fallen to "
            f"{significant(last)} since ({over}): {100 * (highest - last) / (highest - first):.0f} % of what it had "
            "gained is lost again. Fewer epochs, or a lower learning rate of the posterior, would have kept it."
        )
    return None


def calibration_doubt(ece: pd.Series) -> str | None:
    """That the ensemble is poorly calibrated; None where it is not. ece: of the ensemble, then of its members."""
    own, members = float(ece.iloc[0]), finite_values(ece.iloc[1:])
    if math.isnan(own) or own < POOR_ECE:
        return None
    text = (
        f"The ensemble is poorly calibrated: its ECE is {_ECE.show(own)}, and from {100 * POOR_ECE:.0f} % on its "
        "probabilities should not be read as the chance to be right."
    )
    if members.size > 1 and own > members.mean():
        text += f" Averaging has not mended this: its members have {_ECE.show(float(np.mean(members)))} on average."
    return text
