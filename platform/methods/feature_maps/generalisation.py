"""Measured gaps of a search for a feature map beside Theorem 3.1's bounds and its corollaries' rates, as a section.

Khodak et al. 2020, section 3 and appendix A; note U8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.feature_maps.selection_bound import (
    DELTA,
    gap_bound,
    kernel_rate,
    validation_rate,
    weights_rate,
)
from archray.platform.methods.feature_maps.selection_gaps import excess_errors, selection_gaps
from archray.platform.quantities import Quantity, points_between, significant, whole_number
from archray.platform.report.figures import FOUND, GREEN, INK, MUTED, RANDOM, NothingToDraw, drawing, figure
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import Column, Section, captioned, folded, numeric, paragraphs, table
from archray.platform.run.run import Run
from archray.plurals import count

_ERROR = Quantity("error", "percentage points", 100.0, 2)
_LOSS = Quantity("loss", "", 1.0, 3)
_LINES = (
    ("bound", FOUND, "solid", "log |C| of the round"),
    ("reused", GREEN, (0, (6, 2)), "the same points in every round"),
    ("alone", MUTED, (0, (2, 2)), "no selection, |C| = 1"),
)  # of the figure: column, colour, dashes, what it is a bound for


def generalisation_section(run: Run[Any]) -> Section:
    """Bounds and measured gaps round by round, of the winner, and the corollaries' rates."""
    gaps = _known(run)
    errors = gaps[gaps["loss"] == "error"]
    worst = errors["gap"].max()
    shown = drawing(
        "generalisation",
        halving_generalisation(run),
        description=f"Test minus validation error, at most {_ERROR.show(worst)}, and the bounds on it, from "
        f"{_ERROR.show(errors['alone'].min())} on.",
    )
    body = captioned(shown, _caption(gaps)) + paragraphs(_words(run, gaps)) + _rounds_table(errors, _ERROR)
    clipped = gaps[gaps["loss"] == "clipped"]
    summary = f"The same of the solver's own loss, clipped: between 0 and {significant(clipped['B'].max())}"
    body += folded(summary, _rounds_table(clipped, _LOSS)) if len(clipped) else ""
    return Section("generalisation", "What selection can cost, and did", body + _rates(errors))


@figure(height=330)
def halving_generalisation(run: Run[Any], canvas: Figure) -> None:
    """Test minus validation error of what each round of a feature map search selects, beside the bounds of Theorem 3.1.

    Khodak et al. 2020.
    """
    gaps = _known(run)
    gaps = gaps[gaps["loss"] == "error"]
    places = {key: place for place, key in enumerate(sorted(set(zip(gaps["round"], gaps["shared"], strict=True))))}
    x = np.array([places[key] for key in zip(gaps["round"], gaps["shared"], strict=True)])
    axes = canvas.subplots()
    for column, colour, dashes, label in _LINES:
        if column == "reused" and not gaps["shared"].any():
            continue
        height = [_ERROR.factor * gaps[column][x == place].mean() for place in places.values()]
        axes.plot(list(places.values()), height, color=colour, linestyle=dashes, marker="o", markersize=4, label=label)
    measured = _ERROR.factor * gaps["gap"].to_numpy()
    axes.scatter(x, measured, s=26, color=RANDOM, zorder=3, label="measured")
    texts = [
        f"round {row['round']}, {count(row['candidates'], 'candidate')}: test − validation {_ERROR.show(row['gap'])}"
        for row in gaps.to_dict("records")
    ]
    tell_points(axes, x, measured, texts)
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    sizes = [gaps["candidates"][x == place].iloc[0] for place in places.values()]
    ends = ["\nwinner" if not shared else "" for _, shared in places]
    axes.set_xticks(list(places.values()), [f"{size}{end}" for size, end in zip(sizes, ends, strict=True)])
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xlabel("candidates that were selected from")
    axes.set_ylabel("test − validation error (points)")
    canvas.legend(loc="outside upper left", ncols=2)


def _known(run: Run[Any]) -> pd.DataFrame:
    """Raises: NothingToDraw without test and validation losses of what was selected."""
    gaps = selection_gaps(run)
    if gaps.empty:
        raise NothingToDraw("the search has no test and validation errors of its leaders; run it with this version")
    return gaps


def _caption(gaps: pd.DataFrame) -> str:
    text = (
        "Orange: the test error minus the validation error of what was selected. Lines: what it stays below with "
        f"probability {1 - DELTA:g}, B √(2/|V| (log |C| + log 1/δ)) with B = 1 and δ = {DELTA:g}, the selection term "
        "in the proof of Theorem 3.1 of Khodak et al. 2020, where the version entropy is log |C|."
    )
    if gaps["shared"].any():
        text += (
            " The theorem is for an exact solution of the bilevel problem, and halving is none: it selects by weights "
            "that candidates share. The gap's bound holds whatever rule selects, of hypotheses that were there before "
            "the validation points were looked at: of the first round, and of the winner, solved for alone. In later "
            "rounds these points have decided who shares the weights; the green line counts all sets that could."
        )
    return text


def _words(run: Run[Any], gaps: pd.DataFrame) -> Iterator[str]:
    """What the numbers of the 0-1 loss say, and what they are good for."""
    errors = gaps[gaps["loss"] == "error"]
    rigorous = errors["reused"]
    broken = int((errors["gap"] > rigorous).sum())
    text = f"Of {count(len(errors), 'measured gap')} "
    text += "none lies above its bound" if not broken else f"{broken} lie{'s' if broken == 1 else ''} above its bound"
    winner = errors[errors["winner"]]
    if len(winner):
        bound, gap = winner["bound"].mean(), winner["gap"].mean()
        promise = (winner["validation"] + winner["bound"]).mean()
        verdict = "vacuous: it is no less than B" if bound >= 1 else "not vacuous, as it is below B"
        text += (
            f". The winner's gap is {_ERROR.show(gap)} and the bound {_ERROR.show(bound)}, which is {verdict}; it "
            f"promises a test error of at most {_ERROR.bare(promise)} %, and {_ERROR.bare(winner['test'].mean())} % "
            f"was measured. Without any selection, |C| = 1, the bound is {_ERROR.show(winner['alone'].mean())}; to "
            f"select costs {_ERROR.show(bound - winner['alone'].mean())} of it. Hoeffding's inequality for the same "
            f"hypotheses has half the theorem's constant: {_ERROR.show(winner['hoeffding'].mean())}"
        )
    vacuous = errors[errors["bound"] >= 1]["round"].unique()
    if len(vacuous):
        text += f". In {count(len(vacuous), 'round')} the bound is vacuous, 100 points or more"
    yield text + "."
    test_points = errors["test_points"].max()
    yield (
        f"The test error stands for the risk. Over {count(int(test_points), 'test point')} it is itself within "
        f"{_ERROR.show(gap_bound(1.0, test_points, np.log(2)) / 2)} of it with probability {1 - DELTA:g}."
    )
    yield from _excess(run, winner)


def _excess(run: Run[Any], winner: pd.DataFrame) -> Iterator[str]:
    """The winner against the best candidate, beside the whole of Theorem 3.1's selection term."""
    excess = excess_errors(run)
    if excess.empty or winner.empty:
        return
    known, of = int(excess["known"].max()), int(excess["of"].max())
    text = (
        f"The winner's test error is {points_between(excess['excess'].mean())} the least of the "
        f"{count(known, 'map')} that were solved alone with as many features; Theorem 3.1's term, 3B/2 √(2/|V| (log "
        f"|C| + log 1/δ)), is {_ERROR.show(winner['selection'].mean())}."
    )
    if known < of and run.table("search", "rounds.parquet").size:
        text += (
            f" That is of {known} of {count(of, 'candidate')}: the rest were never solved for alone, and one may be "
        )
        text += "better."
    if not _selects_as_proved(run, winner):
        text += (
            " Its proof needs that the least validation error was selected of weights solved for exactly, which this "
            "search does not do: here it is a yardstick, not a guarantee."
        )
    yield text


def _selects_as_proved(run: Run[Any], winner: pd.DataFrame) -> bool:
    """Whether the 0-1 loss of standalone solves decided."""
    return run.config.solve.score == "accuracy" and not (winner["round"] > 1).any()


def _rounds_table(gaps: pd.DataFrame, quantity: Quantity) -> str:
    headings = ["Candidates", "Validation points", "Measured gap", "Largest", "Bound", "No selection"]
    reuses = gaps["shared"].any()
    columns = [Column("Selected"), *numeric(*headings, *(["Points reused"] if reuses else []))]
    rows = []
    for (number, winner), of_round in gaps.groupby(["round", "winner"], sort=True):
        size = of_round["candidates"].iloc[0]
        row = [
            "the winner" if winner else f"round {number}",
            whole_number(size),
            whole_number(of_round["points"].mean()),
            quantity.spread(of_round["gap"]).removesuffix(f" {quantity.unit}"),
            quantity.bare(of_round["gap"].max()),
            *(quantity.bare(of_round[name].mean()) for name in ("bound", "alone")),
        ]
        rows.append(row + ([quantity.bare(of_round["reused"].mean())] if reuses else []))
    return table(columns, rows, label=f"Measured gaps and bounds, {quantity.axis}", sortable=False)


def _rates(errors: pd.DataFrame) -> str:
    """The terms of Corollaries 3.1 and 3.2, of the winner."""
    winner = errors[errors["winner"]]
    if winner.empty:
        return ""
    row = winner.mean(numeric_only=True)
    size = int(winner["candidates"].iloc[0])
    selecting = validation_rate(row["points"], size)
    rows = [
        ("3.1 (Lipschitz loss)", "√((‖w‖² + 1)/|T| log 1/δ)", weights_rate(row["weight_norm"], row["train_points"])),
        ("3.2 (random Fourier features, square loss)", "log²(1/δ)/√|T|", kernel_rate(row["train_points"])),
        ("both", "√(1/|V| log((|C| + 1)/δ))", selecting),
        ("both, of one candidate", "√(1/|V| log(2/δ))", validation_rate(row["points"], 1)),
    ]
    columns = [Column("Corollary"), Column("Term"), *numeric("Value")]
    text = (
        f"Corollaries 3.1 and 3.2 have terms of these rates, each with a constant that is not known: the numbers say "
        f"how they grow, not how large an error is. ‖w‖ is the winner's, {significant(row['weight_norm'])} over all "
        f"classes, in the place of the best weights'; |T| = {whole_number(row['train_points'])}."
    )
    shown = [(name, term, significant(value)) for name, term, value in rows]
    return folded("Rates of the corollaries", paragraphs([text]) + table(columns, shown, label="Rates", sortable=False))
