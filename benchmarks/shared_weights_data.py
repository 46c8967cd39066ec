"""Agreement of shared weights with training runs on the same data: rs-ws and halving, on digits and glyphs.

The script trains cells of NAS-Bench-201 without the operation `none`, which the supernet lacks, like the preset `demo`,
under several seeds. Supernets are trained for equal total epochs: rs-ws on random paths, halving in rounds on the
remaining candidates. The script computes Spearman's rho of their scores of the cells on the validation images with the
test accuracies of the training runs. The agreement of the training runs of two seeds is an upper limit for a ranking.

    python benchmarks/shared_weights_data.py --out shared --data digits glyphs@16

Each training run and each supernet is a line of a file in OUT. The same command resumes an interrupted benchmark.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from data_spread import SPACE, Lines, data_settings, printed, scores, settings_of, trained
from shared_weights_nasbench201 import correlation, halving, random_search

from archray.platform.methods.supernets.random_paths import draw_architectures
from archray.trainables.tune.settings import SupernetOptions

SUPERNET: dict[str, Any] = {
    "network": {"channels": 4, "cells": 1},
    "relaxation": {"name": "path"},
    "optimizer": {"name": "none"},
    "training": {"batch_size": 64, "lr": 0.1, "augmentation": None, "threads": 1},
}
FREE = ("parameters", "synflow", "naswot", "snip")


def accuracies(data: str, cells: Sequence[str], seeds: int, lines: Lines) -> pd.DataFrame:
    """Returns the test accuracies of the cells' standalone training runs, (cells, seeds)."""
    return pd.DataFrame(
        {
            seed: {
                cell: lines.row(
                    {"data": data, "seed": seed, "cell": cell, "changes": {}},
                    partial(trained, settings_of(data, seed, {}), cell, seed),
                )["test_accuracy"]
                for cell in cells
            }
            for seed in range(seeds)
        }
    )


def supernet_rows(data: str, truth: pd.Series, seed: int, epochs: int) -> dict[str, Any]:
    """Returns the correlations of both kinds of shared weights with the truth. epochs: epochs per round of halving."""
    settings = {**SUPERNET, "space": SPACE, "data": data_settings(data, seed)}
    rounds, winner = halving(settings, epochs, truth, seed)
    rows = random_search(settings, epochs * len(rounds), truth, seed) + rounds
    winners = {row["weights of"]: 100 * truth[winner] for row in rounds[-1:]}
    return {"rows": [{"data": data, **row, "found, %": winners.get(row["weights of"])} for row in rows]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Completes the missing training runs, and prints the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs; finished runs in it are reused")
    parser.add_argument("--data", nargs="+", default=["digits", "glyphs@16"], help="default: %(default)s")
    parser.add_argument("--cells", type=int, default=24, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=24, help="epochs per round of halving (default: %(default)s)")
    parser.add_argument(
        "--seeds", type=int, default=2, help="seeds of training runs and supernets (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    training_runs, supernets = Lines(options.out / "training-runs.jsonl"), Lines(options.out / "supernets.jsonl")
    cells = draw_architectures(SPACE, SupernetOptions.model_validate(SUPERNET), options.cells, seed=0)
    rows: list[dict[str, Any]] = []
    for data in options.data:
        by_seed = accuracies(data, cells, options.seeds, training_runs)
        truth = by_seed.mean(axis=1)
        ceiling = np.mean([correlation(by_seed[a], by_seed[b]) for a, b in combinations(by_seed.columns, 2)])
        free = [scores(data, cells, seed) for seed in range(options.seeds)]
        agreement_of_metrics = {
            metric: float(np.mean([correlation(table[metric], truth) for table in free])) for metric in FREE
        }
        print(
            f"{data}: test accuracy, %, 5th {100 * truth.quantile(0.05):.1f}, 50th {100 * truth.median():.1f}, ", end=""
        )
        print(
            f"95th {100 * truth.quantile(0.95):.1f}, best {100 * truth.max():.1f}; rho of two seeds {ceiling:.2f}, ",
            end="",
        )
        print(f"of {', '.join(f'{metric} {value:.2f}' for metric, value in agreement_of_metrics.items())}\n")
        for seed in range(options.seeds):
            key = {"data": data, "seed": seed, "epochs": options.epochs, "cells": options.cells}
            rows += supernets.row(key, partial(supernet_rows, data, truth, seed, options.epochs))["rows"]
    table = (
        pd.DataFrame(rows).groupby(["data", "weights of", "trained on", "epochs"], sort=False).mean(numeric_only=True)
    )
    printed(table.drop(columns="seed").reset_index().to_dict("records"))


if __name__ == "__main__":
    main()
