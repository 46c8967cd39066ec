"""The bounds of Corollaries 7.1 and 7.2 over a whole scored pool, against the errors of a published table. Shu 2022.

A report judges the bounds on the few architectures that a run trained. This script judges them on the whole pool:

    archray proxies --space nasbench201 --data gaussian --size 300 --channels 4 --cells 5 --out pool.parquet
    python benchmarks/bounds_of_table.py pool.parquet --table nasbench201.csv.gz --accuracy cifar10_test_200
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from archray.platform.methods.report import judge_bounds

TABLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "nasbench201.csv.gz"


def agreements(pool: pd.DataFrame, table: pd.DataFrame, accuracy: str, space: str) -> pd.DataFrame:
    """Returns a row per predictor: n, Kendall's tau and Spearman's rho with 100 - accuracy, with 95 % intervals.

    table: columns `architecture`, canonical strings, and `accuracy`, in percent. chance: correlation that the fit of a
    trade-off exceeds on one in twenty random orders.
    """
    trained = pd.DataFrame({"architecture": table["architecture"], "error": 100 - table[accuracy], "gap": math.nan})
    judged = judge_bounds(pool, trained, accuracy, space)
    if judged is None:
        raise SystemExit("the pool has no kappa, no gradient-based metric, or fewer than three rows of the table")
    rows = [
        {
            "promise": predictor.name,
            "n": error.n,
            "tau": error.tau,
            "tau low": error.tau_interval[0],
            "tau high": error.tau_interval[1],
            "rho": error.rho,
            "rho low": error.rho_interval[0],
            "rho high": error.rho_interval[1],
            "chance": predictor.chance,
        }
        for predictor, error in zip(judged.predictors, judged.errors, strict=True)
    ]
    return pd.DataFrame(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pool", type=Path, help="a table of `archray proxies`")
    parser.add_argument("--table", type=Path, default=TABLE, help=f"accuracies in percent (default {TABLE})")
    parser.add_argument("--accuracy", default="cifar10_test_200", help="column of the table")
    parser.add_argument("--architecture", default="arch", help="column of the table: canonical strings")
    parser.add_argument("--space", default="nasbench201")
    options = parser.parse_args(arguments)
    table = pd.read_csv(options.table, usecols=[options.architecture, options.accuracy])
    table = table.rename(columns={options.architecture: "architecture"}).dropna()
    shown = agreements(pd.read_parquet(options.pool), table, options.accuracy, options.space)
    print(shown.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep=""))


if __name__ == "__main__":
    main()
