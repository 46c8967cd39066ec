"""Tables of an ensemble search, of the members, and of attacks. Shu 2022, ch. 5, Table 5.4.

Accuracies, PPD (pairwise predictive disagreement) and ECE (expected calibration error) are fractions, losses are in
nats, and sizes of attacks in units of a pixel.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from archray.files import Folder
from archray.platform.quantities import Spread, quantity_of, signed
from archray.platform.report.section import ShortNames, failures, finite_values, numbers, short_names
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import REPEAT, TRIALS
from archray.platform.run.run import Run
from archray.plurals import count

_text = texts_of(__package__)
SEARCH, SUPERNET, POSTERIOR_LEARNT = "search", "supernet", "posterior"  # stages
ENSEMBLE = "ensemble.json"  # of the final stage: the measures of the ensemble and of its members
POSTERIOR = "posterior.json"
MEMBERS = "members.parquet"  # of the search: a row per sampled member, with `shared_loss`, `shared_accuracy`, `failure`
OF_EACH = ("test_accuracy", "test_nll", "ece")  # measures of the ensemble and of each member
OF_ENSEMBLE = ("members_test_accuracy", "ppd")  # measures of the ensemble only
METRICS = ("shared_loss", "shared_accuracy")  # the first with a value ranks the sampled ensembles


def found_members(run: Run[Any]) -> list[str]:
    """The members of the selected ensemble; empty before the search has finished."""
    return list((run.found or {}).get("members", ()))


def names_of(run: Run[Any]) -> ShortNames:
    """Short names of the selected members, then of sampled or trained ones, by their accuracy as single networks."""
    best = run.best
    alone, pool = run.pooled(SEARCH, MEMBERS), best.table("pool", TRIALS)
    sampled = [member for row in run.pooled(SEARCH, TRIALS).get("members", ()) for member in row]
    return short_names(run, (*_by(alone, "shared_accuracy"), *sampled, *_by(pool, "validation_accuracy")))


def _by(frame: pd.DataFrame, accuracy: str) -> list[str]:
    """The architectures of a table, the highest `accuracy` first."""
    if "architecture" not in frame:
        return []
    best = numbers(frame, accuracy).sort_values(ascending=False, kind="stable").index
    return list(frame["architecture"].reindex(best))


def trained_models(run: Run[Any]) -> pd.DataFrame:
    """A row for the ensemble, then one per member: `kind`, `name`, `architecture`, `test_accuracy`, `test_nll`, `ece`,
    and for the ensemble `members_test_accuracy` and `ppd`. Empty before the final training."""
    measured = run.document("final", ENSEMBLE)
    if measured is None:
        return pd.DataFrame()
    size = len(measured["members"])
    name = f"ensemble of {size}" if size > 1 else "network"
    ensemble = {"kind": "ensemble", "name": name, **{key: measured[key] for key in OF_ENSEMBLE}}
    rows = [ensemble | {key: measured[key] for key in OF_EACH}]
    for number, member in enumerate(measured["members"], start=1):
        described = {"kind": "member", "name": f"member {number}", "architecture": member.get("architecture")}
        rows.append(described | {key: member[key] for key in OF_EACH})
    return pd.DataFrame(rows)


def sampled_ensembles(run: Run[Any]) -> pd.DataFrame:
    """A row per sampled ensemble of every repeat, in order; empty if none has a finite loss or accuracy.

    Columns: `repeat`, `sampler`, `evaluations` (so far in this repeat, from 1), `delta` (NaN if the sampler has no
    delta), `temperature`, `members` (a tuple), `shared_loss`, `shared_accuracy` (NaN for a failure), `failure`.
    """
    frame = run.pooled(SEARCH, TRIALS)
    reasons = failures(frame)
    rows = pd.DataFrame(
        {
            "repeat": frame["repeat"],
            "sampler": frame.get("sampler"),
            "members": [tuple(map(str, members)) for members in frame.get("members", [()] * len(frame))],
            "failure": reasons,
            **{name: numbers(frame, name) for name in ("delta", "temperature")},
            **{name: numbers(frame, name).where(reasons.isna()) for name in METRICS},
        },
        index=frame.index,
    )
    if not rows[list(METRICS)].notna().any(axis=None):
        return pd.DataFrame()
    return rows.assign(evaluations=rows.groupby("repeat", sort=False).cumcount() + 1)


def known_metrics(sampled: pd.DataFrame) -> list[str]:
    """The metrics with a value; the first ranks the ensembles."""
    return [name for name in METRICS if sampled[name].notna().any()]


def sampled_texts(sampled: pd.DataFrame, names: ShortNames) -> list[str]:
    """The tooltips of the sampled ensembles."""
    shown = {name: quantity_of(name) for name in known_metrics(sampled)}
    several = sampled["repeat"].nunique() > 1
    texts = []
    for row in sampled.to_dict("records"):
        lines = [f"ensemble {row['evaluations']}" + (f" of repeat {row['repeat']}" if several else "")]
        lines += [", ".join(map(str, names.all_of(row["members"])))]
        lines += [quantity.text(row[name]) for name, quantity in shown.items()]
        lines += [] if math.isnan(row["delta"]) else [f"δ = {signed(format(row['delta'], '.3g'))}"]
        texts.append("\n".join(lines))
    return texts


def chosen_ensemble(run: Run[Any], sampled: pd.DataFrame) -> int | None:
    """The row of the selected ensemble, the best and first among equals; None if it was not sampled."""
    members = sorted(found_members(run.best))
    if not members or sampled.empty:
        return None
    same = sampled[[sorted(row) == members for row in sampled["members"]]]
    values = same[known_metrics(sampled)[0]].dropna()
    return int(values.index[int(values.to_numpy().argmin())]) if len(values) else None


def estimates(run: Run[Any]) -> pd.DataFrame:
    """A row per trained member: `name`, `shared_accuracy` and `test_accuracy`.

    Empty without shared weights, or before the final training."""
    shared, measured = run.table(SEARCH, MEMBERS), run.document("final", ENSEMBLE)
    if measured is None or shared.empty:
        return pd.DataFrame()
    accuracies = dict(zip(shared["architecture"], shared["shared_accuracy"], strict=True))
    members = pd.DataFrame(measured["members"])[["architecture", "test_accuracy"]]
    members.insert(1, "shared_accuracy", members["architecture"].map(accuracies))
    return members.rename(columns={"architecture": "name"})


_PART = 0.25  # share of the epochs over which ELBOs are averaged: the ELBO of one epoch is a noisy estimate
_LOST = 0.5  # share of the ELBO's gain; a larger loss is not noise of the estimates
# Our choice. In Guo et al. 2017, Table 1, uncalibrated networks have 3.0 to 4.6 % on CIFAR-10, below this limit, and
# four of five have 10.4 to 16.5 % on CIFAR-100, above it.
POOR_ECE = 0.05
_ECE = quantity_of("ece")


def elbo_doubt(elbo: pd.Series) -> str | None:
    """A warning if the ELBO fell during training, None otherwise. elbo: by epoch, in order."""
    finite = elbo.dropna()
    if len(finite) < 2:
        return None
    part = max(1, round(_PART * len(finite)))
    means = finite.rolling(part).mean().dropna()
    first, last, highest = float(means.iloc[0]), float(means.iloc[-1]), float(means.max())
    over = f"means of {count(part, 'epoch')}" if part > 1 else f"in {count(len(finite), 'epoch')}"
    if last < first:
        return _text("elbo_below_start", first=first, last=last, over=over)
    lost = highest - last
    if lost > _LOST * (highest - first):
        lost /= highest - first
        return _text("elbo_below_highest", epoch=means.idxmax(), highest=highest, last=last, lost=lost, over=over)
    return None


def calibration_doubt(ece: pd.Series) -> str | None:
    """A warning if the ensemble is poorly calibrated, None otherwise. ece: of the ensemble, then of its members."""
    ensemble, members = float(ece.iloc[0]), finite_values(ece.iloc[1:])
    if math.isnan(ensemble) or ensemble < POOR_ECE:
        return None
    mean = _ECE.show(float(members.mean())) if members.size > 1 and ensemble > members.mean() else ""
    return _text("poor_calibration", ece=_ECE.show(ensemble), limit=f"{100 * POOR_ECE:.0f}", members=mean)


ATTACK = "attack"  # the folder of the following files in a run
QUESTION = "attack.json"  # settings: attacks, their strength, number of images
PARTS = "parts"  # a table per finished round
IMAGES = "images.parquet"  # a row per round and image
ROUNDS = "attack_rounds.parquet"  # a row per round
ATTACKS = "attacks.parquet"  # a row per attack
ENDED = "ended.json"  # written last, after all rounds
ATTACKED, TRANSFERRED = "attack_accuracy", "transfer_accuracy"
DEFENDED, CONTROL = "defense_accuracy", "noise_accuracy"
BENIGN = ("benign_member_accuracy", "benign_accuracy")
ACCURACIES = (*BENIGN, ATTACKED, TRANSFERRED, DEFENDED, "noise_member_accuracy", CONTROL)
MEASURES = (*ACCURACIES, "linf", "l2", "seconds")


def round_of(images: pd.DataFrame) -> dict[str, float]:
    """The measures of one round from its table of images: means, the maximum for `linf`, the sum for `seconds`."""

    def accuracy(column: str) -> float:
        return float((images[column] == images["label"]).mean())

    return {
        "benign_member_accuracy": accuracy("benign_member"),
        "benign_accuracy": accuracy("benign_ensemble"),
        ATTACKED: accuracy("attacked_member"),
        TRANSFERRED: float(images["transfer"].mean()),
        DEFENDED: accuracy("attacked_ensemble"),
        "noise_member_accuracy": accuracy("noise_member"),
        CONTROL: accuracy("noise_ensemble"),
        "linf": float(images["linf"].max()),
        "l2": float(images["l2"].mean()),
        "seconds": float(images["seconds"].sum()),
    }


def write_tables(folder: Folder, parts: Mapping[tuple[str, int], pd.DataFrame]) -> pd.DataFrame:
    """Writes the three tables from the rounds by (attack, member). Returns: the table of attacks."""
    every = [table.assign(attack=attack, member=member) for (attack, member), table in parts.items()]
    images = pd.concat(every, ignore_index=True)
    columns = ["attack", "member"]
    folder.write_parquet(IMAGES, images[[*columns, *(name for name in images if name not in columns)]])
    rounds = pd.DataFrame(
        {"attack": attack, "member": member, "images": len(table), **round_of(table)}
        for (attack, member), table in parts.items()
    )
    folder.write_parquet(ROUNDS, rounds)
    attacks = over_rounds(rounds)
    folder.write_parquet(ATTACKS, attacks)
    return attacks


def over_rounds(rounds: pd.DataFrame) -> pd.DataFrame:
    """A row per attack: `attack`, `rounds`, `images`, and for each measure mean and deviation (n - 1) as `KEY_std`."""
    rows = []
    for attack, group in rounds.groupby("attack", sort=False):
        row: dict[str, Any] = {"attack": attack, "rounds": len(group), "images": int(group["images"].iloc[0])}
        for key in MEASURES:
            row |= {key: group[key].mean(), f"{key}_std": group[key].std() if len(group) > 1 else np.nan}
        rows.append(row)
    return pd.DataFrame(rows)


def attacked_rounds(run: Run[Any]) -> pd.DataFrame:
    """The rounds of a run whose attack has finished; empty otherwise."""
    return run.table(ATTACK, ROUNDS) if (run.folder / ATTACK).exists(ENDED) else pd.DataFrame()


def attack_question(folder: Folder) -> dict[str, Any] | None:
    """The settings of the finished attack of the run in a folder; for repeats, of the first one."""
    repeats = [folder / name for name in folder.folders() if name.startswith(REPEAT)]
    places = [place / ATTACK for place in (folder, *repeats)]
    return next((place.read_json(QUESTION) for place in places if place.exists(ENDED)), None)


def measured_attacks(run: Run[Any]) -> dict[str, Spread]:
    """The defense accuracy under each attack over its rounds; the key is the attack's name and `_defense_accuracy`."""
    rounds = attacked_rounds(run)
    if rounds.empty:
        return {}
    groups = rounds.groupby("attack", sort=False)[DEFENDED]
    spreads = {f"{attack}_{DEFENDED}": Spread.of(values, "round") for attack, values in groups}
    return {key: spread for key, spread in spreads.items() if spread}
