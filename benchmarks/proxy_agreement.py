"""archray's training-free metrics compared with a published table's, over a pool, by Spearman's rank correlation.

The script correlates each metric with the column that other projects computed for the same architectures
(NAS-Bench-Suite-Zero, Krishnakumar et al. 2022, on CIFAR-10 images at (C, N) = (16, 5)), and both with the accuracy.
The pool below is scored without images and with fewer channels:

    archray proxies --space nasbench201 --data gaussian --size 150 --channels 4 --cells 5 --out pool.parquet \
        --proxies epe_nas,fisher,grad_norm,grasp,jacov,l2_norm,multiply_adds,naswot,plain,snip,synflow,zen
    python benchmarks/proxy_agreement.py pool.parquet
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SCORES, ACCURACIES = DATA / "nasbench201_zcp.csv.gz", DATA / "nasbench201.csv.gz"
VALIDATION, TEST = "cifar10_valid_12", "cifar10_test_200"
# Names of metrics in the table, where they differ from archray's.
THEIR_NAMES = {"naswot": "nwot", "parameters": "params", "multiply_adds": "flops"}


def compare(pool: pd.DataFrame, scores: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """Returns a row for each metric that both the pool and the table contain.

    pool: column `architecture`, canonical strings. scores, accuracies: by architecture.
    Columns: n (rows with both values), `with theirs` (Spearman of archray's values with the table's), and for each
    accuracy `ours` and `theirs` (of archray's values and of the table's, over the same rows).
    """
    rows = {}
    ours = pool.set_index("architecture")
    for metric in ours.columns:
        column = THEIR_NAMES.get(metric, metric)
        if column not in scores or column == "failure":
            continue
        both = pd.DataFrame({"ours": ours[metric], "theirs": scores[column].reindex(ours.index)}).dropna()
        row: dict[str, float] = {"n": len(both), "with theirs": both["ours"].corr(both["theirs"], "spearman")}
        for name in (VALIDATION, TEST):
            accuracy = accuracies[name].reindex(both.index)
            for whose in ("ours", "theirs"):
                row[f"{whose}, {name}"] = both[whose].corr(accuracy, "spearman")
        rows[metric] = row
    return pd.DataFrame(rows).T.astype({"n": int})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pool", type=Path, help="a table of `archray proxies` over NAS-Bench-201")
    parser.add_argument("--scores", type=Path, default=SCORES, help=f"the published metrics (default {SCORES})")
    parser.add_argument("--accuracies", type=Path, default=ACCURACIES, help=f"accuracies (default {ACCURACIES})")
    options = parser.parse_args(arguments)
    scores = pd.read_csv(options.scores)
    scores = scores[scores["dataset"] == "cifar10"].set_index("arch")
    accuracies = pd.read_csv(options.accuracies, usecols=["arch", VALIDATION, TEST]).set_index("arch")
    table = compare(pd.read_parquet(options.pool), scores, accuracies)
    print(table.sort_index().to_string(float_format=lambda value: f"{value:.2f}"))


if __name__ == "__main__":
    main()
