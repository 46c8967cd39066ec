"""Whether approximations of the trace norm agree with the exact one, and random labels and inputs with the data's.

Shu 2022 (thesis), Table 6.7 and Figure 6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.supernets.nasi_tables import AGREEMENT
from archray.platform.report.figures import FOUND, NothingToDraw, drawing, figure, set_height
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import Column, Section, captioned, numeric, table
from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.run import Run
from archray.plurals import count

_FEWEST = 3  # architectures that a correlation needs
_ROW = 230  # height of a row of two panels


@dataclass(frozen=True)
class Agreement:
    """Two trace norms of the same architectures.

    Attributes:
        other, reference: columns. words: what the first one is.
        pearson, spearman: of the architectures with both.
        rows: the two columns, finite.
    """

    other: str
    reference: str
    words: str
    pearson: float
    spearman: float
    rows: pd.DataFrame


def agreements(run: Run[Any]) -> list[Agreement]:
    """Of the run's comparison: the approximations with the exact trace norm, then what is random with what is true."""
    frame = run.table("agreement", AGREEMENT)
    if frame.empty:
        return []
    frame = frame[failures(frame).isna()]
    sizes = sorted(int(name[6:]) for name in frame.columns if name.startswith("batch_"))
    pairs = [("samples", "exact", "sum of samples")]
    pairs += [(f"batch_{size}", "exact", f"mini-batch of {size}") for size in sizes]
    pairs += [(f"random_{what}", "batch", f"random {what}") for what in ("labels", "inputs")]
    found = []
    for other, reference, words in pairs:
        both = pd.DataFrame({name: numbers(frame, name) for name in (other, reference)}).dropna()
        if len(both) >= _FEWEST:
            pearson = float(both[other].corr(both[reference]))
            spearman = float(both[other].corr(both[reference], method="spearman"))
            found.append(Agreement(other, reference, words, pearson, spearman, both))
    return found


@figure(height=_ROW)
def nasi_agreement(run: Run[Any], canvas: Figure) -> None:
    """Approximated trace norms of random architectures against the exact ones, and with random labels and inputs."""
    shown = _drawn(agreements(run.best))
    if not shown:
        raise NothingToDraw("the run compares no trace norms; set its option agreement")
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    set_height(canvas, _ROW * rows)
    grid = canvas.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, each in zip(grid.flat, shown, strict=False):
        x, y = each.rows[each.reference], each.rows[each.other]
        axes.scatter(x, y, s=18, color=FOUND, linewidths=0)
        axes.set_title(f"{each.words}, ρ = {each.pearson:.2f}")
        axes.set_xlabel("exact trace norm" if each.reference == "exact" else "labels and inputs of the data")
        tell_points(
            axes, x, y, (f"{each.words}\n{b:.4g} where the other is {a:.4g}" for a, b in zip(x, y, strict=True))
        )


def _drawn(each: list[Agreement]) -> list[Agreement]:
    """The sum of samples, the largest mini-batch, and what is random."""
    batches = [one.other for one in each if one.other.startswith("batch_")]
    return [one for one in each if not one.other.startswith("batch_") or one.other == batches[-1]]


def agreement_section(run: Run[Any]) -> Section | None:
    """A scatter of each, and the table of all correlations. Nothing where it was not asked for."""
    each = agreements(run.best)
    if not each:
        return None
    number = len(each[0].rows)
    told = f"Trace norms of {count(number, 'random architecture')} at the same initial weights"
    shown = drawing("nasi-agreement", nasi_agreement(run), description=f"{told}, one against another.")
    caption = f"{told}. Where labels or inputs are random, the mini-batch is otherwise the same."
    columns = [Column("Trace norm"), Column("Against"), *numeric("Pearson", "Spearman")]
    rows = [(one.words, one.reference, f"{one.pearson:.2f}", f"{one.spearman:.2f}") for one in each]
    content = table(columns, rows, label="How trace norms agree", sortable=False)
    return Section("agreement", "Do the approximations agree?", captioned(shown, caption) + content)
