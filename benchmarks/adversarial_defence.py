"""Every ensemble method under attack at toy size: one member attacked, all defend. Shu 2022, 5.3.6, Table 5.4.

Each method trains an ensemble of three networks of DARTS' space on digits, a cell of 8 channels each, once a seed; of
each run all members are attacked in turn on the same test images. `single-best` is left out, as an ensemble of one has
nobody to defend.

    python benchmarks/adversarial_defence.py --out attacked

What was interrupted goes on; `--images`, `--epsilon` and `--attacks` ask another question of the same runs.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import archray
from archray.cluster.cluster_settings import ClusterSettings
from archray.cluster.connect import connect

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
SIZE = {"space": "nasbench201", "data": "digits", "preset": "smoke", "ensemble_size": 3, "network__channels": 8}
FINAL = {"final__epochs": 12, "final__batch_size": 32}
SHARED = {  # of the methods with a supernet
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
    """Trains the ensemble of a method, or goes on with it."""
    method, own = METHODS[name]
    options = POOLED if method not in ("nesbs", "urs") else SHARED if method == "urs" else {**SHARED, **POSTERIOR}
    archray.search(method, **{**SIZE, **FINAL, **options, **own}, seed=seed, out=place, or_resume=True)


def ended(place: Path) -> bool:
    return (place / "architecture.json").exists()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs; one that exists is continued")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD")
    options = parser.parse_args(arguments)
    with connect(ClusterSettings(dashboard=False)):  # once, and not for every method
        for seed in range(options.seeds):
            for name in options.methods:
                place = options.out / name.replace(", ", "-").replace(" ", "-").lower() / f"seed-{seed:02d}"
                if not ended(place):
                    start = time.monotonic()
                    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                        search(name, seed, place)
                    print(f"{name}, seed {seed}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
