"""The report of an ensemble search: members, attacks, diversity, headline and listings. Shu 2022, ch. 5."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.ensembles import tables
from archray.platform.methods.ensembles.figures import SAMPLING_SECTIONS, member_cells_section
from archray.platform.methods.recipe import Report
from archray.platform.methods.report import list_trials
from archray.platform.quantities import Spread, points_between, quantity_of, whole_number
from archray.platform.report import figures, measures, run_sections, section
from archray.platform.report.cost_sections import cost_sections
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, OWN_SCHEDULE, StageCurves, TrainingCurves
from archray.platform.report.figures import FOUND, GREEN, RANDOM, SURFACE, TRIAL, NothingToDraw, figure, figure_section
from archray.platform.report.page import Headline, MakeSection, network_size
from archray.platform.report.section import Column, Section, numbers, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS, command
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count
from archray.trainables.adversarial.attacks import ATTACKS

_text = texts_of(__package__)
_BARS = {tables.ATTACKED: RANDOM, tables.TRANSFERRED: TRIAL, tables.DEFENDED: FOUND, tables.CONTROL: GREEN}


@figure(height=300)
def ensemble_defense(run: Run[Any], canvas: Figure) -> None:
    """Accuracy under each attack: attacked member, other members, ensemble, and ensemble under noise."""
    rounds = _attacked(run)
    attacks = tables.over_rounds(rounds)
    axes = canvas.subplots()
    width = 0.8 / len(_BARS)
    places, titles = np.arange(len(attacks)), [ATTACKS.get(name).title for name in attacks["attack"]]
    for number, (key, color) in enumerate(_BARS.items()):
        quantity = quantity_of(key)
        x = places + (number - (len(_BARS) - 1) / 2) * width
        means, deviations = (attacks[column] * quantity.factor for column in (key, f"{key}_std"))
        axes.bar(x, means, 0.9 * width, color=color, label=quantity.label, zorder=2)
        axes.errorbar(x, means, deviations.fillna(0), fmt="none", ecolor=TRIAL, elinewidth=1, capsize=2, zorder=3)
        spreads = (quantity.spread(rounds[rounds["attack"] == name][key]) for name in attacks["attack"])
        texts = [f"{title}\n{quantity.label} {spread}" for title, spread in zip(titles, spreads, strict=True)]
        figures.add_tooltips(axes, x, means, texts)
    benign = quantity_of("benign_accuracy")
    mean, dashes = float(rounds["benign_accuracy"].mean()) * benign.factor, (0, (4, 3))
    axes.axhline(mean, color=FOUND, linewidth=1, linestyle=dashes, label=benign.label, zorder=1)
    axes.set_xticks(places, titles)
    axes.set_ylim(0, 100)
    axes.set_ylabel("accuracy (%)")
    axes.grid(False, axis="x")
    canvas.legend(loc="outside upper center", ncols=2)


def attack_section(run: Run[Any]) -> Section:
    """The figure, and a table with a row per attack: means and standard deviations over rounds."""
    rounds = _attacked(run)
    accuracies, rows = [], []
    for name, group in rounds.groupby("attack", sort=False):
        title = ATTACKS.get(str(name)).title
        accuracies.append(f"{title} {quantity_of(tables.DEFENDED).show(group[tables.DEFENDED].mean())}")
        cells = [quantity_of(key).spread(Spread.of(group[key])).removesuffix(" %") for key in tables.ACCURACIES]
        rows.append((title, *cells, f"{group['linf'].max():.4f}", f"{group['l2'].mean():.3f}"))
    columns = [Column("Attack"), *numeric(*(quantity_of(key).heading for key in tables.ACCURACIES), "L∞", "L2")]
    question = tables.attack_question(run.best.folder) or {}
    return figure_section(
        "attack",
        "Accuracy under attack",
        ensemble_defense(run),
        description=f"Accuracy of the ensemble under attack: {', '.join(accuracies)}.",
        caption=_text(
            "attack",
            rounds=rounds["member"].nunique(),
            images=int(rounds["images"].iloc[0]),
            epsilon=question["settings"]["epsilon"],
        ),
        below=table(columns, rows, label="Accuracy under attack"),
    )


def _attacked(run: Run[Any]) -> pd.DataFrame:
    rounds = tables.attacked_rounds(run.best)
    if rounds.empty:
        raise NothingToDraw(f"the run has no attack. Start one with: {command('attack', run.folder)}")
    return rounds


TEST, MEMBERS, _PPD = map(quantity_of, ("test_accuracy", "members_test_accuracy", "ppd"))
_QUANTITIES = {key: quantity_of(key) for key in (*tables.OF_EACH, *tables.OF_ENSEMBLE)}
_OF_REPEATS = {key: quantity_of(key) for key in (*tables.OF_ENSEMBLE, *tables.OF_EACH)}
_MOST = 24  # maximal number of models in the figure; the table has all


@figure(height=200)
def ensemble_test_accuracies(run: Run[Any], canvas: Figure) -> None:
    """The test accuracy of the selected ensemble and of each member alone."""
    rows, names = _drawn(tested_models(run.best)), tables.names_of(run)
    figures.set_height(canvas, 70 + 24 * len(rows))
    axes = canvas.subplots()
    for place, row in enumerate(rows.to_dict("records")):
        value, whole = row["test_accuracy"] * TEST.factor, row["kind"] == "ensemble"
        color, size = (FOUND, 80) if whole else (TRIAL, 50)
        axes.scatter(value, place, s=size, color=color, edgecolor=SURFACE, linewidth=0.8, zorder=3)
        model = row["name"] if whole else f"{row['name']}, {names.of(row['architecture'])}"
        figures.add_tooltips(axes, [value], [place], [f"{model}\n{TEST.label} {TEST.show(row['test_accuracy'])}"])
        if whole:
            axes.axvline(value, color=color, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_yticks(range(len(rows)), rows["name"].tolist())
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(TEST.axis)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def ensemble_result_section(run: Run[Any]) -> Section:
    """The figure and a table with a row per model, the ensemble first."""
    canvas, models = ensemble_test_accuracies(run), tested_models(run.best)
    drawn = _drawn(models)
    accuracies = ", ".join(f"{row['name']} {TEST.show(row['test_accuracy'])}" for row in drawn.to_dict("records"))
    accuracy, members = models["test_accuracy"].iloc[0], models["test_accuracy"].iloc[1:].dropna()
    compared = math.isfinite(accuracy) and len(members)
    doubt, names = tables.calibration_doubt(models["ece"]), tables.names_of(run)
    shown = {name: quantity for name, quantity in _QUANTITIES.items() if models[name].notna().any()}
    columns = [Column("Model"), Column("Architecture", "name"), *numeric(*(q.heading for q in shown.values()))]
    rows = []
    for row in models.to_dict("records"):
        cells = [quantity.bare(row[name]) for name, quantity in shown.items()]
        rows.append((row["name"], names.of(row["architecture"]), *cells))
    model_table = table(columns, rows, label="Ensemble and members", marked=0)
    return figure_section(
        "ensemble",
        "Ensemble and members",
        canvas,
        description=f"Test accuracy: {accuracies}.",
        caption=_text(
            "result",
            best_gap=points_between(accuracy - members.max()) if compared else "",
            mean_gap=points_between(accuracy - members.mean()) if compared else "",
            drawn=len(drawn) if len(drawn) < int(models["test_accuracy"].notna().sum()) else 0,
        ),
        below=paragraphs([doubt] if doubt else []) + model_table,
    )


def tested_models(run: Run[Any]) -> pd.DataFrame:
    """The rows of `trained_models` with their measures as floats. Raises: NothingToDraw without a test accuracy."""
    models = tables.trained_models(run)
    models = models.assign(**{name: numbers(models, name) for name in _QUANTITIES})
    if not models["test_accuracy"].notna().any():
        raise NothingToDraw("the ensemble of the run is not trained yet. Resume the run")
    return models


def _drawn(models: pd.DataFrame) -> pd.DataFrame:
    return models[models["test_accuracy"].notna()].head(_MOST)


@figure(height=300)
def ensemble_diversity(run: Run[Any], canvas: Figure) -> None:
    """The mean accuracy of an ensemble's members by their disagreement, a point per repeat of the run."""
    ensembles = _measured(run)
    if len(ensembles) < 2:
        raise NothingToDraw("the figure needs two or more ensembles, and the run trained one. Run it with --repeats")
    axes = canvas.subplots()
    x, y = ensembles["ppd"] * _PPD.factor, ensembles["members_test_accuracy"] * MEMBERS.factor
    axes.scatter(x, y, s=36, color=FOUND, alpha=0.6, linewidth=0)
    if len(ensembles) >= figures.BAND:
        axes.errorbar(x.mean(), y.mean(), y.std(), x.std(), color=FOUND, linewidth=1.2, zorder=2)
    rows = zip(ensembles.index, ensembles["members_test_accuracy"], ensembles["ppd"], strict=True)
    texts = (f"repeat {repeat}\nmembers {MEMBERS.show(mean)}\nPPD {_PPD.show(ppd)}" for repeat, mean, ppd in rows)
    figures.add_tooltips(axes, x, y, texts)
    axes.scatter(x.mean(), y.mean(), s=90, color=FOUND, edgecolor=SURFACE, zorder=3)
    axes.margins(0.15)
    figures.few_ticks(axes, 5)
    axes.set(xlabel=f"predictive disagreement, {_PPD.axis}", ylabel=MEMBERS.axis)


def diversity_section(run: Run[Any]) -> Section:
    """The members' accuracy by PPD for the ensembles of the repeats, and the table of means."""
    ensembles = _measured(run)
    title, rows = "Accuracy and diversity of the members", _diversity_table(run, ensembles)
    if len(ensembles) == 1:
        return Section("diversity", title, paragraphs([_text("accuracy_and_disagreement")]) + rows)
    return figure_section(
        "diversity",
        title,
        ensemble_diversity(run),
        description=f"Mean accuracy of the members by disagreement for {count(len(ensembles), 'ensemble')}.",
        caption=_text("diversity", bars=len(ensembles) >= figures.BAND),
        below=rows,
    )


def _measured(run: Run[Any]) -> pd.DataFrame:
    """The trained ensembles with two or more members, a row per repeat. Raises: NothingToDraw if there is none."""
    trained = [models for models in map(tables.trained_models, run.repeats or [run]) if len(models)]
    ensembles = pd.DataFrame([{**models.iloc[0], "members": len(models) - 1} for models in trained])
    ensembles = ensembles.assign(**{name: numbers(ensembles, name) for name in _OF_REPEATS})
    ensembles = ensembles[ensembles["ppd"].notna()]
    if ensembles.empty:
        raise NothingToDraw("the run has no trained ensemble with two or more members")
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
    return table([Column("Method"), *numeric(*headings)], [row], label="Accuracy and diversity of the members")


_TABLES: run_sections.Tables = {
    "training the pool": ("pool", TRIALS),
    "evaluating ensembles": (tables.SEARCH, TRIALS),
    "final training": ("final", TRIALS),
    "random architectures": ("baseline", TRIALS),
}


def measured(run: Run[Any]) -> measures.Measured:
    """The measures of the ensemble and of its members alone, and the test accuracy of random architectures."""
    models = tables.trained_models(run)
    spreads = {**measures.measured_networks(run), **tables.measured_attacks(run)}
    if models.empty:
        return spreads
    members = models["test_accuracy"].iloc[1:]
    of_ensemble = {key: Spread.of(models[key].iloc[:1], "") for key in ("test_nll", "ece", "ppd")}
    noun = "ensemble" if len(members) > 1 else "network"
    of_ensemble["test_accuracy"] = Spread.of(models["test_accuracy"].iloc[:1], noun)
    of_ensemble["members_test_accuracy"] = Spread.of(members if len(members) > 1 else (), "member")
    return spreads | {key: spread for key, spread in of_ensemble.items() if spread}


def headline(run: Run[Any]) -> Headline:
    """The test accuracies of the ensemble and its members, and the number of sampled ensembles."""
    best, sampled = run.best, tables.sampled_ensembles(run)
    members, models = tables.found_members(best), tables.trained_models(best)
    thing = "architecture" if len(members) == 1 else "ensemble"
    facts = {
        "Search": count(len(sampled), "ensemble") if len(sampled) else None,
        "Network": network_size(best.table("final", TRIALS)),
        "Failures": run_sections.failed(run, _TABLES),
    }
    if not members:
        return Headline(thing, "The run found no ensemble. See the failures below.", facts=facts)
    spreads = measures.over_repeats(run, measured)
    if models.empty or "test_accuracy" not in spreads:
        return Headline(thing, _text("untrained", members=len(members)), members, facts=facts)
    accuracy, alone = float(models["test_accuracy"].iloc[0]), models["test_accuracy"].iloc[1:].astype(float)
    gap = accuracy - alone.max()
    lead = _text(
        "lead",
        members=len(members),
        repeats=len(run.repeats),
        accuracy=TEST.show(accuracy),
        gap=points_between(gap) if len(alone) > 1 and math.isfinite(gap) else "",
    )
    shown = {key: spread for key, spread in spreads.items() if key.endswith("test_accuracy")}
    return Headline(thing, lead, members, run_sections.headline_cards(shown, ["test_accuracy"]), facts)


_CURVES = TrainingCurves(
    stages=(
        StageCurves(
            "supernet", "supernet", "of supernets", "of the supernet", in_full=False, accuracy="mixture_accuracy"
        ),
        StageCurves("pool", "pool", "of the pool", in_full=False),
        StageCurves("final", "final", "of the ensemble's members (final training)", color=FOUND),
        BASELINE,
    ),
    of_both=OWN_SCHEDULE,
    names_of=tables.names_of,
)


@figure(height=CURVES_HEIGHT)
def ensemble_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of an ensemble search: supernet or pool, members, random baseline."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    return _CURVES.section(run, ensemble_training_curves(run))


SECTIONS: Sequence[MakeSection] = (
    ensemble_result_section,
    attack_section,
    member_cells_section,
    diversity_section,
    *SAMPLING_SECTIONS,  # None for methods with a pool
    curves_section,
    *cost_sections(tables.names_of),
    section.names_section(
        tables.names_of, "architectures", "in the order of their accuracy as single networks, if known"
    ),
    run_sections.failures_section(_TABLES),
    run_sections.manifest_section,
)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The members of the trained ensemble; and the sampled ensembles or the pool, best first."""
    listings = []
    members = (run.document("final", tables.ENSEMBLE) or {"members": ()})["members"]
    if len(members) > 1:
        rows = [{"test_accuracy": m["test_accuracy"], "architecture": m.get("architecture")} for m in members]
        listings.append(Listing.of("members of the ensemble as single networks", rows))
    trials = run.table(tables.SEARCH, TRIALS)
    if "shared_loss" not in trials:
        chosen = tables.found_members(run)
        return [*listings, *list_trials(run.table("pool", TRIALS), "the pool", "validation_accuracy", chosen)]
    rows = [
        {
            "shared_loss": row["shared_loss"],
            "shared_accuracy": row["shared_accuracy"],
            "delta": row["delta"],
            "members": list(row["members"]),
            "failure": row["failure"],
        }
        for row in trials.sort_values("shared_loss").to_dict("records")
    ]
    size = count(run.config.member_count, "member")
    return [*listings, Listing.of(f"sampled ensembles of {size}, best first", rows)]


REPORT = Report[Any](measured=measured, headline=headline, sections=SECTIONS, listings=listings)
