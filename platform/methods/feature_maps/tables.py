"""Tables of a feature map search: accuracy over cost, comparison at equal cost (note W6), bounds of Theorem 3.1.

Khodak et al. 2020. A run of a comparison is a label and its `progress_of`, which also describes its solver calls. The
caller makes sure that runs are of one space, one data set and one machine.
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
# weights, `shared_accuracy`, and solved for alone, `standalone_accuracy`; fractions.
CORRELATION = "correlation.parquet"
LETTER = "F"  # of the short names of feature maps
_POINTS = 400  # of a curve: steps finer than this are not seen


def progress_of(run: Run[Any]) -> pd.DataFrame:
    """A row per solver call of a search, in order, of all repeats; no row before the search has ended.

    Columns: `repeat`, `calls` (so far), `seconds` (so far, of featurising, solving and scoring), `architecture` (the
    best so far), `dimension` (of this solve), `candidates` (that shared it), `score`, `search_test_accuracy` (of the
    best so far; where solves are shared that of an oracle, which solves for it alone at the full dimension; NaN if not
    known), `final` (whether this is the standalone solve that ends the search).
    """
    repeats = []
    for number, repeat in enumerate(run.repeats or [run]):
        with_oracle = repeat.table("oracle", PROGRESS)
        progress = repeat.table("search", PROGRESS) if with_oracle.empty else with_oracle
        repeats.append(progress.assign(repeat=number))
    return pd.concat(repeats, ignore_index=True)


def names_of(run: Run[Any]) -> ShortNames:
    """Short names: the maps found, those that were the best so far in a search, by accuracy, and those in rounds."""
    progress = progress_of(run)
    best = numbers(progress, "search_test_accuracy").sort_values(ascending=False, kind="stable").index
    held = progress["architecture"].reindex(best) if "architecture" in progress else ()
    return short_names(run, (*held, *shown_candidates(run)), LETTER)


@dataclass(frozen=True)
class AccuracyCurve:
    """The mean over repeats as a step curve: from each `x` on to the next, `mean` holds."""

    x: np.ndarray  # (k,) ascending calls or seconds, from the last repeat's start to the last repeat's end
    mean: np.ndarray  # (k,) fractions
    deviation: np.ndarray  # (k,); NaN for a single repeat
    curves: np.ndarray  # (repeats, k) the curves that the mean is over

    @property
    def repeats(self) -> int:
        return len(self.curves)


def by_repeat(progress: pd.DataFrame) -> list[tuple[object, pd.DataFrame]]:
    """The repeats of a progress table, each with its rows in the order of its solver calls."""
    if progress.empty:
        return []
    ordered = progress.sort_values("calls", kind="stable") if "calls" in progress else progress
    return list(ordered.groupby("repeat")) if "repeat" in ordered else [(0, ordered)]


def last_rows(progress: pd.DataFrame) -> pd.DataFrame:
    """A row per repeat: its last solver call, with what the search chose."""
    return pd.DataFrame([rows.iloc[-1] for _, rows in by_repeat(progress)]).reset_index(drop=True)


def found_repeat(run: Run[Any], progress: pd.DataFrame) -> tuple[object, pd.DataFrame]:
    """The number and the rows, indexed from 0, of the first repeat that ended with the found map, else of the first.

    progress: the run's `progress_of`, with a row or more.
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
    """The solver calls or seconds after which every repeat has ended; NaN if none is known."""
    return float(numbers(progress, by).max())


def accuracies_at(progress: pd.DataFrame, by: By, x: np.ndarray) -> np.ndarray:
    """The test accuracy of each repeat at each `x`, (repeats, len(x)) fractions; NaN before a repeat's first.

    A row without an accuracy keeps the one before it. A repeat that has ended keeps its last one.
    """
    rows = []
    for _, frame in by_repeat(progress):
        at, accuracy = numbers(frame, by).to_numpy(), numbers(frame, "search_test_accuracy").to_numpy()
        finite = np.isfinite(at) & np.isfinite(accuracy)
        at, accuracy = at[finite], accuracy[finite]
        place = np.searchsorted(at, x, side="right")  # (len(x),) how many steps lie at or before each x
        rows.append(np.concatenate([[np.nan], accuracy])[place])
    return np.array(rows) if rows else np.empty((0, len(x)))


def accuracy_at(progress: pd.DataFrame, by: By = "calls", x: float = math.inf) -> tuple[float, float, int]:
    """Mean and standard deviation over repeats of the test accuracy after `x` solver calls, or seconds.

    By default at the end of each repeat. Repeats without an accuracy by then do not count.

    Returns: mean (a fraction; NaN without a repeat), standard deviation (NaN with fewer than two), number of repeats.
    """
    accuracies = accuracies_at(progress, by, np.array([x], dtype=float))[:, 0]
    accuracies = accuracies[np.isfinite(accuracies)]
    mean, deviation = _mean(accuracies[:, None])
    return float(mean[0]), float(deviation[0]), accuracies.size


def with_deviation(mean: float, deviation: float) -> str:
    """A test accuracy and its standard deviation: `96.79 ± 0.10 %`; the mean alone where there is one repeat."""
    if not math.isfinite(deviation):
        return TEST.show(mean)
    return f"{TEST.bare(mean)} ± {TEST.bare(deviation)} {TEST.unit}"


def accuracy_curve(progress: pd.DataFrame, by: By) -> AccuracyCurve | None:
    """The mean over repeats on a grid of all their steps. Repeats without any are left out.

    None if there is no test accuracy, or no x at which all others have one.
    """
    x = _steps(progress, by)
    if x.size == 0:
        return None
    x = np.unique(np.append(x, total(progress, by)))
    accuracies = accuracies_at(progress, by, x)  # (repeats, k)
    accuracies = accuracies[np.isfinite(accuracies[:, -1])]
    begun = np.isfinite(accuracies).all(axis=0)
    x, accuracies = x[begun], accuracies[:, begun]
    if x.size > _POINTS:
        places = np.linspace(0, x.size - 1, _POINTS).round().astype(int)
        x, accuracies = x[places], accuracies[:, places]
    mean, deviation = _mean(accuracies)
    return AccuracyCurve(x, mean, deviation, accuracies)


def reaches(progress: pd.DataFrame, accuracy: float, by: By) -> float:
    """The solver calls or seconds from which on the mean over repeats is at or above `accuracy`; NaN if it is not."""
    x = _steps(progress, by)
    if x.size == 0:
        return math.nan
    good = accuracies_at(progress, by, x).mean(axis=0) >= accuracy  # where a repeat has none yet, the mean is NaN
    if not good[-1]:
        return math.nan
    late = np.flatnonzero(~good)
    return float(x[late[-1] + 1] if late.size else x[0])


def _steps(progress: pd.DataFrame, by: By) -> np.ndarray:
    """Every x at which some repeat's test accuracy may change, ascending."""
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
    """Whether a run's solver calls are comparable with those of others (note W6): full solves, shared or not.

    Halving with a growing dimension is comparable; the solves of the other methods are smaller, and many more.
    """
    return _of_one_size(progress) or shares_solves(progress)


def growing(progress: pd.DataFrame) -> bool:
    """Whether solves are shared, and the later ones have more features: fast halving."""
    return shares_solves(progress) and not _of_one_size(progress)


def _of_one_size(progress: pd.DataFrame) -> bool:
    return bool(numbers(progress, "dimension").nunique() == 1)


def comparison_table(runs: Sequence[Progress]) -> pd.DataFrame:
    """A row per run. Test accuracies are fractions; NaN where a run has none, or is not to be compared there.

    Columns, in two levels:
        `run`: `solver calls` and `seconds`, means over the repeats, and the number of `repeats`.
        `at N solver calls`, for a quarter of random search's and for the fewest of the runs comparable by calls,
        `at N s`, for the time in which the fastest run ends, and random search, with all of their repeats,
        `at the end`: of each the `mean` and the `standard deviation` over the repeats that have one by then, and
        their number, `repeats`.
        `to random search's accuracy`: the `solver calls` and `seconds` from which on the mean stays at or above that
        which random search ends with; only with one run of random search.

    Raises: InvalidInput without runs, or with a label twice.
    """
    labels = [label for label, _ in runs]
    if not labels:
        raise InvalidInput("expected runs to compare, got none; name the folder of at least one")
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise InvalidInput(f"expected a label of its own for each run, got {', '.join(sorted(twice))} more than once")
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
    """A comparison table in words, a column per comparison: `96.79 ± 0.10` in percent, a dash without a value.

    With an accuracy of some of the repeats only: `96.79 ± 0.10 (7 of 10)`.
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
    """The mean test accuracy that random search ends with; None without exactly one run of it that has one."""
    searches = _random_searches(runs)
    if len(searches) != 1:
        return None
    mean, _, repeats = accuracy_at(searches[0])
    return mean if repeats else None


def calls_compared(runs: Sequence[Progress]) -> list[int]:
    """Numbers of solver calls to compare at, ascending; none with fewer than two comparable runs."""
    totals = _totals([progress for _, progress in runs if comparable_by_calls(progress)], "calls")
    if len(totals) < 2:
        return []
    quarters = [calls // 4 for calls in _totals(_random_searches(runs), "calls") if calls >= 4]
    return sorted({int(calls) for calls in (*quarters, min(totals))})


def seconds_compared(runs: Sequence[Progress]) -> list[float]:
    """Seconds to compare at, ascending, of three digits and not shorter than the runs they are of."""
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

DELTA = 0.05  # each statement holds with probability 1 - DELTA over the validation points; Theorem 3.1 has 1 - 3 DELTA


def gap_bound(bound: float, points: float, entropy: float, delta: float = DELTA) -> float:
    """B sqrt(2/|V| (entropy + log 1/delta)): how far the risk of a selection can exceed its validation loss.

    Step 1 in the proof of Theorem A.2. It holds for every hypothesis at once, and so for any rule of selection.

    Args:
        bound: B. points: |V|. entropy: log |C|; 0 without a selection.
    """
    return bound * math.sqrt(2 / points * (entropy + math.log(1 / delta))) if points > 0 else math.inf


def hoeffding_bound(bound: float, points: float, entropy: float, delta: float = DELTA) -> float:
    """B sqrt((entropy + log 1/delta) / (2 |V|)): Hoeffding's inequality for each of |C| fixed hypotheses.

    Half of `gap_bound`, whose constant comes from a covering argument that a finite set does not need.
    """
    return gap_bound(bound, points, entropy, delta) / 2


def selection_bound(bound: float, points: float, entropy: float, delta: float = DELTA) -> float:
    """(3B/2) sqrt(2/|V| (entropy + log 1/delta)): how far the risk of a selection can exceed the best candidate's.

    The last term of Theorem 3.1: `gap_bound`, and half of it once more for the best candidate's validation loss (step 3
    of the proof). Step 2 assumes that the least validation loss was selected, of weights solved for exactly.
    """
    return 1.5 * gap_bound(bound, points, entropy, delta)


def rounds_entropy(candidates: int, left: int) -> float:
    """log of (|C| choose |C_t|) |C_t|: the hypotheses that a round of halving could have selected with reused points.

    The same validation points decided in the rounds before which |C_t| of the |C| candidates share its weights.
    """
    return math.lgamma(candidates + 1) - math.lgamma(left + 1) - math.lgamma(candidates - left + 1) + math.log(left)


def weights_rate(weight_norm: float, train_points: float, delta: float = DELTA) -> float:
    """sqrt((||w||^2 + 1)/|T| log 1/delta): the first term of Corollary 3.1 as Corollary A.1 proves it, no constant."""
    return math.sqrt((weight_norm**2 + 1) / train_points * math.log(1 / delta))


def kernel_rate(train_points: float, delta: float = DELTA) -> float:
    """log^2(1/delta) / sqrt(|T|): the first term of Corollary 3.2, without its constant."""
    return math.log(1 / delta) ** 2 / math.sqrt(train_points)


def validation_rate(points: float, candidates: int, delta: float = DELTA) -> float:
    """sqrt(1/|V| log((|C| + 1)/delta)): the second term of both, as Corollaries A.2 and A.3 have it, no constant."""
    return math.sqrt(math.log((candidates + 1) / delta) / points)


LOSSES = ("error", "clipped")  # 0-1, and the solver's own of clipped decision values


def selection_gaps(run: Run[Any]) -> pd.DataFrame:
    """A row per solve that selected, and loss; of all repeats, in the order of rounds. Empty without test points.

    Columns: `repeat`, `round` (of halving, from 1; 1 else), `shared` (whether the candidates shared the weights),
    `winner` (whether it is what the search ends with), `loss` (of LOSSES), `B`, `candidates` (|C|; of the winner all
    of the search), `points` (|V|: validation points that it was scored on), `test_points`, `train_points`,
    `weight_norm`, `validation`, `test` (mean losses), `gap` (test - validation), `bound` (`gap_bound` with log |C|),
    `hoeffding`, `alone` (`gap_bound` of a single candidate), `reused` (`gap_bound` where the points served the rounds
    before, too), `selection` (`selection_bound`).
    """
    rows = []
    for number, repeat in enumerate(run.repeats or [run]):
        for solve in _solves(repeat.table("search", TRIALS), repeat.table("search", CURVES), run.config.mode):
            rows += [{"repeat": number, **row} for row in _losses(solve)]
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class _Solve:
    """A solve that selected one of `candidates` hypotheses. columns: the trainable's report."""

    number: int
    shared: bool
    winner: bool
    candidates: int
    entropy_reused: float
    columns: dict[Any, Any]


def _solves(trials: pd.DataFrame, curves: pd.DataFrame, mode: str) -> list[_Solve]:
    """The solves of a search; none without leaders in its tables, or without test points."""
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
    """The best solve of a search for one map at a time; its hypotheses are all pairs of maps and dimensions."""
    score = numbers(curves, "score")
    if not score.notna().any():
        return []
    best = curves.iloc[int(np.nanargmin(score) if mode == "min" else np.nanargmax(score))].to_dict()
    hypotheses = curves["architecture"].nunique() * curves["dimension"].nunique()
    return [_Solve(1, False, True, hypotheses, math.log(hypotheses), best)]


def _losses(solve: _Solve) -> list[dict[str, Any]]:
    """A row per known loss."""
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
    """A row per repeat: the winner's test error minus the least among the maps solved alone at its dimension.

    Columns: `repeat`, `excess` (0-1), `known` (maps solved alone, by the search or an oracle), `of` (all candidates).
    Halving solves alone only for the leaders of its rounds, so the excess over all candidates can be larger.
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
