"""A small synthetic table, and benchmarks on it in this process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.bench.page import bench_page
from archray.platform.bench.question import PARTS, BenchWorker, shares
from archray.platform.bench.result import BenchResult
from archray.platform.bench.run import begin, make_question, write_tables
from archray.trainables.tabular import read_table

FEW_VALUES = "nwot"  # the metric with equal values


def synthetic_table(place: Path) -> pd.DataFrame:
    """256 architectures with four decisions. snip grows with the value, kappa falls, and nwot has four values."""
    rng = np.random.default_rng(0)
    decisions = np.array(list(itertools.product(range(4), repeat=4)))
    quality = decisions.sum(axis=1) + rng.normal(0, 0.5, len(decisions))
    frame = pd.DataFrame(
        {
            "architecture": ["-".join(map(str, row)) for row in decisions],
            "val_accuracy": 50 + 3 * quality,
            "test_accuracy": 49 + 3 * quality + rng.normal(0, 0.5, len(decisions)),
            "snip": np.exp(quality + rng.normal(0, 2, len(decisions))),
            FEW_VALUES: decisions[:, 0].astype(float),
            "kappa": np.exp(-quality / 3 + rng.normal(0, 1, len(decisions))),
            "params": 1 + rng.permutation(len(decisions)) / 100,
            "train_seconds": rng.uniform(5, 10, len(decisions)),
        }
    )
    frame.to_csv(place, index=False)
    return frame


def bench_here(
    methods: list[str], *, table: Path, out: Path, seeds: int, against: str = "random", **options: Any
) -> BenchResult:
    """`archray.bench`, without Ray."""
    held = read_table(table)
    question = make_question(methods, held, table, seeds, **options)
    folder = begin(question, held, out, against)
    worker = BenchWorker(str(folder))
    for share in shares(question, held):
        (folder / PARTS).write_parquet(share.file, worker(share))
    result = BenchResult.read(folder)
    write_tables(result, against)
    return result


def bench_on_a_page(folder: Path) -> str:
    """The page of a small benchmark."""
    folder.mkdir()
    synthetic_table(folder / "table.csv")
    methods = ["evolution", "evolution:population=2,sample_size=1"]
    bench = bench_here(methods, table=folder / "table.csv", out=folder / "bench", seeds=3, budget=[5, 12])
    return bench_page(bench, "random")
