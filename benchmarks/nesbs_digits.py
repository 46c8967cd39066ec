"""NESBS against what it is compared with, on NAS-Bench-201's space and digits, paired over seeds. Shu 2022, Table 5.1.

Every method is the command of that name with the preset `demo`; repeat r of each has the seed r, and with it the same
split of the data, and for the first four the same supernet. All end in an ensemble of three networks, trained alike
(`single-best` in one).

    python benchmarks/nesbs_digits.py --out nesbs-runs
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
    """A row per method and seed: test accuracy, NLL and calibration error of the ensemble, the mean test
    accuracy of its members, PPD."""
    rows = []
    for name in names:
        method, given = METHODS[name]
        place = out / name.replace(", ", "-").replace(" ", "-").lower()
        start = time.monotonic()
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            if (place / "manifest.json").exists():
                archray.resume(place)
            else:
                archray.search(
                    method,
                    space="nasbench201",
                    data="digits",
                    preset="demo",
                    repeats=options.seeds,
                    out=place,
                    **given,
                )
        print(f"{name}: {options.seeds} runs, {time.monotonic() - start:.0f} s", flush=True)
        for seed in range(options.seeds):
            final = place / f"repeat-{seed:02d}" / "final"
            told = json.loads((final / "ensemble.json").read_text())
            rows.append({"method": name, "seed": seed, **{k: told[k] for k in MEASURES}})
            if name == FIRST:
                rows.append({"method": BEST_MEMBER, "seed": seed, **best_member(final, told)})
    return pd.DataFrame(rows)


MEASURES = ("test_accuracy", "test_nll", "ece", "members_test_accuracy", "ppd")


def best_member(final: Path, told: dict[str, Any]) -> dict[str, float]:
    """The measures of the member with the best validation accuracy of its own training."""
    trials = pd.read_parquet(final / "trials.parquet").set_index("seed")["validation_accuracy"]
    member = max(told["members"], key=lambda each: float(trials[each["seed"]]))
    return {**{k: member[k] for k in MEASURES[:3]}, **dict.fromkeys(MEASURES[3:], math.nan)}


def markdown(table: pd.DataFrame) -> str:
    """Means over seeds ± standard deviation, and the difference to NESBS in pairs of equal seeds."""
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
    """Runs what is left to run, and prints the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs; one that exists is continued")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    options = parser.parse_args(arguments)
    ray.init(include_dashboard=False, log_to_driver=False)  # once, and not for every method
    table = run(options.out, options.methods, options)
    table.to_parquet(options.out / "results.parquet")
    print(markdown(table))


if __name__ == "__main__":
    main()
