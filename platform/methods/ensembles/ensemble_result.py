"""What became of the found ensemble: its test accuracy beside those of its members, and how much these differ.

Single-model accuracy against diversity, a point per trained ensemble: Shu 2022, Table 5.5 and Figure 5.4 (note E8).
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.ensembles.ensemble_doubts import calibration_doubt
from archray.platform.methods.ensembles.ensemble_tables import OF_EACH, OF_ENSEMBLE, names_of, trained_models
from archray.platform.quantities import points_between, quantity_of, whole_number
from archray.platform.report.figures import FOUND, SURFACE, TRIAL, NothingToDraw, drawing, few_ticks, figure, set_height
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.repeat_spread import BAND
from archray.platform.report.section import Column, Section, captioned, numeric, paragraphs, table
from archray.platform.report.short_names import ShortNames
from archray.platform.report.table_columns import numbers
from archray.platform.run.run import Run
from archray.plurals import count

TEST, MEMBERS, _PPD = map(quantity_of, ("test_accuracy", "members_test_accuracy", "ppd"))
_QUANTITIES = {key: quantity_of(key) for key in (*OF_EACH, *OF_ENSEMBLE)}
_OF_REPEATS = {key: quantity_of(key) for key in (*OF_ENSEMBLE, *OF_EACH)}
_MOST = 24  # models that are drawn; the table has all


@figure(height=200)
def ensemble_test_accuracies(run: Run[Any], canvas: Figure) -> None:
    """The test accuracy of the found ensemble and of each of its members alone."""
    rows, names = _drawn(tested_models(run.best)), names_of(run)
    set_height(canvas, 70 + 24 * len(rows))
    axes = canvas.subplots()
    for place, row in enumerate(rows.to_dict("records")):
        value, own = row["test_accuracy"] * TEST.factor, row["kind"] == "ensemble"
        colour, size = (FOUND, 80) if own else (TRIAL, 50)
        axes.scatter(value, place, s=size, color=colour, edgecolor=SURFACE, linewidth=0.8, zorder=3)
        told = row["name"] if own else f"{row['name']}, {names.of(row['architecture'])}"
        tell_points(axes, [value], [place], [f"{told}\n{TEST.label} {TEST.show(row['test_accuracy'])}"])
        if own:
            axes.axvline(value, color=colour, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_yticks(range(len(rows)), rows["name"].tolist())
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(TEST.axis)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def ensemble_result_section(run: Run[Any]) -> Section:
    """A row per model, the ensemble first, and the table."""
    canvas, models, names = ensemble_test_accuracies(run), tested_models(run.best), names_of(run)
    drawn = _drawn(models)
    told = ", ".join(f"{row['name']} {TEST.show(row['test_accuracy'])}" for row in drawn.to_dict("records"))
    content = drawing("ensemble-result", canvas, description=f"Test accuracy: {told}.")
    doubt = calibration_doubt(models["ece"])
    body = captioned(content, _caption(models, drawn)) + (paragraphs([doubt]) if doubt else "")
    return Section("ensemble", "The ensemble and its members", body + _model_table(models, names))


def tested_models(run: Run[Any]) -> pd.DataFrame:
    """The rows of `trained_models` with their measures as floats. Raises: NothingToDraw without a test accuracy."""
    models = trained_models(run)
    models = models.assign(**{name: numbers(models, name) for name in _QUANTITIES})
    if not models["test_accuracy"].notna().any():
        raise NothingToDraw("the ensemble of this run has not been trained; resume it")
    return models


def _drawn(models: pd.DataFrame) -> pd.DataFrame:
    return models[models["test_accuracy"].notna()].head(_MOST)


def _caption(models: pd.DataFrame, drawn: pd.DataFrame) -> str:
    sentences = [
        "Test accuracy of the ensemble (blue), which averages its members' probabilities, and of each alone (grey)."
    ]
    own = models["test_accuracy"].iloc[0]
    members = models["test_accuracy"].iloc[1:].dropna()
    if math.isfinite(own) and len(members):
        sentences.append(
            f"The ensemble is {points_between(own - members.max())} its best member, and "
            f"{points_between(own - members.mean())} the average one."
        )
    if len(drawn) < int(models["test_accuracy"].notna().sum()):
        sentences.append(f"The first {len(drawn)} are drawn.")
    sentences.append(
        "PPD is the share of test points on which two members disagree, NLL the mean negative log-likelihood in nats, "
        "ECE the expected calibration error."
    )
    return " ".join(sentences)


def _model_table(models: pd.DataFrame, names: ShortNames) -> str:
    shown = {name: quantity for name, quantity in _QUANTITIES.items() if models[name].notna().any()}
    columns = [Column("Model"), Column("Architecture", "name"), *numeric(*(q.heading for q in shown.values()))]
    rows = [
        (
            row["name"],
            names.of(row["architecture"]),
            *(quantity.bare(row[name]) for name, quantity in shown.items()),
        )
        for row in models.to_dict("records")
    ]
    return table(columns, rows, label="The ensemble and its members", marked=0)


# Diversity

_MEASURES = (
    "The test accuracy of an ensemble's members alone (1 − ATE), and PPD, the share of test points on which two of "
    "them predict different classes, averaged over the pairs."
)


@figure(height=300)
def ensemble_diversity(run: Run[Any], canvas: Figure) -> None:
    """The mean accuracy of an ensemble's members against their disagreement, a point per repeat of the run."""
    ensembles = _measured(run)
    if len(ensembles) < 2:
        raise NothingToDraw("this run trained one ensemble, and a point by itself shows nothing; give it --repeats")
    axes = canvas.subplots()
    x, y = ensembles["ppd"] * _PPD.factor, ensembles["members_test_accuracy"] * MEMBERS.factor
    axes.scatter(x, y, s=36, color=FOUND, alpha=0.6, linewidth=0)
    if len(ensembles) >= BAND:
        axes.errorbar(x.mean(), y.mean(), y.std(), x.std(), color=FOUND, linewidth=1.2, zorder=2)
    rows = zip(ensembles.index, ensembles["members_test_accuracy"], ensembles["ppd"], strict=True)
    texts = (f"repeat {repeat}\nmembers {MEMBERS.show(mean)}\nPPD {_PPD.show(ppd)}" for repeat, mean, ppd in rows)
    tell_points(axes, x, y, texts)
    axes.scatter(x.mean(), y.mean(), s=90, color=FOUND, edgecolor=SURFACE, zorder=3)
    axes.margins(0.15)
    few_ticks(axes, 5)
    axes.set(xlabel=f"predictive disagreement, {_PPD.axis}", ylabel=MEMBERS.axis)


def diversity_section(run: Run[Any]) -> Section:
    """The members' accuracy over PPD of the repeats' ensembles, and the table of means."""
    ensembles = _measured(run)
    title, rows = "Good members or different ones?", _diversity_table(run, ensembles)
    if len(ensembles) == 1:
        return Section("diversity", title, paragraphs([_MEASURES]) + rows)
    description = f"Mean accuracy of a member against disagreement, of {count(len(ensembles), 'ensemble')}."
    content = drawing("diversity", ensemble_diversity(run), description=description)
    bars = ", bars one standard deviation" if len(ensembles) >= BAND else ""
    caption = (
        f"{_MEASURES} High and to the right is best: members that are good, and wrong in different places. Faint marks "
        f"are repeats, the full one their mean{bars}. As Table 5.5 and Figure 5.4 of Shu 2022."
    )
    return Section("diversity", title, captioned(content, caption) + rows)


def _measured(run: Run[Any]) -> pd.DataFrame:
    """The trained ensembles of two members or more, a row per repeat. Raises: NothingToDraw if there is none."""
    trained = [models for models in map(trained_models, run.repeats or [run]) if len(models)]
    ensembles = pd.DataFrame([{**models.iloc[0], "members": len(models) - 1} for models in trained])
    ensembles = ensembles.assign(**{name: numbers(ensembles, name) for name in _OF_REPEATS})
    ensembles = ensembles[ensembles["ppd"].notna()]
    if ensembles.empty:
        raise NothingToDraw("this run has trained no ensemble of two members or more")
    return ensembles


def _diversity_table(run: Run[Any], ensembles: pd.DataFrame) -> str:
    shown = {name: quantity for name, quantity in _OF_REPEATS.items() if ensembles[name].notna().any()}
    several = len(ensembles) > 1
    headings = ["Members", *(["Repeats"] if several else []), *(quantity.heading for quantity in shown.values())]
    row = (
        run.config.method,
        whole_number(ensembles["members"].median()),
        *([len(ensembles)] if several else []),
        *(quantity.spread(ensembles[name]).removesuffix(f" {quantity.unit}") for name, quantity in shown.items()),
    )
    return table([Column("Method"), *numeric(*headings)], [row], label="Members and diversity")
