"""The bounds of a scored pool beside the errors of what was trained of it, in a section. Shu 2022, chapter 7."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from archray.platform.methods.pool_bounds import Judged, judged_bounds
from archray.platform.quantities import MISSING, quantity_of, signed
from archray.platform.report.figures import FOUND, INK, MUTED, RANDOM, NothingToDraw, drawing, figure, set_height
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.rank_agreement import Agreement
from archray.platform.report.section import Column, Section, captioned, numeric, paragraphs, table
from archray.platform.run.run import Run
from archray.plurals import count

_COLOURS = {"bound": FOUND, "fitted": RANDOM, "plain": MUTED}
_FEW = 30  # trainings below which an interval of tau is half a unit wide or more


def pool_bounds_section(run: Run[Any]) -> Section:
    """How the bounds order the trainings, and how surely. Of repeats, of the best."""
    judged = _known(run)
    best = max(range(len(judged.promises)), key=lambda place: judged.errors[place].tau)
    shown = drawing(
        "pool-bounds",
        pool_bounds(run),
        description=f"Kendall's tau of {count(len(judged.promises), 'promise')} with the errors; the highest is "
        f"{_number(judged.errors[best].tau)}, of {judged.promises[best].name}.",
    )
    body = captioned(shown, _caption(judged)) + paragraphs(_words(judged)) + _table(judged)
    return Section("pool-bounds", "Do the bounds order what was trained?", body)


@figure(height=300)
def pool_bounds(run: Run[Any], canvas: Figure) -> None:
    """Kendall's tau of training-free bounds with the errors of what a run trained of its pool, with 95 % intervals.

    Shu 2022, Corollaries 7.1 and 7.2.
    """
    judged = _known(run)
    places = np.arange(len(judged.promises))[::-1]
    set_height(canvas, 70 + 24 * len(places))
    axes = canvas.subplots()
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    for place, promise, agreement in zip(places, judged.promises, judged.errors, strict=True):
        low, high = agreement.tau_interval
        colour = _COLOURS[promise.group]
        axes.plot([low, high], [place, place], color=colour, linewidth=2, zorder=2)
        axes.scatter([agreement.tau], [place], s=36, color=colour, zorder=3)
    taus = [agreement.tau for agreement in judged.errors]
    texts = [f"{p.name}: τ {_told(a)}" for p, a in zip(judged.promises, judged.errors, strict=True)]
    tell_points(axes, taus, places, texts)
    axes.set_yticks(places, [promise.name for promise in judged.promises])
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.set_ylim(-0.7, len(places) - 0.3)
    axes.set_xlabel("Kendall's τ with the error")


def _known(run: Run[Any]) -> Judged:
    """Raises: NothingToDraw without a scored pool of which three were trained."""
    judged = judged_bounds(run.best)
    if judged is None or not judged.promises:
        raise NothingToDraw(
            "the run has no pool with kappa and a gradient-based metric of which three or more were trained"
        )
    return judged


def _caption(judged: Judged) -> str:
    error = "1 − " * judged.value.endswith("accuracy") + quantity_of(judged.value).label
    return (
        f"Each promise is small where it promises a small error. Points: Kendall's τ with the error ({error}) of the "
        f"{count(len(judged.rows), 'architecture')} of the pool that the search trained; lines: 95 % intervals "
        "(Fisher's). Blue: the bounds as they are, κ/M of Theorem 7.2 and 1/M of Corollary 7.1; orange: Corollary 7.2 "
        "in the form of Eq. 7.7, whose μ and ν were fitted on these very errors; grey: what needs no bound. What a "
        "search trained it has chosen, by such promises too: the rest of the pool may be ordered otherwise."
    )


def _words(judged: Judged) -> Iterator[str]:
    pairs = list(zip(judged.promises, judged.errors, strict=True))
    text = _verdict([(p.name, a) for p, a in pairs if p.group == "bound"], "bounds as they are")
    n = len(judged.rows)
    if n < _FEW:
        text += f" {count(n, 'training')} are few: an interval is wide, and most orders cannot be told from chance."
    plain = [(p.name, a) for p, a in pairs if p.group == "plain"]
    if plain:
        text += " " + _verdict(plain, "promises that need no bound")
    yield text
    fitted = [(p, a) for p, a in pairs if p.group == "fitted"]
    if fitted:
        better = [p.name for p, a in fitted if a.rho > p.chance]
        low, high = (f(p.chance for p, _ in fitted) for f in (min, max))
        text = (
            "Two numbers fitted on the errors they are judged by say little: of errors in a random order the same fit "
            f"reaches a ρ of {_number(low)}{'' if low == high else f' to {_number(high)}'} one time in twenty. "
        )
        yield text + (
            f"Above that {'is' if len(better) == 1 else 'are'} {len(better)} of {len(fitted)} here."
            if better
            else "None is above that here."
        )


def _verdict(agreements: list[tuple[str, Agreement]], what: str) -> str:
    """How many of them are told from chance, and the best."""
    right = sum(a.told and a.tau > 0 for _, a in agreements)
    wrong = sum(a.told and a.tau < 0 for _, a in agreements)
    name, best = max(agreements, key=lambda pair: pair[1].tau)
    text = (
        f"Of {len(agreements)} {what} {right} order{'s' if right == 1 else ''} the errors surely (an interval above 0)"
    )
    text += f" and {wrong} the wrong way round" if wrong else ""
    return f"{text}; the best is {name}, τ = {_told(best)}."


def _table(judged: Judged) -> str:
    with_gap = any(math.isfinite(agreement.tau) for agreement in judged.gaps)
    columns = [
        Column("Promise"),
        *numeric("n", "τ", "95 %", "ρ", "95 %", *(["τ with the gap", "95 %"] if with_gap else [])),
    ]
    rows = []
    for promise, error, gap in zip(judged.promises, judged.errors, judged.gaps, strict=True):
        row = [promise.name + ("*" if promise.group == "fitted" else ""), error.n, _number(error.tau)]
        row += [_between(error.tau_interval), _number(error.rho), _between(error.rho_interval)]
        rows.append(row + ([_number(gap.tau), _between(gap.tau_interval)] if with_gap else []))
    told = table(columns, rows, label="Agreement of each promise with the errors")
    notes = ["* fitted on these errors."]
    if with_gap:
        notes.append(
            "The gap is the training accuracy, of augmented images in the last epoch, minus "
            f"{quantity_of(judged.value).label}: what Theorem 7.2 bounds by κ/M."
        )
    return told + paragraphs([" ".join(notes)])


def _number(value: float) -> str:
    return MISSING if math.isnan(value) else signed(f"{value:.2f}")


def _between(interval: tuple[float, float]) -> str:
    return MISSING if math.isnan(interval[0]) else f"{_number(interval[0])} to {_number(interval[1])}"


def _told(agreement: Agreement) -> str:
    return f"{_number(agreement.tau)} ({_between(agreement.tau_interval)})"
