"""Tables of a feature map search: accuracy by cost, comparison at equal cost (note W6), bounds of Theorem 3.1.

Khodak et al. 2020. A run in a comparison is a label and its `progress_of`. The caller ensures that all runs have the
same space, data set and machine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from archray.errors import InvalidInput
from archray.platform.quantities import MISSING, quantity_of, significant
from archray.platform.report.rounds import shown_candidates
from archray.platform.report.section import ShortNames, numbers, short_names
from archray.platform.run.layout import CURVES, PROGRESS, TRIALS
from archray.platform.run.run import Run
from archray.plurals import count

By = Literal["calls", "seconds"]

TEST = quantity_of("search_test_accuracy")

# A row per `bases` (`shared` or `independent`), `dimension` and `architecture`: the validation accuracies with shared
# weights (`shared_accuracy`) and with standalone weights (`standalone_accuracy`), fractions.
CORRELATION = "correlation.parquet"
LETTER = "F"  # letter of the short names of feature maps
_POINTS = 400  # maximal number of points of a curve; more are not visible


def progress_of(run: Run[Any]) -> pd.DataFrame:
    """A row per solver call of a search, in order, for all repeats; empty before the search has finished.

    Columns: `repeat`, `calls` (so far), `seconds` (so far, of featurizing, solving and scoring), `architecture` (the
    best so far), `dimension` (of this solve), `candidates` (that shared it), `score`, `search_test_accuracy` (of the
    best so far; for shared solves that of an oracle, a standalone solve at the full dimension; NaN if unknown), `final`
    (whether this is the last, standalone solve of the search).
    """
    repeats = []
    for number, repeat in enumerate(run.repeats or [run]):
        with_oracle = repeat.table("oracle", PROGRESS)
        progress = repeat.table("search", PROGRESS) if with_oracle.empty else with_oracle
        repeats.append(progress.assign(repeat=number))
    return pd.concat(repeats, ignore_index=True)


def names_of(run: Run[Any]) -> ShortNames:
    """Short names: selected maps, maps that were the best so far in a search, by accuracy, and maps in rounds."""
    progress = progress_of(run)
    best = numbers(progress, "search_test_accuracy").sort_values(ascending=False, kind="stable").index
    held = progress["architecture"].reindex(best) if "architecture" in progress else ()
    return short_names(run, (*held, *shown_candidates(run)), LETTER)


@dataclass(frozen=True)
class AccuracyCurve:
    """The mean over repeats as a step curve; `mean` is constant from each `x` to the next."""

    x: np.ndarray  # (k,) ascending calls or seconds, from the last repeat's start to the last repeat's end
    mean: np.ndarray  # (k,) fractions
    deviation: np.ndarray  # (k,); NaN for a single repeat
    curves: np.ndarray  # (repeats, k) the curves of the repeats

    @property
    def repeats(self) -> int:
        return len(self.curves)


def by_repeat(progress: pd.DataFrame) -> list[tuple[object, pd.DataFrame]]:
    """The repeats of a progress table, each with its rows in the order of the solver calls."""
    if progress.empty:
        return []
    ordered = progress.sort_values("calls", kind="stable") if "calls" in progress else progress
    return list(ordered.groupby("repeat")) if "repeat" in ordered else [(0, ordered)]


def last_rows(progress: pd.DataFrame) -> pd.DataFrame:
    """A row per repeat: its last solver call, with the selected map."""
    return pd.DataFrame([rows.iloc[-1] for _, rows in by_repeat(progress)]).reset_index(drop=True)


def found_repeat(run: Run[Any], progress: pd.DataFrame) -> tuple[object, pd.DataFrame]:
    """The number and the rows (indexed from 0) of the first repeat that selected the map of the run, or of the first.

    progress: the run's `progress_of`, with at least one row.
    """
    repeats = [(repeat, rows.reset_index(drop=True)) for repeat, rows in by_repeat(progress)]
    architecture = run.best.architecture
    endings = [(repeat, rows) for repeat, rows in repeats if map_in(rows, len(rows) - 1) == architecture]
    return (endings or repeats)[0]


def map_in(frame: pd.DataFrame, row: int) -> str | None:
    name = frame["architecture"][row] if "architecture" in frame else None
    return name if isinstance(name, str) else None


def shares_solves(progress: pd.DataFrame) -> bool:
    """Whether several feature maps shared some solve, as in halving."""
    return bool((numbers(progress, "candidates") > 1).any())


def total(progress: pd.DataFrame, by: By) -> float:
    """The solver calls or seconds after which every repeat has finished; NaN if unknown."""
    return float(numbers(progress, by).max())


def accuracies_at(progress: pd.DataFrame, by: By, x: np.ndarray) -> np.ndarray:
    """The test accuracy of each repeat at each `x`, (repeats, len(x)) fractions; NaN before the first value.

    A row without an accuracy keeps the last value, and so does a finished repeat.
    """
    rows = []
    for _, frame in by_repeat(progress):
        at, accuracy = numbers(frame, by).to_numpy(), numbers(frame, "search_test_accuracy").to_numpy()
        finite = np.isfinite(at) & np.isfinite(accuracy)
        at, accuracy = at[finite], accuracy[finite]
        place = np.searchsorted(at, x, side="right")  # (len(x),) number of steps at or before each x
        rows.append(np.concatenate([[np.nan], accuracy])[place])
    return np.array(rows) if rows else np.empty((0, len(x)))


def accuracy_at(progress: pd.DataFrame, by: By = "calls", x: float = math.inf) -> tuple[float, float, int]:
    """Mean and standard deviation of the test accuracy over repeats after `x` solver calls or seconds.

    The default is the end of each repeat. Repeats without an accuracy are ignored.

    Returns: mean (a fraction; NaN without a repeat), standard deviation (NaN with fewer than two), number of repeats.
    """
    accuracies = accuracies_at(progress, by, np.array([x], dtype=float))[:, 0]
    accuracies = accuracies[np.isfinite(accuracies)]
    mean, deviation = _mean(accuracies[:, None])
    return float(mean[0]), float(deviation[0]), accuracies.size


def with_deviation(mean: float, deviation: float) -> str:
    """A test accuracy and its standard deviation: `96.79 ± 0.10 %`; only the mean for a single repeat."""
    if not math.isfinite(deviation):
        return TEST.show(mean)
    return f"{TEST.bare(mean)} ± {TEST.bare(deviation)} {TEST.unit}"


def accuracy_curve(progress: pd.DataFrame, by: By) -> AccuracyCurve | None:
    """The mean over repeats on a grid of all their steps, without repeats that have no accuracy.

    None without a test accuracy, or without an x at which all other repeats have one.
    """
    x = _steps(progress, by)
    if x.size == 0:
        return None
    x = np.unique(np.append(x, total(progress, by)))
    accuracies = accuracies_at(progress, by, x)  # (repeats, k)
    accuracies = accuracies[np.isfinite(accuracies[:, -1])]
    complete = np.isfinite(accuracies).all(axis=0)
    x, accuracies = x[complete], accuracies[:, complete]
    if x.size > _POINTS:
        places = np.linspace(0, x.size - 1, _POINTS).round().astype(int)
        x, accuracies = x[places], accuracies[:, places]
    mean, deviation = _mean(accuracies)
    return AccuracyCurve(x, mean, deviation, accuracies)


def reaches(progress: pd.DataFrame, accuracy: float, by: By) -> float:
    """The solver calls or seconds from which the mean over repeats stays at or above `accuracy`; NaN if never."""
    x = _steps(progress, by)
    if x.size == 0:
        return math.nan
    good = accuracies_at(progress, by, x).mean(axis=0) >= accuracy  # if a repeat has no value yet, the mean is NaN
    if not good[-1]:
        return math.nan
    late = np.flatnonzero(~good)
    return float(x[late[-1] + 1] if late.size else x[0])


def _steps(progress: pd.DataFrame, by: By) -> np.ndarray:
    """All x at which the test accuracy of a repeat may change, ascending."""
    x, accuracy = numbers(progress, by).to_numpy(), numbers(progress, "search_test_accuracy").to_numpy()
    return np.unique(x[np.isfinite(x) & np.isfinite(accuracy)])


def _mean(accuracies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of (repeats, k) finite values, each (k,)."""
    count, size = accuracies.shape
    if count == 0:
        return np.full(size, np.nan), np.full(size, np.nan)
    spread = accuracies.std(axis=0, ddof=1) if count > 1 else np.full(size, np.nan)
    return accuracies.mean(axis=0), spread


Progress = tuple[str, pd.DataFrame]

RUN, END, REACHED = "run", "at the end", "to random search's accuracy"
_ACCURACY = ("mean", "standard deviation", "repeats")  # the columns of an accuracy


def is_random_search(progress: pd.DataFrame) -> bool:
    """Whether every solver call is a full solve of one feature map."""
    return _of_one_size(progress) and not shares_solves(progress)


def comparable_by_calls(progress: pd.DataFrame) -> bool:
    """Whether the solver calls of a run are full solves, shared or not, and so comparable with other runs (note W6).

    Halving with a growing dimension is comparable. Other methods have many more and smaller solves.
    """
    return _of_one_size(progress) or shares_solves(progress)


def growing(progress: pd.DataFrame) -> bool:
    """Whether solves are shared and later ones have more features, as in fast halving."""
    return shares_solves(progress) and not _of_one_size(progress)


def _of_one_size(progress: pd.DataFrame) -> bool:
    return bool(numbers(progress, "dimension").nunique() == 1)


def comparison_table(runs: Sequence[Progress]) -> pd.DataFrame:
    """A row per run. Test accuracies are fractions; NaN if a run has none or is not comparable.

    Columns, in two levels:
        `run`: `solver calls` and `seconds`, means over the repeats, and the number of `repeats`.
        `at N solver calls`, for a quarter of the calls of random search, and for the fewest calls of a comparable run,
        `at N s`, for the times in which all repeats of the fastest run and of random search finish,
        `at the end`: the `mean` and `standard deviation` over the repeats with a value at this point, and their number
        `repeats`.
        `to random search's accuracy`: the `solver calls` and `seconds` from which the mean stays at or above the final
        accuracy of random search; only with a single run of random search.

    Raises: InvalidInput without runs, or with a duplicate label.
    """
    labels = [label for label, _ in runs]
    if not labels:
        raise InvalidInput("expected one or more runs to compare, got none. Pass the folder of a run")
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise InvalidInput(f"expected a distinct label for each run, got duplicates: {', '.join(sorted(twice))}")
    calls, seconds, reference = calls_compared(runs), seconds_compared(runs), reference_accuracy(runs)
    rows: list[dict[tuple[str, str], float]] = []
    for _, progress in runs:
        last = last_rows(progress)
        counted = progress if comparable_by_calls(progress) else progress.head(0)
        row: dict[tuple[str, str], float] = {
            (RUN, "solver calls"): float(numbers(last, "calls").mean()),
            (RUN, "seconds"): float(numbers(last, "seconds").mean()),
            (RUN, "repeats"): len(last),
        }
        for number in calls:
            row |= _cells(f"at {count(number, 'solver call')}", accuracy_at(counted, "calls", number))
        for second in seconds:
            row |= _cells(f"at {significant(second)} s", accuracy_at(progress, "seconds", second))
        row |= _cells(END, accuracy_at(progress))
        if reference is not None:
            row[REACHED, "solver calls"] = reaches(counted, reference, "calls")
            row[REACHED, "seconds"] = reaches(progress, reference, "seconds")
        rows.append(row)
    columns = pd.MultiIndex.from_tuples(list(rows[0]))
    return pd.DataFrame([list(row.values()) for row in rows], labels, columns, dtype=float)


def written(comparison: pd.DataFrame) -> pd.DataFrame:
    """A comparison table as text, a column per comparison: `96.79 ± 0.10` in percent, a dash without a value.

    If only some repeats have an accuracy: `96.79 ± 0.10 (7 of 10)`.
    """
    columns: dict[str, list[str]] = {}
    for name in dict.fromkeys(comparison.columns.get_level_values(0)):
        part = comparison[name]
        if name in (RUN, REACHED):
            end = "" if name == RUN else f" {name}"
            columns |= {f"{heading}{end}": [_short(value) for value in part[heading]] for heading in part}
        else:
            cells = zip(*(part[key] for key in _ACCURACY), comparison[RUN, "repeats"], strict=True)
            columns[f"{name} (%)"] = [_accuracy(*cell) for cell in cells]
    return pd.DataFrame(columns, index=comparison.index)


def reference_accuracy(runs: Sequence[Progress]) -> float | None:
    """The mean final test accuracy of random search; None without exactly one such run with an accuracy."""
    searches = _random_searches(runs)
    if len(searches) != 1:
        return None
    mean, _, repeats = accuracy_at(searches[0])
    return mean if repeats else None


def calls_compared(runs: Sequence[Progress]) -> list[int]:
    """Numbers of solver calls for comparisons, ascending; empty with fewer than two comparable runs."""
    totals = _totals([progress for _, progress in runs if comparable_by_calls(progress)], "calls")
    if len(totals) < 2:
        return []
    quarters = [calls // 4 for calls in _totals(_random_searches(runs), "calls") if calls >= 4]
    return sorted({int(calls) for calls in (*quarters, min(totals))})


def seconds_compared(runs: Sequence[Progress]) -> list[float]:
    """Seconds for comparisons, ascending, rounded up to three digits."""
    totals = _totals([progress for _, progress in runs], "seconds")
    if len(totals) < 2:
        return []
    return sorted({_rounded_up(seconds) for seconds in (*_totals(_random_searches(runs), "seconds"), min(totals))})


def _random_searches(runs: Sequence[Progress]) -> list[pd.DataFrame]:
    return [progress for _, progress in runs if is_random_search(progress)]


def _totals(tables: Sequence[pd.DataFrame], by: By) -> list[float]:
    """The known and positive totals."""
    totals = [total(progress, by) for progress in tables]
    return [value for value in totals if math.isfinite(value) and value > 0]


def _rounded_up(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.6g}")


def _cells(name: str, accuracy: tuple[float, float, int]) -> dict[tuple[str, str], float]:
    return {(name, part): value for part, value in zip(_ACCURACY, accuracy, strict=True)}


def _accuracy(mean: float, deviation: float, number: float, repeats: float) -> str:
    if not number:
        return MISSING
    text = with_deviation(mean, deviation).removesuffix(f" {TEST.unit}")
    return text if number == repeats else f"{text} ({number:.0f} of {repeats:.0f})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value == round(value, 0) and value < 1e6 else significant(value)


# Bounds: Theorem 3.1 of Khodak et al. 2020, and its corollaries' rates.

DELTA = 0.05  # each bound holds with probability 1 - DELTA over the validation samples; Theorem 3.1 has 1 - 3 DELTA


def gap_bound(bound: float, points: float, entropy: float, delta: float = DELTA) -> float:
    """B sqrt(2/|V| (entropy + log 1/delta)): the bound on the risk of a selection minus its validation loss.

    Step 1 in the proof of Theorem A.2. It holds for all hypotheses simultaneously, and so for any selection rule.

    Args:
        bound: B.
        points: |V|.
        entropy: log |C|; 0 without a selection.
        delta: probability that the bound fails.
    """
    return bound * math.sqrt(2 / points * (entropy + math.log(1 / delta))) if points > 0 else math.inf


def hoeffding_bound(bound: float, points: float, entropy: float, delta: float = DELTA) -> float:
    """B sqrt((entropy + log 1/delta) / (2 |V|)): Hoeffding's inequality for each of |C| fixed hypotheses.

    Half of `gap_bound`, whose constant comes from a covering argument that a finite set does not need.
    """
    return gap_bound(bound, points, entropy, delta) / 2


def selection_bound(bound: float, points: float, entropy: float, delta: float = DELTA) -> float:
    """(3B/2) sqrt(2/|V| (entropy + log 1/delta)): the bound on a selection's risk minus that of the best candidate.

    The last term of Theorem 3.1: `gap_bound`, plus half of it for the validation loss of the best candidate (step 3 of
    the proof). Step 2 assumes that the lowest validation loss of exact solutions is selected.
    """
    return 1.5 * gap_bound(bound, points, entropy, delta)


def rounds_entropy(candidates: int, left: int) -> float:
    """log of (|C| choose |C_t|) |C_t|: the hypotheses that a round of halving can select with reused samples.

    In earlier rounds, the same validation samples selected the |C_t| of |C| candidates that share the weights.
    """
    return math.lgamma(candidates + 1) - math.lgamma(left + 1) - math.lgamma(candidates - left + 1) + math.log(left)


def weights_rate(weight_norm: float, train_points: float, delta: float = DELTA) -> float:
    """sqrt((||w||^2 + 1)/|T| log 1/delta): the first term of Corollary 3.1 (A.1) without its constant."""
    return math.sqrt((weight_norm**2 + 1) / train_points * math.log(1 / delta))


def kernel_rate(train_points: float, delta: float = DELTA) -> float:
    """log^2(1/delta) / sqrt(|T|): the first term of Corollary 3.2, without its constant."""
    return math.log(1 / delta) ** 2 / math.sqrt(train_points)


def validation_rate(points: float, candidates: int, delta: float = DELTA) -> float:
    """sqrt(1/|V| log((|C| + 1)/delta)): the second term of both corollaries (A.2 and A.3) without its constant."""
    return math.sqrt(math.log((candidates + 1) / delta) / points)


LOSSES = ("error", "clipped")  # 0-1 loss, and the solver's loss of clipped decision values


def selection_gaps(run: Run[Any]) -> pd.DataFrame:
    """A row per loss and solve that selected a map, for all repeats in the order of rounds. Empty without test samples.

    Columns: `repeat`, `round` (of halving, from 1; otherwise 1), `shared` (whether the candidates shared the weights),
    `winner` (whether it is the result of the search), `loss` (of LOSSES), `B`, `candidates` (|C|; for the winner all
    candidates of the search), `points` (|V|: validation samples of the score), `test_points`, `train_points`,
    `weight_norm`, `validation`, `test` (mean losses), `gap` (test - validation), `bound` (`gap_bound` with log |C|),
    `hoeffding`, `alone` (`gap_bound` of a single candidate), `reused` (`gap_bound` if earlier rounds used the same
    samples), `selection` (`selection_bound`).
    """
    rows = []
    for number, repeat in enumerate(run.repeats or [run]):
        for solve in _solves(repeat.table("search", TRIALS), repeat.table("search", CURVES), run.config.mode):
            rows += [{"repeat": number, **row} for row in _losses(solve)]
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class _Solve:
    """A solve that selected one of `candidates` hypotheses. columns: the results of the trial."""

    number: int
    shared: bool
    winner: bool
    candidates: int
    entropy_reused: float
    columns: dict[Any, Any]


def _solves(trials: pd.DataFrame, curves: pd.DataFrame, mode: str) -> list[_Solve]:
    """The solves of a search; empty without leaders in its tables, or without test samples."""
    if "leader" not in trials:
        return []
    left = numbers(trials, "candidates_left")
    if not (left > 1).any():
        return _standalone(curves, mode)
    most, solves = int(left.max()), []
    for columns in trials.assign(left=left).sort_values(["round", "trial_id"]).to_dict("records"):
        if columns["left"] >= 1:
            shared = columns["left"] > 1
            size = int(columns["left"]) if shared else most
            reused = rounds_entropy(most, size) if shared else math.log(most)
            solves.append(_Solve(int(columns["round"]), shared, not shared, size, reused, columns))
    return solves


def _standalone(curves: pd.DataFrame, mode: str) -> list[_Solve]:
    """The best solve of a search without shared solves; the hypotheses are all pairs of maps and dimensions."""
    score = numbers(curves, "score")
    if not score.notna().any():
        return []
    best = curves.iloc[int(np.nanargmin(score) if mode == "min" else np.nanargmax(score))].to_dict()
    hypotheses = curves["architecture"].nunique() * curves["dimension"].nunique()
    return [_Solve(1, False, True, hypotheses, math.log(hypotheses), best)]


def _losses(solve: _Solve) -> list[dict[str, Any]]:
    """A row per loss with values."""
    columns, rows = solve.columns, []
    for loss in LOSSES:
        validation, test = (float(columns.get(f"leader_{part}_{loss}", math.nan)) for part in ("validation", "test"))
        if not (math.isfinite(validation) and math.isfinite(test)):
            continue
        largest = 1.0 if loss == "error" else float(columns["loss_bound"])
        points, entropy = float(columns["leader_points"]), math.log(solve.candidates)
        rows.append(
            {
                "round": solve.number,
                "shared": solve.shared,
                "winner": solve.winner,
                "loss": loss,
                "B": largest,
                "candidates": solve.candidates,
                "points": points,
                **{name: float(columns[name]) for name in ("test_points", "train_points", "weight_norm")},
                "validation": validation,
                "test": test,
                "gap": test - validation,
                "bound": gap_bound(largest, points, entropy),
                "hoeffding": hoeffding_bound(largest, points, entropy),
                "alone": gap_bound(largest, points, 0.0),
                "reused": gap_bound(largest, points, solve.entropy_reused),
                "selection": selection_bound(largest, points, entropy),
            }
        )
    return rows


def excess_errors(run: Run[Any]) -> pd.DataFrame:
    """A row per repeat: the winner's test error minus the lowest among maps with standalone solves at its dimension.

    Columns: `repeat`, `excess` (0-1), `known` (maps with standalone solves in the search or the oracle stage), `of`
    (all candidates). Halving has standalone solves only for the leaders of rounds, so the true excess can be larger.
    """
    rows = []
    for number, repeat in enumerate(run.repeats or [run]):
        trials, curves = repeat.table("search", TRIALS), repeat.table("search", CURVES)
        winners = [solve for solve in _solves(trials, curves, run.config.mode) if solve.winner]
        if not winners:
            continue
        winner = winners[0].columns
        alone = [frame for frame in (curves, repeat.table("oracle", TRIALS)) if "test_accuracy" in frame]
        solved = pd.concat([frame[["architecture", "dimension", "test_accuracy"]] for frame in alone])
        solved = solved[(solved["dimension"] == winner["dimension"]) & solved["test_accuracy"].notna()]
        accuracy = float(winner["test_accuracy"])
        best = float(np.nanmax([accuracy, *solved["test_accuracy"]]))
        maps = {*solved["architecture"].dropna(), winner["leader"]}
        rows.append({"repeat": number, "excess": best - accuracy, "known": len(maps), "of": winners[0].candidates})
    return pd.DataFrame(rows)
