"""What the study concludes: claims on validation sets, each with the numbers that decide it here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archray.platform.methods.understanding.split.split_tables import (
    DESIGNS,
    at_largest_size,
    decay_of,
    growth_of,
    largest,
    measures_of,
    needed_by_parameters,
    of_problems,
    spectral_of,
)
from archray.platform.quantities import significant, whole_number
from archray.platform.report.figures import NothingToDraw
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.validation_split.points_needed import Interval

INTERPOLATES = 1e-3  # training loss, beside labels of variance about 1, below which a model fits its training set
SLOWEST = -0.35  # exponent: -1/2, and what heavy tails of single points take from it
SAME = 1e-6  # largest difference of two solutions, relative to their largest weight

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"


@dataclass(frozen=True)
class Claim:
    """A claim, what was measured of it, and whether it holds here."""

    claim: str
    measured: str
    verdict: str


def claims(run: Run[Any]) -> list[Claim]:
    """Those of which the run has the tables, in the order of the paper's abstract."""
    made: list[Claim] = []
    for part in (_of_measures, _of_spectral):
        try:
            made += part(run)
        except NothingToDraw:
            continue
    return made


def _of_measures(run: Run[Any]) -> list[Claim]:
    frame = measures_of(run)
    most = largest(frame)
    h, tolerance, tested = int(most["parameters"].iloc[0]), run.config.tolerance, run.config.problem.test_size
    top = whole_number(frame["points"].max())
    training = float(frame["training_loss"].max())
    excess = at_largest_size(most, "excess")
    gain = of_problems(most, "uniform") - at_largest_size(most, "selected_test_loss")
    exponent = growth_of(run)
    made = [
        Claim(
            "The training loss is 0 whatever the architecture, and selects none",
            f"largest training loss {significant(training)}",
            HOLDS if training < INTERPOLATES else FAILS,
        ),
        *(
            Claim(text, f"exponent {shown(of)}, h = {h}", below(of, SLOWEST))
            for text, of in (
                (
                    "The validation loss is within about n^(-1/2) of the test loss, for all architectures at once",
                    decay_of(most, "loss_gap_sup", tested),
                ),
                ("The hyper-gradient likewise", decay_of(most, "gradient_gap_sup", tested)),
            )
        ),
        Claim(
            "What the validation set selects comes near the best architecture",
            f"median excess test loss {100 * float(np.median(excess)):.1f} % with {top} points, h = {h}",
            HOLDS if np.median(excess) <= tolerance else FAILS,
        ),
        Claim(
            "It is better than equal weights",
            f"mean decrease of the test loss {_mean(gain)}; lower in {int((gain > 0).sum())} of "
            f"{count(len(gain), 'problem')}",
            _positive(gain),
        ),
        Claim(
            "The validation points that suffice grow at most as h, up to logarithms",
            f"exponent {shown(exponent)}; {_needed(needed_by_parameters(run))}",
            OPEN if math.isnan(exponent.value) else below(exponent, 1.0),
        ),
    ]
    return made


def _of_spectral(run: Run[Any]) -> list[Claim]:
    frame = spectral_of(run)
    made = []
    for design, rows in frame.groupby("design", sort=False):
        words = DESIGNS[str(design)]
        difference, steps = rows["difference"].max(), rows["ascent_steps"].median()
        made.append(
            Claim(
                f"The spectral solution is the limit of gradient ascent ({words})",
                f"largest difference {significant(difference)} in {count(len(rows), 'comparison')}; ascent took "
                f"{whole_number(steps)} steps (median)",
                HOLDS if difference < SAME else FAILS,
            )
        )
        if rows.get("spectral") is not None and rows["spectral"].notna().any():
            best = at_largest_size(rows, "best")
            spectral, descent = (
                float(np.median(at_largest_size(rows, name) / best - 1)) for name in ("spectral", "descent")
            )
            made.append(
                Claim(
                    f"And has near-minimal test loss ({words})",
                    f"median excess {100 * spectral:.1f} %, of descent on the validation loss {100 * descent:.1f} %",
                    HOLDS if spectral <= run.config.tolerance else FAILS,
                )
            )
        else:
            cosine, alone = (at_largest_size(rows, name) for name in ("cosine", "cosine_single"))
            made.append(
                Claim(
                    f"And finds the teacher ({words})",
                    f"cosine with the teacher {_mean(cosine)}; by training points alone {_mean(alone)}",
                    HOLDS if cosine.mean() > 0.9 else FAILS,
                )
            )
    return made


def findings(run: Run[Any]) -> list[str]:
    """The points needed, and the claims with their verdicts, a sentence each; none before a stage has ended."""
    made = [f"{claim.claim}: {claim.verdict} ({claim.measured})" for claim in claims(run)]
    return [enough(run), *made] if made else []


def enough(run: Run[Any]) -> str:
    """When the validation data are enough, in a sentence."""
    try:
        needed = needed_by_parameters(run)
    except NothingToDraw:
        return "No size of a validation set has been measured yet."
    share = f"{100 * run.config.tolerance:g} %"
    return f"To come within {share} of the best architecture's test loss it took {_needed(needed)}."


def _needed(needed: dict[int, Interval]) -> str:
    return ", ".join(f"{points(of)} for h = {h}" for h, of in needed.items()) + " validation points"


def points(interval: Interval) -> str:
    """`120 (90 to 160)`, `more than there were`."""
    if math.isinf(interval.value):
        return "more than were measured"
    high = "∞" if math.isinf(interval.high) else whole_number(interval.high)
    return f"{whole_number(interval.value)} ({whole_number(interval.low)} to {high})"


def shown(interval: Interval) -> str:
    """`−0.48 (−0.52 to −0.44)`: a value and its interval."""
    if math.isnan(interval.value):
        return "not known"
    value, low, high = (f"{number:.2f}".replace("-", "\N{MINUS SIGN}") for number in interval)
    return f"{value} ({low} to {high})"


def below(interval: Interval, bound: float) -> str:
    """Whether a value is at most the bound, as far as its interval tells."""
    return HOLDS if interval.high <= bound else FAILS if interval.low > bound else OPEN


def _positive(values: np.ndarray) -> str:
    """Whether the mean over problems is above 0 by two standard errors, or below."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    mean = float(values.mean())
    return HOLDS if mean > 2 * error else FAILS if mean < -2 * error else OPEN


def _mean(values: Sequence[float] | np.ndarray) -> str:
    spread = f" ± {significant(np.std(values, ddof=1), 2)}" if len(values) > 1 else ""
    return f"{significant(np.mean(values))}{spread}"
