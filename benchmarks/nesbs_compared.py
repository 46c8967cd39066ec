"""NESBS against other ensemble methods, on NAS-Bench-201's space, paired over seeds. Shu 2022, Table 5.1.

Every method is the command of that name with the preset `demo`. The first four methods of a seed have the same
supernet. Each method returns an ensemble of three networks, trained with the same settings (`single-best`: one).

    python benchmarks/nesbs_compared.py --out nesbs-runs
    python benchmarks/nesbs_compared.py --out nesbs-glyphs --data glyphs --image-size 16

The same command resumes an interrupted benchmark, and adds further methods.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pandas as pd
import ray

import archray
from archray.cluster.loopback import loopback_only

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "NESBS, SVGD-RD": ("nesbs", {}),
    "NESBS, MC": ("nesbs", {"sampler": "mc"}),
    "uniform random ensembles": ("urs", {}),
    "single best": ("single-best", {}),
    "deep ensemble": ("deep-ensemble", {}),
    "snapshot": ("snapshot", {}),
    "NES-RS": ("nes-rs", {}),
    "NES-RE": ("nes-re", {}),
}
FIRST = "NESBS, SVGD-RD"
BEST_MEMBER = "its best member on validation"


def run(out: Path, names: Sequence[str], options: argparse.Namespace) -> pd.DataFrame:
    """Runs the methods seed by seed, so that finished runs can be compared in pairs. Returns a row per seed and method.

    Columns: test accuracy, NLL and calibration error of the ensemble, mean test accuracy of its members, PPD.
    """
    rows = []
    for seed in range(options.seeds):
        for name in names:
            place = out / name.replace(", ", "-").replace(" ", "-").lower() / f"seed-{seed:02d}"
            final = place / "final"
            if not (final / "ensemble.json").exists():
                start = time.monotonic()
                with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                    _search(name, seed, place, options)
                print(f"{name}, seed {seed}: {time.monotonic() - start:.0f} s", flush=True)
            ensemble = json.loads((final / "ensemble.json").read_text())
            rows.append({"method": name, "seed": seed, **{k: ensemble[k] for k in MEASURES}})
            if name == FIRST:
                rows.append({"method": BEST_MEMBER, "seed": seed, **best_member(final, ensemble)})
    return pd.DataFrame(rows)


def _search(name: str, seed: int, place: Path, options: argparse.Namespace) -> None:
    method, options_of_method = METHODS[name]
    if (place / "manifest.json").exists():
        archray.resume(place)
        return
    archray.search(
        method,
        space="nasbench201",
        data=options.data,
        data__image_size=options.image_size,
        preset="demo",
        seed=seed,
        out=place,
        **options_of_method,
    )


MEASURES = ("test_accuracy", "test_nll", "ece", "members_test_accuracy", "ppd")


def best_member(final: Path, ensemble: dict[str, Any]) -> dict[str, float]:
    """Returns the measures of the member with the best validation accuracy of its training run."""
    trials = pd.read_parquet(final / "trials.parquet").set_index("seed")["validation_accuracy"]
    member = max(ensemble["members"], key=lambda candidate: float(trials[candidate["seed"]]))
    return {**{k: member[k] for k in MEASURES[:3]}, **dict.fromkeys(MEASURES[3:], math.nan)}


def markdown(table: pd.DataFrame) -> str:
    """Formats means over seeds ± standard deviation, and the difference to NESBS in pairs of equal seeds."""
    first = table[table["method"] == FIRST].set_index("seed")["test_accuracy"]
    lines = [
        "| | test accuracy, % | paired difference to NESBS | NLL | ECE, % | members alone, % | PPD, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in table.groupby("method", sort=False):
        accuracies = rows.set_index("seed")["test_accuracy"]
        difference = "" if name == FIRST else _percent(accuracies - first)
        rest = [f"{rows['test_nll'].mean():.3f}", *(f"{100 * rows[k].mean():.2f}" for k in MEASURES[2:])]
        lines.append(f"| {name} | {_percent(accuracies)} | {difference} | {' | '.join(rest)} |".replace("nan", "-"))
    return "\n".join(lines)


def _percent(values: pd.Series) -> str:
    return f"{100 * values.mean():.2f} ± {100 * values.std():.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Completes the missing runs, and prints the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs; finished runs in it are reused")
    parser.add_argument("--data", default="digits", help="data set of images (default: %(default)s)")
    parser.add_argument("--image-size", type=int, help="pixels per side of the resized images")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    options = parser.parse_args(arguments)
    with loopback_only():  # once for all methods
        ray.init(address="local", include_dashboard=False, log_to_driver=False)
    table = run(options.out, options.methods, options)
    table.to_parquet(options.out / "results.parquet")
    print(markdown(table))


if __name__ == "__main__":
    main()
