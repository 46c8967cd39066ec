"""The tables of an attacked ensemble: images, rounds, attacks. Accuracies are fractions, sizes in units of a pixel.

As Table 5.4 of Shu 2022: attack and defence, mean and standard deviation over rounds, a round a member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from archray.files import Folder
from archray.platform.quantities import Spread
from archray.platform.run.layout import REPEAT
from archray.platform.run.run import Run

ATTACK = "attack"  # of a run that was attacked: the folder of what follows
QUESTION = "attack.json"  # which attacks, how strong, on how many images
PARTS = "parts"  # a table a round, as it comes
IMAGES = "images.parquet"  # a row a round and image
ROUNDS = "attack_rounds.parquet"  # a row a round
ATTACKS = "attacks.parquet"  # a row an attack
ENDED = "ended.json"  # once all rounds are there, written last
ATTACKED, TRANSFERRED, DEFENDED, CONTROL = (
    "attack_accuracy",
    "transfer_accuracy",
    "defence_accuracy",
    "noise_accuracy",
)
BENIGN = ("benign_member_accuracy", "benign_accuracy")
MEASURES = (*BENIGN, ATTACKED, TRANSFERRED, DEFENDED, "noise_member_accuracy", CONTROL, "linf", "l2", "seconds")


def round_of(images: pd.DataFrame) -> dict[str, float]:
    """The measures of one round, from its table of images: means, `linf` the largest, `seconds` the sum."""

    def accuracy(column: str) -> float:
        return float((images[column] == images["label"]).mean())

    values = (
        accuracy("benign_member"),
        accuracy("benign_ensemble"),
        accuracy("attacked_member"),
        float(images["transfer"].mean()),
        accuracy("attacked_ensemble"),
        accuracy("noise_member"),
        accuracy("noise_ensemble"),
        float(images["linf"].max()),
        float(images["l2"].mean()),
        float(images["seconds"].sum()),
    )
    return dict(zip(MEASURES, values, strict=True))


def write_tables(folder: Folder, parts: Mapping[tuple[str, int], pd.DataFrame]) -> pd.DataFrame:
    """Writes the three tables of rounds by (attack, member); returns that of attacks, in the order of the rounds."""
    every = [table.assign(attack=attack, member=member) for (attack, member), table in parts.items()]
    images = pd.concat(every, ignore_index=True)
    columns = ["attack", "member"]
    folder.write_parquet(IMAGES, images[[*columns, *(name for name in images if name not in columns)]])
    rounds = pd.DataFrame(
        [
            {"attack": attack, "member": member, "images": len(table), **round_of(table)}
            for (attack, member), table in parts.items()
        ]
    )
    folder.write_parquet(ROUNDS, rounds)
    attacks = over_rounds(rounds)
    folder.write_parquet(ATTACKS, attacks)
    return attacks


def over_rounds(rounds: pd.DataFrame) -> pd.DataFrame:
    """A row an attack: `attack`, `rounds`, `images`, and of each measure mean and, as `KEY_std`, deviation (n - 1)."""
    rows = []
    for attack, group in rounds.groupby("attack", sort=False):
        row: dict[str, Any] = {"attack": attack, "rounds": len(group), "images": int(group["images"].iloc[0])}
        for key in MEASURES:
            row |= {key: group[key].mean(), f"{key}_std": group[key].std() if len(group) > 1 else np.nan}
        rows.append(row)
    return pd.DataFrame(rows)


def attacked_rounds(run: Run[Any]) -> pd.DataFrame:
    """The rounds of a run whose attack has ended; empty otherwise."""
    return run.table(ATTACK, ROUNDS) if (run.folder / ATTACK).exists(ENDED) else pd.DataFrame()


def attack_question(folder: Folder) -> dict[str, Any] | None:
    """What the attack of the run in a folder asked, where it has ended; of several repeats, of the first."""
    repeats = [folder / name for name in folder.folders() if name.startswith(REPEAT)]
    places = [place / ATTACK for place in (folder, *repeats)]
    return next((place.read_json(QUESTION) for place in places if place.exists(ENDED)), None)


def measured_attacks(run: Run[Any]) -> dict[str, Spread]:
    """The defence accuracy under each attack, over its rounds, as `FGSM_defence_accuracy` with the attack's name."""
    rounds = attacked_rounds(run)
    if rounds.empty:
        return {}
    groups = rounds.groupby("attack", sort=False)[DEFENDED]
    spreads = {f"{attack}_{DEFENDED}": Spread.of(values, "round") for attack, values in groups}
    return {key: spread for key, spread in spreads.items() if spread}
