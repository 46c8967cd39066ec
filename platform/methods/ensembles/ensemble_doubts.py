"""What a search for an ensemble did less well than its figures look, in sentences: its ELBO, its calibration."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from archray.platform.quantities import quantity_of, significant
from archray.platform.report.table_columns import finite_values
from archray.plurals import count

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
