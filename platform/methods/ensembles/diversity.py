"""Single-model error against diversity, a point per trained ensemble. Shu 2022, Table 5.5 and Figure 5.4 (note E8)."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.ensembles.ensemble_tables import trained_ensembles
from archray.platform.report.columns import numbers
from archray.platform.report.figures import FOUND, SURFACE, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.quantity import Quantity, count, whole_number
from archray.platform.report.section import Column, Section, captioned, numeric, paragraphs, table
from archray.platform.run.run import Run

_ATE, _PPD = Quantity("ATE", "%", 100.0, 2), Quantity("PPD", "%", 100.0, 2)
_SHOWN = {
    "ate": _ATE,
    "ppd": _PPD,
    "test_error": Quantity.of("test_error"),
    "nll": Quantity("NLL", "", 1.0, 3),
    "ece": Quantity("ECE", "%", 100.0, 2),
}
_MEASURES = (
    "ATE is the average test error of an ensemble's members, PPD the share of test points on which two of them "
    "predict different classes, averaged over the pairs."
)


@figure(height=300)
def ensemble_diversity(run: Run[Any], canvas: Figure) -> None:
    """The mean error of an ensemble's members against their disagreement, a point per repeat of the run."""
    ensembles = _measured(run)
    if len(ensembles) < 2:
        raise NothingToDraw("this run trained one ensemble, and a point by itself shows nothing; give it --repeats")
    axes = canvas.subplots()
    x, y = ensembles["ppd"] * _PPD.factor, ensembles["ate"] * _ATE.factor
    axes.scatter(x, y, s=36, color=FOUND, alpha=0.45, linewidth=0)
    axes.errorbar(x.mean(), y.mean(), y.std(), x.std(), color=FOUND, linewidth=1.2, zorder=2)
    axes.scatter(x.mean(), y.mean(), s=90, color=FOUND, edgecolor=SURFACE, zorder=3)
    axes.margins(0.15)
    few_ticks(axes, 5)
    axes.set(xlabel="predictive disagreement, PPD (%)", ylabel="mean error of a member, ATE (%)")


def diversity_section(run: Run[Any]) -> Section:
    """ATE over PPD of the repeats' ensembles, and the table of means."""
    ensembles = _measured(run)
    title, rows = "Good members or different ones?", _table(run, ensembles)
    if len(ensembles) == 1:
        return Section("diversity", title, paragraphs([_MEASURES]) + rows)
    description = f"Mean error of a member against disagreement, of {count(len(ensembles), 'ensemble')}."
    content = drawing("diversity", ensemble_diversity(run), description=description)
    caption = (
        f"{_MEASURES} Low and to the right is best: members that are good, and err in different places. Faint marks "
        "are repeats, bars one standard deviation. As Table 5.5 and Figure 5.4 of Shu 2022."
    )
    return Section("diversity", title, captioned(content, caption) + rows)


def _measured(run: Run[Any]) -> pd.DataFrame:
    """The trained ensembles with ATE and PPD, a row per repeat. Raises: NothingToDraw if there is none."""
    ensembles = trained_ensembles(run)
    ensembles = ensembles.assign(**{name: numbers(ensembles, name) for name in _SHOWN})
    ensembles = ensembles[ensembles["ate"].notna() & ensembles["ppd"].notna()]
    if ensembles.empty:
        raise NothingToDraw("this run has trained no ensemble of two members or more")
    return ensembles


def _table(run: Run[Any], ensembles: pd.DataFrame) -> str:
    shown = {name: quantity for name, quantity in _SHOWN.items() if ensembles[name].notna().any()}
    several = len(ensembles) > 1
    headings = ["Members", *(["Repeats"] if several else []), *(quantity.heading for quantity in shown.values())]
    row = (
        run.config.method,
        whole_number(ensembles["members"].median()),
        *([len(ensembles)] if several else []),
        *(quantity.spread(ensembles[name]).removesuffix(f" {quantity.unit}") for name, quantity in shown.items()),
    )
    return table([Column("Method"), *numeric(*headings)], [row], label="Members and diversity")
