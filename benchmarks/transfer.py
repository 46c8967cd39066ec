"""Transfer: cells that were selected on CIFAR-10, trained on CIFAR-100. Shu 2022, ch. 7.

The script trains each distinct cell of a table under several seeds with the same settings, next to the largest cell and
random cells of NAS-Bench-201. `report` prints the test accuracy of each method, mean over its cells, and Spearman's
correlation over cells with the 200-epoch CIFAR-10 accuracy of NAS-Bench-201's table.

    python benchmarks/weight_sharing.py report --out runs       # writes runs/cells.csv
    python benchmarks/transfer.py run --cells runs/cells.csv --data parquet:cifar100-16 --out transfer --processes 2
    python benchmarks/transfer.py report --cells runs/cells.csv --out transfer

Each training run is a file in OUT. The same command resumes an interrupted benchmark.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from archray.files import whole_file
from archray.trainables.spaces import get_space
from archray.trainables.tune.standalone_trainable import StandaloneSettings, build_trainer

SPACE, TEST, SIZE = "nasbench201", "cifar10_test_200", "params_m_cifar10"
TABLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "nasbench201.csv.gz"
RANDOM = 8  # cells


def cells(options: argparse.Namespace) -> pd.DataFrame:
    """Returns a row per search: `method`, `architecture` (as the table spells it), `cifar10` (percent)."""
    table = pd.read_csv(options.table, usecols=["arch", TEST, SIZE]).dropna().set_index("arch")
    space, found = get_space(SPACE), pd.read_csv(options.cells, comment="#")
    rows = [(f"{row['method']}, {row['objective']}", row["architecture"]) for row in found.to_dict("records")]
    rows += [("largest", table[SIZE].idxmax()), ("best in the table", table[TEST].idxmax())]
    rows += [("random", name) for name in table.sample(RANDOM, random_state=0).index]
    frame = pd.DataFrame(rows, columns=["method", "architecture"])
    frame["architecture"] = frame["architecture"].map(lambda name: space.encode(space.decode(name)))
    return frame.assign(cifar10=frame["architecture"].map(table[TEST]))


def file_of(options: argparse.Namespace, cell: str, seed: int) -> Path:
    place: Path = options.out / f"{cell.replace('|', '.')}-{seed}.json"
    return place


def train(cell: str, seed: int, options: argparse.Namespace) -> str:
    """Trains a cell, and writes its test accuracy."""
    torch.set_num_threads(1)
    settings = StandaloneSettings.model_validate(
        {
            "space": SPACE,
            "data": {"name": options.data, "limit": options.images, "flip": True},
            "network": {"channels": options.channels, "cells": options.depth},
            "training": {"epochs": options.epochs, "batch_size": 64, "threads": 1},
        }
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer, _, _ = build_trainer(settings, cell, seed=seed, device=device)
    while not trainer.finished:
        trainer.epoch()
    measured = trainer.evaluate(trainer.dataset.test)
    with whole_file(file_of(options, cell, seed)) as stream:
        stream.write(json.dumps({"test_accuracy": measured.accuracy, "test_loss": measured.loss}).encode())
    return f"{cell}, seed {seed}: {100 * measured.accuracy:.2f} %"


def report(options: argparse.Namespace) -> None:
    frame = cells(options)
    for seed in range(options.seeds):
        frame[seed] = [
            json.loads(file_of(options, cell, seed).read_text())["test_accuracy"] for cell in frame["architecture"]
        ]
    frame["accuracy"] = 100 * frame[list(range(options.seeds))].mean(axis=1)
    columns = ["cifar10", "accuracy"]
    table = frame.groupby("method", sort=False)[columns].agg(["mean", "std", "count"])
    table.columns = [f"{name}_{'n' if part == 'count' else part}" for name, part in table.columns]
    print(table.reset_index().to_csv(index=False, float_format="%.3f"))
    distinct = frame.drop_duplicates("architecture")
    rng, values = np.random.default_rng(0), distinct[columns].to_numpy()
    drawn = [
        pd.DataFrame(values[rng.integers(len(values), size=len(values))]).corr("spearman").iloc[0, 1]
        for _ in range(1000)
    ]
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    rho = distinct[columns].corr("spearman").iloc[0, 1]
    print(f"Spearman over {len(values)} cells: {rho:.2f} ({low:.2f} to {high:.2f})")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--cells", type=Path, required=True, help="CSV of method, objective, architecture")
    parser.add_argument("--out", type=Path, required=True, help="folder of the training runs; finished runs are reused")
    parser.add_argument("--table", type=Path, default=TABLE, help="NAS-Bench-201 as CSV (default: %(default)s)")
    parser.add_argument("--data", default="cifar100", help="data set of images (default: %(default)s)")
    parser.add_argument("--images", type=int, default=10_000, help="training images (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--depth", type=int, default=1, help="cells per stage (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.command == "report":
        report(options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    runs = [(cell, seed) for seed in range(options.seeds) for cell in dict.fromkeys(cells(options)["architecture"])]
    missing = [run for run in runs if not file_of(options, *run).exists()]
    print(f"{len(runs)} training runs, {len(missing)} missing", flush=True)
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(train, cell, seed, options) for cell, seed in missing]):
            print(done.result(), flush=True)


if __name__ == "__main__":
    main()
