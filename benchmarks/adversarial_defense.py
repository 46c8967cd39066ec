"""Accuracy of every ensemble method under attack, at toy size. Shu 2022, 5.3.6, Table 5.4.

For each seed, each method trains an ensemble of three networks of NAS-Bench-201's space on digits, with cells of 8
channels (`mc-droppath`: networks of DARTS' space). The script attacks every member of each run in turn, on the same
test images, in this process. `single-best` is left out, because an ensemble of one has no other member.

    python benchmarks/adversarial_defense.py --out attacked

The same command resumes an interrupted benchmark. `--images`, `--epsilon` and `--set` attack the same runs with other
settings. `--table` starts no search and reads the finished runs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pandas as pd

import archray
from archray.cluster.connect import connect
from archray.cluster.settings import ClusterSettings
from archray.files import whole_file
from archray.platform.config import merge, parse_assignment
from archray.platform.methods import open_run
from archray.platform.methods.ensembles.attack import AttackQuestion, check_attack
from archray.platform.methods.ensembles.tables import round_of
from archray.platform.run.layout import MODEL
from archray.platform.run.manifest import digest
from archray.trainables.adversarial.attacks import ATTACKS
from archray.trainables.adversarial.defense import AttackWorker

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "deep ensemble": ("deep-ensemble", {}),
    "snapshot": ("snapshot", {}),
    "NES-RS": ("nes-rs", {}),
    "NES-RE": ("nes-re", {}),
    "uniform random": ("urs", {}),
    "NESBS, MC": ("nesbs", {"search__sampler": {"name": "mc"}}),
    "NESBS, SVGD-RD": ("nesbs", {"search__sampler": {"name": "svgd-rd", "iterations": 100}}),
    "MC-DropPath": ("mc-droppath", {"space": "darts"}),  # the networks of the others have no paths to drop
}
SIZE: dict[str, Any] = {
    "space": "nasbench201",
    "data": "digits",
    "preset": "smoke",
    "ensemble_size": 3,
    "network__channels": 8,
}
FINAL = {"final__epochs": 12, "final__batch_size": 32}
SHARED = {  # options of methods with a supernet
    "supernet__network__channels": 8,
    "epochs": 15,
    "budget": 4,
}
POSTERIOR = {
    "posterior_epochs": 10,
    "posterior__posterior": {"scale": "data", "estimator": "score-function", "samples": 2},
    "posterior__batch_size": 32,
}
POOLED = {"budget": 4, "epochs": 3}


def search(name: str, seed: int, place: Path) -> None:
    """Trains the ensemble of a method, or resumes the run."""
    method, options_of_method = METHODS[name]
    options = POOLED if method not in ("nesbs", "urs") else SHARED if method == "urs" else {**SHARED, **POSTERIOR}
    archray.search(method, **{**SIZE, **FINAL, **options, **options_of_method}, seed=seed, out=place, or_resume=True)


def place_of(out: Path, name: str, seed: int) -> Path:
    return out / name.replace(", ", "-").replace(" ", "-").lower() / f"seed-{seed:02d}"


def attacked(place: Path, question: AttackQuestion) -> pd.DataFrame:
    """Returns a row per attack and round of a run. Attacks only the members without a row."""
    file = place.parent / f"{place.name}-{digest(question.model_dump(mode='json'))}.parquet"
    rounds = pd.read_parquet(file) if file.exists() else pd.DataFrame(columns=["attack", "member"])
    done = set(zip(rounds["attack"], rounds["member"], strict=True))
    missing = [item for item in itertools.product(question.attacks, range(SIZE["ensemble_size"])) if item not in done]
    if not missing:
        return rounds
    run = open_run(str(place))
    checked = check_attack(run, question)
    worker = AttackWorker(
        model=str(run.folder / MODEL),
        space=run.space,
        data=run.data.model_dump(mode="json"),
        images=checked.images,
        settings=checked.settings.model_dump(mode="json"),
        seed=checked.seed,
        device="auto",
    )
    for attack, member in missing:
        row = pd.DataFrame([{"attack": attack, "member": member, **round_of(worker((attack, member)))}])
        rounds = row if rounds.empty else pd.concat([rounds, row], ignore_index=True)
        with whole_file(file) as stream:
            rounds.to_parquet(stream, index=False)
    return rounds


def markdown(rounds: pd.DataFrame) -> str:
    """Formats a row per method and attack: mean ± standard deviation over seeds of the mean over rounds, in percent.

    The last columns count the rounds in which the defense accuracy exceeds the attack's, or is below the noise's.
    """
    columns = {
        "benign_member_accuracy": "member, benign",
        "attack_accuracy": "attack",
        "transfer_accuracy": "transfer",
        "benign_accuracy": "ensemble, benign",
        "defense_accuracy": "defense",
        "noise_accuracy": "noise",
    }
    lines = [f"| method | attack | {' | '.join(columns.values())} | defense > attack | defense < noise |"]
    lines.append("|---" * (len(columns) + 4) + "|")
    for (method, attack), rows in rounds.groupby(["method", "attack"], sort=False):
        means = rows.groupby("seed")[list(columns)].mean()
        cells = [f"{100 * means[key].mean():.1f} ± {100 * means[key].std():.1f}" for key in columns]
        wins = (rows["defense_accuracy"] > rows["attack_accuracy"]).sum()
        below = (rows["defense_accuracy"] < rows["noise_accuracy"]).sum()
        seeds = rows["seed"].nunique()
        lines.append(
            f"| {method} ({seeds}) | {ATTACKS.get(str(attack)).title} | {' | '.join(cells)} | {wins} of {len(rows)} | "
            f"{below} of {len(rows)} |"
        )
    return "\n".join(lines).replace(" ± nan", "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Completes the missing runs, and prints the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs; finished runs in it are reused")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    parser.add_argument("--attacks", nargs="+", default=["fgsm", "pgd", "cw", "autoattack"])
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--epsilon", type=float, default=8 / 255)
    parser.add_argument("--set", nargs="*", default=["autoattack.queries=500"], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--table", action="store_true", help="print the table of the finished runs")
    options = parser.parse_args(arguments)
    settings = merge({"epsilon": options.epsilon}, *map(parse_assignment, options.settings))
    questions = [
        AttackQuestion.model_validate({"attacks": [name], "images": options.images, "settings": settings})
        for name in options.attacks
    ]
    places = {
        (seed, name): place_of(options.out, name, seed) for seed in range(options.seeds) for name in options.methods
    }
    if not options.table:
        _search(places)
    tables = []
    for question, ((seed, name), place) in itertools.product(questions, places.items()):
        if (place / "architecture.json").exists():
            tables.append(attacked(place, question).assign(method=name, seed=seed))
            print(f"{name}, seed {seed}: {question.attacks[0]}", file=sys.stderr, flush=True)
    rounds = pd.concat(tables, ignore_index=True)
    print(markdown(rounds.sort_values("method", kind="stable", key=lambda column: column.map(list(METHODS).index))))


def _search(places: dict[tuple[int, str], Path]) -> None:
    missing = {key: place for key, place in places.items() if not (place / "architecture.json").exists()}
    if not missing:
        return
    with connect(ClusterSettings(dashboard=False)):  # once for all methods
        for (seed, name), place in missing.items():
            start = time.monotonic()
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                search(name, seed, place)
            print(f"{name}, seed {seed}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
