"""Our training-free metrics beside a published table's, over the rows of a pool: Spearman's rank correlation.

Of each metric with the column that other projects computed for the same architectures (NAS-Bench-Suite-Zero's,
Krishnakumar et al. 2022, on real CIFAR-10 images at (C, N) = (16, 5)), and of both with the accuracy.
A pool scored without an image, at fewer channels:

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
# What the table calls a metric, where that is not our name.
THEIR_NAMES = {"naswot": "nwot", "parameters": "params", "multiply_adds": "flops"}


def compare(pool: pd.DataFrame, scores: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """A row for each metric of the pool that the table has too.

    pool: column `architecture`, canonical strings. scores, accuracies: by architecture.
    Columns: n (rows where both have a value), theirs (Spearman of our values with the table's), and for each accuracy
    ours and theirs (of our values and of the table's, over the same rows).
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
