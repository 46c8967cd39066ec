"""Tables of the study of validation sets, values over seeds, and the claims of Oymak et al. 2021 with verdicts."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.quantities import signed, significant, whole_number
from archray.platform.report.figures import NothingToDraw
from archray.platform.report.statistics import FAILS, HOLDS, Claim
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.validation_split.measures import Array, Interval, decay, growth, points_needed

MEASURES, SPECTRAL = "measures", "spectral"  # stages
MEASURES_TABLE, SPECTRAL_TABLE = "measures.parquet", "spectral.parquet"
DESIGNS = {  # of the table of spectral solutions, in words
    "gaussian": "low-rank form, Gaussian features",
    "activation": "low-rank form, activations",
    "kernels": "multiple kernels",
}


def rows_of(trials: pd.DataFrame) -> pd.DataFrame:
    """A row per trial and size of the validation set, with the trial's `parameters` and `seed`; failed trials none."""
    rows: list[dict[str, Any]] = []
    for trial in trials.to_dict("records"):
        whole = json.loads(trial["whole"])
        keys = {"parameters": int(trial["parameters"]), "seed": int(trial["seed"])}
        rows += [{**keys, **row, **whole} for row in json.loads(trial["rows"])]
    return pd.DataFrame(rows)


def measures_of(run: Run[Any]) -> pd.DataFrame:
    """Of all repeats, with a `repeat`, and `problem`, which tells seeds apart. Raises: NothingToDraw without a row."""
    return _with_problem(run, MEASURES, MEASURES_TABLE)


def spectral_of(run: Run[Any]) -> pd.DataFrame:
    """As `measures_of`, of the spectral solutions."""
    return _with_problem(run, SPECTRAL, SPECTRAL_TABLE)


def _with_problem(run: Run[Any], stage: str, name: str) -> pd.DataFrame:
    frame = run.pooled(stage, name)
    if frame.empty or "points" not in frame:
        raise NothingToDraw(f"the run has no table of its stage {stage}; understand split to its end")
    return frame.assign(problem=frame["repeat"].astype(str) + "-" + frame["seed"].astype(str))


def curves(frame: pd.DataFrame, column: str) -> tuple[list[int], Array]:
    """The sizes, and a row per problem of the column's values by size."""
    wide = frame.pivot_table(index="problem", columns="points", values=column)
    return [int(size) for size in wide.columns], wide.to_numpy(float)


def excess_by_parameters(run: Run[Any]) -> tuple[list[int], Mapping[int, Array]]:
    """The sizes, and by h the excess test losses, (problems, sizes)."""
    frame = measures_of(run)
    numbers = sorted(int(h) for h in frame["parameters"].unique())
    pairs = {h: curves(frame[frame["parameters"] == h], "excess") for h in numbers}
    return pairs[numbers[0]][0], {h: values for h, (_, values) in pairs.items()}


def needed_by_parameters(run: Run[Any]) -> dict[int, Interval]:
    """By h, the points from which on the median excess is within the tolerance."""
    sizes, excess = excess_by_parameters(run)
    return {h: points_needed(sizes, values, run.config.tolerance) for h, values in excess.items()}


def largest(run: Run[Any]) -> tuple[pd.DataFrame, int]:
    """The rows of `measures_of` with the largest h, and h."""
    frame = measures_of(run)
    h = int(frame["parameters"].max())
    return frame[frame["parameters"] == h], h


def decay_of(frame: pd.DataFrame, column: str, test_size: int) -> Interval:
    """The exponent of a column's mean over n = 1 / (1 / validation points + 1 / test points).

    Of two independent samples' means, whose distance it is, n is what counts: a finite test set is no expectation.
    """
    sizes, values = curves(frame, column)
    return decay([1 / (1 / size + 1 / test_size) for size in sizes], values)


def of_problems(frame: pd.DataFrame, column: str) -> np.ndarray:
    """One value per problem of what does not depend on the size of the validation set."""
    values: np.ndarray = frame.groupby("problem")[column].first().to_numpy(float)
    return values


def at_largest_size(frame: pd.DataFrame, column: str) -> np.ndarray:
    """One value per problem, at the largest size."""
    last: np.ndarray = frame[frame["points"] == frame["points"].max()].sort_values("problem")[column].to_numpy(float)
    return last


INTERPOLATES = 1e-3  # training loss below which a model fits its training set; the labels' variance is about 1
SLOWEST = -0.35  # exponent: -1/2, reduced by the heavy tails of single points
SAME = 1e-6  # largest difference of two solutions, relative to their largest weight

OPEN = "undecided"


def claims(run: Run[Any]) -> list[Claim]:
    """The claims that the run has tables of, in the order of the paper's abstract."""
    measured: list[Claim] = []
    for part in (_of_measures, _of_spectral):
        try:
            measured += part(run)
        except NothingToDraw:
            continue
    return measured


def _of_measures(run: Run[Any]) -> list[Claim]:
    frame, (most, h) = measures_of(run), largest(run)
    tolerance, tested = run.config.tolerance, run.config.problem.test_size
    training = float(frame["training_loss"].max())
    decays = [decay_of(most, column, tested) for column in ("loss_gap_sup", "gradient_gap_sup")]
    loss, gradient = (f"exponent {shown(exponent)}, h = {h}" for exponent in decays)
    excess = float(np.median(at_largest_size(most, "excess")))
    top = whole_number(frame["points"].max())
    gain = of_problems(most, "uniform") - at_largest_size(most, "selected_test_loss")
    better = f"lower in {int((gain > 0).sum())} of {count(len(gain), 'problem')}"
    exponent = growth(*excess_by_parameters(run), tolerance)
    return [
        Claim(
            "The training loss is 0 whatever the architecture, and selects none",
            f"largest training loss {significant(training)}",
            HOLDS if training < INTERPOLATES else FAILS,
        ),
        Claim(
            "The validation loss is within about n^(-1/2) of the test loss, for all architectures at once",
            loss,
            below(decays[0], SLOWEST),
        ),
        Claim("The hyper-gradient likewise", gradient, below(decays[1], SLOWEST)),
        Claim(
            "What the validation set selects comes near the best architecture",
            f"median excess test loss {100 * excess:.1f} % with {top} points, h = {h}",
            HOLDS if excess <= tolerance else FAILS,
        ),
        Claim(
            "It is better than equal weights",
            f"mean decrease of the test loss {_mean(gain)}; {better}",
            _positive(gain),
        ),
        Claim(
            "The validation points that suffice grow at most as h, up to logarithms",
            f"exponent {shown(exponent)}; {_needed(needed_by_parameters(run))}",
            OPEN if math.isnan(exponent.value) else below(exponent, 1.0),
        ),
    ]


def _of_spectral(run: Run[Any]) -> list[Claim]:
    measured = []
    for design, rows in spectral_of(run).groupby("design", sort=False):
        words = DESIGNS[str(design)]
        difference, steps = rows["difference"].max(), rows["ascent_steps"].median()
        limit = Claim(
            f"The spectral solution is the limit of gradient ascent ({words})",
            f"largest difference {significant(difference)} in {count(len(rows), 'comparison')}; ascent took "
            f"{whole_number(steps)} steps (median)",
            HOLDS if difference < SAME else FAILS,
        )
        if rows.get("spectral") is not None and rows["spectral"].notna().any():
            best = at_largest_size(rows, "best")
            excess = [at_largest_size(rows, name) / best - 1 for name in ("spectral", "descent")]
            spectral, descent = (float(np.median(values)) for values in excess)
            solution = Claim(
                f"And has near-minimal test loss ({words})",
                f"median excess {100 * spectral:.1f} %, of descent on the validation loss {100 * descent:.1f} %",
                HOLDS if spectral <= run.config.tolerance else FAILS,
            )
        else:
            cosine, alone = (at_largest_size(rows, name) for name in ("cosine", "cosine_single"))
            solution = Claim(
                f"And finds the teacher ({words})",
                f"cosine with the teacher {_mean(cosine)}; by training points alone {_mean(alone)}",
                HOLDS if cosine.mean() > 0.9 else FAILS,
            )
        measured += [limit, solution]
    return measured


def findings(run: Run[Any]) -> list[str]:
    """The points needed, and a sentence for each claim with its verdict; none before the first stage is done."""
    verdicts = [f"{claim.text}: {claim.verdict} ({claim.measure})" for claim in claims(run)]
    return [enough(run), *verdicts] if verdicts else []


def enough(run: Run[Any]) -> str:
    """When the validation data are enough, in a sentence."""
    try:
        needed = needed_by_parameters(run)
    except NothingToDraw:
        return "No size of a validation set has been measured yet."
    share = f"{100 * run.config.tolerance:g} %"
    return f"To come within {share} of the best architecture's test loss it took {_needed(needed)}."


def _needed(needed: dict[int, Interval]) -> str:
    return ", ".join(f"{points(interval)} for h = {h}" for h, interval in needed.items()) + " validation points"


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
    value, low, high = (signed(f"{number:.2f}") for number in interval)
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
