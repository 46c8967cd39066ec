"""Milliseconds of HNAS: the selection in a pool of 10^6 rows, and a suggestion by the number of trials.

    OMP_NUM_THREADS=1 python benchmarks/hnas_suggest.py

The times are processor times of one thread, which do not depend on other work on the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from archray.searchers import HNASSearch


def pool(folder: Path, rows: int) -> Path:
    """Draws a table of random rows with heavy tails, like metrics."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"architecture": np.char.add("a", np.arange(rows).astype(str))})
    path = folder / f"pool-{rows}.parquet"
    table.assign(snip=rng.lognormal(0, 2, rows), kappa=rng.lognormal(4, 2, rows)).to_parquet(path)
    return path


def selection(path: Path, repeats: int) -> list[float]:
    """Returns the milliseconds of the argmin for a (mu, nu), without the first call."""
    search = HNASSearch(path, "snip", metric="value", mode="max")
    rng, left_out = np.random.default_rng(0), np.zeros(len(search.pool), dtype=bool)
    taken = []
    for _ in range(repeats + 1):
        start = time.process_time()
        mu, nu = search.coordinates.mu_nu([rng.random(), rng.uniform(-2, 2)])
        row = search.selection.lowest(mu, nu, left_out)
        taken.append(1e3 * (time.process_time() - start))
        left_out[row] = True
    return taken[1:]


def suggestions(path: Path, points: str, budget: int) -> list[float]:
    """Returns the milliseconds of `suggest` by the number of the trial."""
    search = HNASSearch(path, "snip", budget=budget, points=points, metric="value", mode="max")
    rng, taken = np.random.default_rng(0), []
    for number in range(budget):
        start = time.process_time()
        search.suggest(f"t{number}")
        taken.append(1e3 * (time.process_time() - start))
        search.on_trial_complete(f"t{number}", {"value": float(rng.random())})
    return taken


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints two tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[5_043, 15_625, 10**6], help="sizes of the pools")
    parser.add_argument(
        "--points", nargs="+", default=["uniform", "selections", "bayesian"], help="strategies for points"
    )
    parser.add_argument("--budget", type=int, default=100, help="trials (default: %(default)s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        print("| rows | argmin, ms (median) | fastest |\n|---|---|---|")
        paths = {rows: pool(Path(folder), rows) for rows in options.rows}
        for rows, path in paths.items():
            taken = selection(path, 30)
            print(f"| {rows:,} | {np.median(taken):.2f} | {min(taken):.2f} |", flush=True)
        print("\n| rows | points | suggest, ms: median | of trials 6 to 20 | of the last ten |\n|---|---|---|---|---|")
        for rows, path in paths.items():
            for points in options.points:
                budget = options.budget if rows < 10**5 else min(20, options.budget)
                taken = suggestions(path, points, budget)
                spans = [f"{np.median(part):.1f}" for part in (taken[5:], taken[5:20], taken[-10:])]
                print(f"| {rows:,} | {points}, {budget} trials | {' | '.join(spans)} |", flush=True)


if __name__ == "__main__":
    main()
