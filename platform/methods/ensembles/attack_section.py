"""An ensemble under attack, in its report: a member attacked, all defending, and noise of the same size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.ensembles.attack_tables import (
    ATTACKED,
    BENIGN,
    CONTROL,
    DEFENDED,
    TRANSFERRED,
    attack_question,
    attacked_rounds,
    over_rounds,
)
from archray.platform.quantities import Spread, quantity_of
from archray.platform.report.figures import FOUND, GREEN, RANDOM, TRIAL, NothingToDraw, drawing, figure, tell_points
from archray.platform.report.section import Column, Section, captioned, numeric, table
from archray.platform.run.layout import command
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.adversarial.registry import ATTACKS

_BARS = {ATTACKED: RANDOM, TRANSFERRED: TRIAL, DEFENDED: FOUND, CONTROL: GREEN}
_COLUMNS = (*BENIGN, ATTACKED, TRANSFERRED, DEFENDED, "noise_member_accuracy", CONTROL)


@figure(height=300)
def ensemble_defence(run: Run[Any], canvas: Figure) -> None:
    """Accuracy under each attack: of the attacked member, of the others alone, of the ensemble, and under noise."""
    rounds = _attacked(run)
    attacks = over_rounds(rounds)
    axes = canvas.subplots()
    width = 0.8 / len(_BARS)
    places = np.arange(len(attacks))
    for number, (key, colour) in enumerate(_BARS.items()):
        quantity = quantity_of(key)
        x = places + (number - (len(_BARS) - 1) / 2) * width
        means, deviations = (attacks[column] * quantity.factor for column in (key, f"{key}_std"))
        axes.bar(x, means, 0.9 * width, color=colour, label=quantity.label, zorder=2)
        axes.errorbar(x, means, deviations.fillna(0), fmt="none", ecolor=TRIAL, elinewidth=1, capsize=2, zorder=3)
        titles = [ATTACKS.get(name).title for name in attacks["attack"]]
        spreads = [quantity.spread(rounds[rounds["attack"] == name][key]) for name in attacks["attack"]]
        tell_points(axes, x, means, [f"{a}\n{quantity.label} {s}" for a, s in zip(titles, spreads, strict=True)])
    benign = quantity_of("benign_accuracy")
    axes.axhline(
        float(rounds["benign_accuracy"].mean()) * benign.factor,
        color=FOUND,
        linewidth=1,
        linestyle=(0, (4, 3)),
        label=benign.label,
        zorder=1,
    )
    axes.set_xticks(places, [ATTACKS.get(name).title for name in attacks["attack"]])
    axes.set_ylim(0, 100)
    axes.set_ylabel("accuracy (%)")
    axes.grid(False, axis="x")
    canvas.legend(loc="outside upper center", ncols=2)


def attack_section(run: Run[Any]) -> Section:
    """The figure, and the table: a row an attack, means and standard deviations over rounds."""
    rounds = _attacked(run)
    attacks = over_rounds(rounds)
    told = ", ".join(
        f"{ATTACKS.get(name).title} {quantity_of(DEFENDED).show(value)}"
        for name, value in zip(attacks["attack"], attacks[DEFENDED], strict=True)
    )
    content = drawing("defence", ensemble_defence(run), description=f"Accuracy of the ensemble under attack: {told}.")
    body = captioned(content, _caption(run, rounds)) + _table(rounds)
    return Section("attack", "Under attack", body)


def _attacked(run: Run[Any]) -> pd.DataFrame:
    rounds = attacked_rounds(run.best)
    if rounds.empty:
        raise NothingToDraw(f"this run was not attacked; {command('attack', run.folder)}")
    return rounds


def _caption(run: Run[Any], rounds: pd.DataFrame) -> str:
    question = attack_question(run.best.folder) or {}
    members, images = rounds["member"].nunique(), int(rounds["images"].iloc[0])
    epsilon = question["settings"]["epsilon"]
    return (
        f"In each of {count(members, 'round')} another member is attacked, on {count(images, 'test image')}, by "
        f"somebody who has its weights, and the ensemble predicts the images that came of it. ε = {255 * epsilon:.3g}"
        "/255 of a pixel in 0..1, of the attacks bounded by L∞; CW is bounded by nothing and makes the change small. "
        "Transfer: the other members on the same images, each alone. Noise: random changes of the same size. Bars are "
        "means, their ends one standard deviation over the rounds. As Table 5.4 of Shu 2022."
    )


def _table(rounds: pd.DataFrame) -> str:
    columns = [Column("Attack"), *numeric(*(quantity_of(key).heading for key in _COLUMNS), "L∞", "L2")]
    rows = []
    for name, group in rounds.groupby("attack", sort=False):
        cells = [quantity_of(key).spread(Spread.of(group[key])).removesuffix(" %") for key in _COLUMNS]
        rows.append((ATTACKS.get(str(name)).title, *cells, f"{group['linf'].max():.4f}", f"{group['l2'].mean():.3f}"))
    return table(columns, rows, label="Accuracy under attack")
