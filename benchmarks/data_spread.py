"""How well a data set distinguishes networks: random cells of NAS-Bench-201 after a short training run, and predictors.

The script trains the same cells on every data set, as the preset `demo` does, under several seeds. A seed changes the
data's draws and splits, the initial weights and the order of images. The tables contain the spread of the accuracies,
the rank agreement between seeds, and Spearman's rho of training-free metrics with the accuracies, averaged over the
seeds.

    python benchmarks/data_spread.py --out spread --data digits glyphs@16 glyphs

Each training run is a line of OUT/training-runs.jsonl. The same command resumes an interrupted benchmark.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from archray.platform.methods.config import SCORINGS, TRAININGS
from archray.trainables.spaces import get_space
from archray.trainables.tune.scorers import PoolScorer
from archray.trainables.tune.standalone_trainable import StandaloneSettings, build_trainer, train_epoch

SPACE = "nasbench201"
METRICS = ("synflow", "naswot", "ntk_trace", "snip", "grad_norm", "zen")
TRAINED_METRICS = ("validation_accuracy", "test_accuracy")


class Lines:
    """A file of results, one line of JSON each, from which an interrupted benchmark resumes."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.file = file
        self.rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def row(self, key: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the line that starts with `key`. If it is missing, appends the result of `make`."""
        for row in self.rows:
            if all(row[name] == value for name, value in key.items()):
                return row
        row = {**key, **make()}
        with self.file.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        self.rows.append(row)
        return row


def draw_cells(count: int) -> list[str]:
    """Draws distinct cells uniformly, without isomorphic ones."""
    space, rng = get_space(SPACE), np.random.default_rng(0)
    cells: dict[str, None] = {}
    while len(cells) < count:
        cells[space.encode(space.canonical(space.sample(rng)))] = None
    return list(cells)


def data_settings(data: str, seed: int) -> dict[str, Any]:
    """Returns the data settings of `digits`, or of `glyphs@16`: resized to 16 x 16."""
    name, _, size = data.partition("@")
    return {"name": name, "seed": seed, "image_size": int(size) if size else None}


def settings_of(data: str, seed: int, changes: dict[str, Any]) -> StandaloneSettings:
    demo = TRAININGS["demo"]
    return StandaloneSettings.model_validate(
        {
            "space": SPACE,
            "data": data_settings(data, seed),
            "network": demo["network"],
            "training": {**demo["train"], **changes, "threads": 1},
        }
    )


def trained(settings: StandaloneSettings, cell: str, seed: int) -> dict[str, float]:
    """Trains a cell. Returns its accuracies and the seconds of the training run."""
    start = time.process_time()
    trainer, _, _ = build_trainer(settings, cell, seed=seed, device=torch.device("cpu"))
    while not trainer.finished:
        _, validation, test = train_epoch(trainer, "last")
    values = dict(zip(TRAINED_METRICS, (validation.accuracy, test.accuracy), strict=True))
    return {**values, "seconds": time.process_time() - start}


def scores(data: str, cells: Sequence[str], seed: int) -> pd.DataFrame:
    """Computes the training-free metrics of the cells with the settings of the preset `demo`."""
    proxies = {**SCORINGS["demo"]["proxies"], "metrics": METRICS, "seed": seed}
    scorer = PoolScorer(SPACE, data_settings(data, seed), proxies, "cpu")
    return pd.DataFrame([scorer(cell) for cell in cells], index=cells)[[*METRICS, "parameters"]].astype(float)


def rho(first: pd.Series, second: pd.Series) -> float:
    return float(first.corr(second, method="spearman"))


def summary(data: str, rows: pd.DataFrame, accuracy: str) -> dict[str, Any]:
    """Returns a row of the table of spreads. rows: results on one data set."""
    by_seed = rows.pivot(index="cell", columns="seed", values=accuracy)
    means = 100 * by_seed.mean(axis=1)
    low, half, high = (float(np.percentile(means, at)) for at in (5, 50, 95))
    better = list(means.index[means >= half])
    pairs = list(combinations(by_seed.columns, 2))

    def agreement(table: pd.DataFrame) -> float:
        return float(np.mean([rho(table[a], table[b]) for a, b in pairs])) if pairs else np.nan

    return {
        "data": data,
        "seconds": rows["seconds"].mean(),
        "5th": low,
        "50th": half,
        "95th": high,
        "best": float(means.max()),
        "95th - 5th": high - low,
        "95th - 50th": high - half,
        "rho of seeds": agreement(by_seed),
        "of the better half": agreement(by_seed.loc[better]),
        "deviation of seeds": float(100 * by_seed.std(axis=1).mean()),
    }


def printed(rows: list[dict[str, Any]]) -> None:
    """Prints rows as a Markdown table."""
    print(f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(f'{v:.2f}' if isinstance(v, float) else str(v) for v in row.values())} |")
    print()


def main(arguments: Sequence[str] | None = None) -> None:
    """Completes the missing training runs, and prints the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the training runs; finished runs in it are reused"
    )
    parser.add_argument(
        "--data", nargs="+", default=["digits", "glyphs"], help="data sets; NAME@16: at 16 x 16 (default: %(default)s)"
    )
    parser.add_argument("--cells", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=2, help="default: %(default)s")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=NUMBER", help="training settings: epochs=8 lr=0.05"
    )
    options = parser.parse_args(arguments)
    changes = {key: json.loads(value) for key, _, value in (change.partition("=") for change in options.set)}
    torch.set_num_threads(1)
    lines = Lines(options.out / "training-runs.jsonl")
    cells = draw_cells(options.cells)
    tables: dict[str, pd.DataFrame] = {}
    for data in options.data:
        tables[data] = pd.DataFrame(
            lines.row(
                {"data": data, "seed": seed, "cell": cell, "changes": changes},
                partial(trained, settings_of(data, seed, changes), cell, seed),
            )
            for cell in cells
            for seed in range(options.seeds)
        )
    for accuracy in TRAINED_METRICS:
        print(f"{accuracy}, %, of {len(cells)} cells, mean over {options.seeds} seeds\n")
        printed([summary(data, rows, accuracy) for data, rows in tables.items()])
    print("Spearman's rho with test accuracy, mean over seeds\n")
    lines = []
    for data, rows in tables.items():
        by_seed = rows.pivot(index="cell", columns="seed", values="test_accuracy").loc[cells]
        of_seed = [scores(data, cells, seed) for seed in range(options.seeds)]
        better = by_seed.mean(axis=1).nlargest(len(cells) // 2).index
        for name, of in (("all", by_seed.index), ("the better half", better)):
            values = {
                metric: float(
                    np.mean([rho(table.loc[of, metric], by_seed.loc[of, s]) for s, table in enumerate(of_seed)])
                )
                for metric in ("parameters", *METRICS)
            }
            lines.append({"data": data, "cells": name, **values})
    printed(lines)


if __name__ == "__main__":
    main()
