"""What other nu and mu select from the same gradients, and how good that is. Shu 2022, Figures 6.4 and 6.6."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.supernets.nasi_accuracies import Accuracies, accuracies
from archray.platform.methods.supernets.nasi_tables import searches
from archray.platform.methods.supernets.search_seeds import names_of
from archray.platform.quantities import significant
from archray.platform.report.figures import (
    FOUND,
    INDIGO,
    INK,
    MUTED,
    PINK,
    NothingToDraw,
    drawing,
    figure,
    logarithmic,
    set_height,
)
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import Column, Section, captioned, numeric, paragraphs, table
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_base import canonical_string

_ROW = 190  # height of a panel
_LINES = (MUTED, FOUND, PINK, INDIGO, INK)  # of the values of mu
RESULT = "result"


def constants_of(run: Run[Any], known: Accuracies | None) -> pd.DataFrame:
    """Of the best seed a row per pair: `nu`, `mu`, `architecture`, `trace`, `parameters`, and the table's `result`.

    What the table does not have, or what is nothing, has no result. Empty before the search.
    """
    rows = searches(run)
    if not rows:
        return pd.DataFrame()
    space, values = get_space(run.space), known.of if known else {}
    results = [
        values.get(canonical_string(space, name), float("nan")) if isinstance(name, str) else float("nan")
        for name in rows[0].constants["architecture"]
    ]
    return rows[0].constants.assign(**{RESULT: results})


def _measures(tried: pd.DataFrame, known: Accuracies | None) -> dict[str, str]:
    """Column -> words, of what is known of the architectures."""
    words = {"trace": "trace norm", "parameters": "parameters", RESULT: known.column if known else ""}
    return {column: label for column, label in words.items() if column in tried and tried[column].notna().any()}


@figure(height=_ROW)
def nasi_constants(run: Run[Any], canvas: Figure) -> None:
    """Trace norm, size and a table's result of what NASI would have selected with other constraints and penalties."""
    run = run.best
    known = accuracies(run)
    tried = constants_of(run, known)
    measures = _measures(tried, known)
    if not measures:
        raise NothingToDraw("no search of the run has ended; what other constants select is known then")
    set_height(canvas, _ROW * len(measures))
    panels = canvas.subplots(len(measures), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (column, label) in zip(panels, measures.items(), strict=True):
        for number, (mu, rows) in enumerate(tried.groupby("mu")):
            ordered = rows.sort_values("nu")
            colour, name = _LINES[number % len(_LINES)], f"mu {significant(mu)}"
            axes.plot(ordered["nu"], ordered[column], color=colour, linewidth=1.4, marker="o", ms=4, label=name)
            texts = [
                f"nu {significant(nu)}, {name}\n{label} {significant(value)}"
                for nu, value in zip(ordered["nu"], ordered[column], strict=True)
            ]
            tell_points(axes, ordered["nu"], ordered[column], texts)
        axes.set_ylabel(label)
    panels[0].set_xscale("log")
    logarithmic(panels[-1].xaxis)
    panels[-1].set_xlabel("nu, of the first step")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper left", ncols=len(labels))


def constants_section(run: Run[Any]) -> Section | None:
    """What other nu and mu make of the same gradients, as figure and tables. Nothing before the search."""
    names, best = names_of(run), run.best
    known = accuracies(best)
    tried = constants_of(best, known)
    measures = _measures(tried, known)
    if not measures:
        return None
    [found, *_] = searches(best)
    same = int((tried["architecture"] == found.architecture).sum())
    text = f"The gradients of the best seed, once more with other constants: {count(len(tried), 'pair')} of nu (of the "
    text += f"first step) and mu select {count(tried['architecture'].nunique(), 'architecture')}; {same} of the pairs "
    text += (
        f"select what it found, {names.of(found.architecture)}. The looser the constraint, the larger the trace norm "
    )
    text += "may be. Nothing is found where every sample is above nu and mu is 1."
    if RESULT not in measures:
        text += " How accurate they are, a table of trained architectures would say (agreement_table)."
    shown = drawing("nasi-constants", nasi_constants(run), description="What is selected, against nu, a line per mu.")
    caption = f"{', '.join(measures.values())} of what is selected, against nu; parameters are those of a network as "
    caption += "wide and deep as the supernet."
    content = "".join(_grid(tried, column, label) for column, label in measures.items())
    return Section("constants", "What nu and mu do", paragraphs([text]) + captioned(shown, caption) + content)


def _grid(tried: pd.DataFrame, column: str, label: str) -> str:
    """A table with a row per mu and a column per nu."""
    nus, of_pair = sorted(tried["nu"].unique()), tried.set_index(["mu", "nu"])
    rows = []
    for mu in sorted(tried["mu"].unique()):
        cells = [of_pair.loc[(mu, nu)] for nu in nus]
        words = ["nothing" if pd.isna(cell["architecture"]) else significant(cell[column]) for cell in cells]
        rows.append((significant(mu), *words))
    columns = [Column(f"{label}: mu \\ nu"), *numeric(*map(significant, nus))]
    return table(columns, rows, label=f"{label} of what other constants select", sortable=False)
