"""Tables of the study of validation sets, values over seeds, and verdicts on the claims of Oymak et al. 2021."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.methods.understanding.split.config import MEASURES, MEASURES_TABLE, SPECTRAL, SPECTRAL_TABLE
from archray.platform.quantities import signed, significant, whole_number
from archray.platform.report.figures import NothingToDraw
from archray.platform.report.statistics import FAILS, HOLDS, Claim
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.validation_split.measures import Array, Interval, decay, growth, points_needed

DESIGNS = {  # labels of the designs in the table of spectral solutions
    "gaussian": "low-rank form, Gaussian features",
    "activation": "low-rank form, activations",
    "kernels": "multiple kernels",
}


def rows_of(trials: pd.DataFrame) -> pd.DataFrame:
    """A row per trial and size of the validation set, with `parameters` and `seed`; failed trials have no rows."""
    rows: list[dict[str, Any]] = []
    for trial in trials.to_dict("records"):
        whole = json.loads(trial["whole"])
        keys = {"parameters": int(trial["parameters"]), "seed": int(trial["seed"])}
        rows += [{**keys, **row, **whole} for row in json.loads(trial["rows"])]
    return pd.DataFrame(rows)


def measures_of(run: Run[Any]) -> pd.DataFrame:
    """The measures of all repeats, with `repeat` and `problem` (repeat-seed). Raises: NothingToDraw without rows."""
    return _with_problem(run, MEASURES, MEASURES_TABLE)


def spectral_of(run: Run[Any]) -> pd.DataFrame:
    """As `measures_of`, for the spectral solutions."""
    return _with_problem(run, SPECTRAL, SPECTRAL_TABLE)


def _with_problem(run: Run[Any], stage: str, name: str) -> pd.DataFrame:
    frame = run.pooled(stage, name)
    if frame.empty or "points" not in frame:
        raise NothingToDraw(f"the run has no table of the stage {stage}. Resume it")
    return frame.assign(problem=frame["repeat"].astype(str) + "-" + frame["seed"].astype(str))


def curves(frame: pd.DataFrame, column: str) -> tuple[list[int], Array]:
    """The sizes, and the values of a column, (problems, sizes)."""
    wide = frame.pivot_table(index="problem", columns="points", values=column)
    return [int(size) for size in wide.columns], wide.to_numpy(float)


def excess_by_parameters(run: Run[Any]) -> tuple[list[int], Mapping[int, Array]]:
    """The sizes, and the excess test losses by h, (problems, sizes)."""
    frame = measures_of(run)
    numbers = sorted(int(h) for h in frame["parameters"].unique())
    pairs = {h: curves(frame[frame["parameters"] == h], "excess") for h in numbers}
    return pairs[numbers[0]][0], {h: values for h, (_, values) in pairs.items()}


def needed_by_parameters(run: Run[Any]) -> dict[int, Interval]:
    """The number of samples, by h, from which the median excess stays within the tolerance."""
    sizes, excess = excess_by_parameters(run)
    return {h: points_needed(sizes, values, run.config.tolerance) for h, values in excess.items()}


def largest(run: Run[Any]) -> tuple[pd.DataFrame, int]:
    """The rows of `measures_of` with the largest h, and h."""
    frame = measures_of(run)
    h = int(frame["parameters"].max())
    return frame[frame["parameters"] == h], h


def decay_of(frame: pd.DataFrame, column: str, test_size: int) -> Interval:
    """The exponent of a column's mean over n = 1 / (1 / validation samples + 1 / test samples).

    The distance between the means of two independent samples depends on this n, as the test set is also finite.
    """
    sizes, values = curves(frame, column)
    return decay([1 / (1 / size + 1 / test_size) for size in sizes], values)


def of_problems(frame: pd.DataFrame, column: str) -> np.ndarray:
    """One value per problem, for a column that does not depend on the size of the validation set."""
    values: np.ndarray = frame.groupby("problem")[column].first().to_numpy(float)
    return values


def at_largest_size(frame: pd.DataFrame, column: str) -> np.ndarray:
    """One value per problem, at the largest size."""
    last: np.ndarray = frame[frame["points"] == frame["points"].max()].sort_values("problem")[column].to_numpy(float)
    return last


INTERPOLATES = 1e-3  # training loss below which a model fits its training set; the labels' variance is about 1
SLOWEST = -0.35  # exponent: -1/2, weakened because of heavy-tailed losses of single samples
SAME = 1e-6  # largest difference of two solutions, relative to their largest weight

OPEN = "undecided"


def claims(run: Run[Any]) -> list[Claim]:
    """The claims for which the run has tables, in the order of the paper's abstract."""
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
            "The training loss is 0 for every architecture, so it cannot select one",
            f"largest training loss {significant(training)}",
            HOLDS if training < INTERPOLATES else FAILS,
        ),
        Claim(
            "The validation loss is within about n^(-1/2) of the test loss, uniformly over architectures",
            loss,
            below(decays[0], SLOWEST),
        ),
        Claim(
            "The hypergradient on validation data is within about n^(-1/2) of that on test data",
            gradient,
            below(decays[1], SLOWEST),
        ),
        Claim(
            "The architecture selected on validation data is close to the best one",
            f"median excess test loss {100 * excess:.1f} % with {top} samples, h = {h}",
            HOLDS if excess <= tolerance else FAILS,
        ),
        Claim(
            "The selected architecture is better than equal weights",
            f"mean decrease of the test loss {_mean(gain)}; {better}",
            _positive(gain),
        ),
        Claim(
            "The required number of validation samples grows at most linearly in h, up to logarithms",
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
                f"The spectral solution has near-minimal test loss ({words})",
                f"median excess {100 * spectral:.1f} %; of descent on the validation loss {100 * descent:.1f} %",
                HOLDS if spectral <= run.config.tolerance else FAILS,
            )
        else:
            cosine, alone = (at_largest_size(rows, name) for name in ("cosine", "cosine_single"))
            solution = Claim(
                f"The spectral solution finds the teacher ({words})",
                f"cosine with the teacher {_mean(cosine)}; with only training samples {_mean(alone)}",
                HOLDS if cosine.mean() > 0.9 else FAILS,
            )
        measured += [limit, solution]
    return measured


def findings(run: Run[Any]) -> list[str]:
    """The required samples, and a sentence per claim with its verdict; empty before the first stage has finished."""
    verdicts = [f"{claim.text}: {claim.verdict} ({claim.measure})" for claim in claims(run)]
    return [enough(run), *verdicts] if verdicts else []


def enough(run: Run[Any]) -> str:
    """The required number of validation samples, in a sentence."""
    try:
        needed = needed_by_parameters(run)
    except NothingToDraw:
        return "The study has no results yet."
    share = f"{100 * run.config.tolerance:g} %"
    return f"A test loss within {share} of the best architecture's required {_needed(needed)}."


def _needed(needed: dict[int, Interval]) -> str:
    return ", ".join(f"{points(interval)} for h = {h}" for h, interval in needed.items()) + " validation samples"


def points(interval: Interval) -> str:
    """`120 (90 to 160)`, `more than were measured`."""
    if math.isinf(interval.value):
        return "more than were measured"
    high = "∞" if math.isinf(interval.high) else whole_number(interval.high)
    return f"{whole_number(interval.value)} ({whole_number(interval.low)} to {high})"


def shown(interval: Interval) -> str:
    """`−0.48 (−0.52 to −0.44)`: a value and its interval."""
    if math.isnan(interval.value):
        return "unknown"
    value, low, high = (signed(f"{number:.2f}") for number in interval)
    return f"{value} ({low} to {high})"


def below(interval: Interval, bound: float) -> str:
    """The verdict on a value that is claimed to be at most the bound, by its interval."""
    return HOLDS if interval.high <= bound else FAILS if interval.low > bound else OPEN


def _positive(values: np.ndarray) -> str:
    """The verdict on a mean that is claimed to be positive, by two standard errors."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    mean = float(values.mean())
    return HOLDS if mean > 2 * error else FAILS if mean < -2 * error else OPEN


def _mean(values: Sequence[float] | np.ndarray) -> str:
    spread = f" ± {significant(np.std(values, ddof=1), 2)}" if len(values) > 1 else ""
    return f"{significant(np.mean(values))}{spread}"
