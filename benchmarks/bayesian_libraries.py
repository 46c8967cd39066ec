"""Compares the two libraries of HNAS's Bayesian optimization, and random points, on tables.

    OMP_NUM_THREADS=1 python benchmarks/bayesian_libraries.py ../shared/data --tables nasbench301 transnas-jigsaw

Each seed searches its own random half of the table. On the entire table all seeds would evaluate the same first five
architectures, since the opening is fixed, and would not be independent. The tables have no kappa; the distance of jacov
from its largest value takes its place, so the results compare the libraries and say nothing about HNAS. It prints CSV:
the means of the best validation accuracy, and scikit-learn minus scikit-optimize, paired by seed, with the 95 %
interval.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from several_metrics import Problem, part_of, problems

from archray.platform.bench.result import paired
from archray.searchers import HNASSearch, drive

SEARCHES: dict[str, dict[str, Any]] = {
    "scikit-optimize": {"points": "bayesian"},
    "scikit-learn": {"points": "bayesian", "library": "scikit-learn"},
    "random points": {"points": "uniform"},
}


def best(problem: Problem, metric: str, seed: int, budget: int, settings: dict[str, Any]) -> float:
    """Returns the best value that one search finds."""
    pool = problem.pool[["architecture", metric, "jacov"]].dropna()
    pool = pool.assign(kappa=pool["jacov"].max() - pool["jacov"] + 1)
    values = dict(zip(problem.pool["architecture"], problem.values, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        pool.to_parquet(path := Path(folder) / "pool.parquet")
        search = HNASSearch(path, proxy=metric, budget=budget, metric="value", mode="max", seed=seed, **settings)
        drive(search, lambda config: {"value": values[config["architecture"]]})
    return float(search.questions()["value"].max())


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints one row of CSV per table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the tables")
    parser.add_argument("--tables", nargs="+", help="names of tables (default: all that have jacov)")
    parser.add_argument("--metric", default="snip", help="metric of the tables (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=20, help="random halves (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=20, help="evaluations (default: %(default)s)")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # repeated points
    names = [name.replace(" ", "_").replace("-", "_") for name in SEARCHES]
    print("table", *names, "difference_mean", "difference_low", "difference_high", "difference_n", sep=",")
    for problem in problems(options.data):
        if options.tables and problem.name not in options.tables:
            continue
        if "jacov" not in problem.metrics or "-without-" in problem.name:  # the same table
            continue
        rows = []
        for seed in range(options.seeds):
            half = part_of(problem, 0.5, seed)
            rows.append([best(half, options.metric, seed, options.budget, how) for how in SEARCHES.values()])
        found = np.array(rows)
        pair = paired(found[:, 1], found[:, 0])
        numbers = [*found.mean(axis=0), *(pair[key] for key in ("difference", "low", "high"))]
        print(problem.name, *(f"{x:.4f}" for x in numbers), len(found), sep=",", flush=True)


if __name__ == "__main__":
    main()
