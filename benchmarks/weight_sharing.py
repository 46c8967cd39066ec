"""Weight sharing on real images: seven methods on NAS-Bench-201's supernet. Li et al. 2021, 5.2, Table 3 and Figure 1.

Each search trains a small supernet on images, by default the real CIFAR-10 at 16 x 16. The accuracy of the selected
cell after every epoch is looked up in NAS-Bench-201's table (200 epochs on CIFAR-10), next to the largest cell, a
random cell, and the best of 20 cells by 12-epoch validation.

    python benchmarks/weight_sharing.py search --data arrays:cifar10.npz --out runs --processes 2
    python benchmarks/weight_sharing.py report --out runs

Each search is a file in OUT. The same command resumes an interrupted benchmark at its first missing search.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from archray.files import whole_file
from archray.platform.api import make_config
from archray.platform.methods.supernets.config import SupernetSearchConfig
from archray.platform.methods.supernets.random_paths import best_of, draw_architectures
from archray.platform.methods.supernets.stages import settings_of
from archray.searchers import WeightSharingHalving, drive
from archray.trainables.spaces import get_space
from archray.trainables.tune.scorers import SupernetScorer, arrays_of
from archray.trainables.tune.supernet_trainable import SupernetTrainable

SPACE, VALIDATION, TEST, SIZE = "nasbench201", "cifar10_valid_12", "cifar10_test_200", "params_m_cifar10"
TABLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "nasbench201.csv.gz"
LEARNED = ("darts", "gaea-darts", "gaea-pc-darts", "gdas")
SAMPLED = ("rs-ws", "supernet-halving")
CURVES = ("entropy", "mixture_accuracy", "shared_accuracy", "discretization_drop", "architecture")
WARMUP = 0.2  # share of the epochs before the first architecture step of GAEA PC-DARTS: 10 of 50 in App. C.1.1


class Search(NamedTuple):
    """One search. `objective`: of the architecture, or `weights` if a method trains only weights."""

    seed: int
    method: str
    objective: str

    @property
    def file(self) -> str:
        return f"{self.method}-{self.objective}-{self.seed}.csv"


def searches(options: argparse.Namespace) -> list[Search]:
    """Returns all searches, the first seeds of all methods first."""
    kinds = [(m, o) for o in ("bilevel", "erm") for m in LEARNED] + [(m, "weights") for m in SAMPLED]
    chosen = [(m, o) for m, o in kinds if m in options.methods and o in (*options.objectives, "weights")]
    return [Search(seed, method, objective) for seed in range(options.seeds) for method, objective in chosen]


def settings(search: Search, options: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """Returns the method's `paper` settings, with a small supernet and `steps` architecture steps."""
    objective = {} if search.objective == "weights" else {"objective": search.objective}
    images = options.images if search.objective != "bilevel" else options.images // 2  # that train the weights
    epochs = max(1, round(options.steps / -(-images // options.batch)))
    training = {**objective, "epochs": epochs, "batch_size": options.batch, "threads": 1, **more}
    graphed = search.method in LEARNED and search.method != "gdas" and torch.cuda.is_available()
    changes: dict[str, Any] = {
        "supernet": {
            "network": {"channels": options.channels, "cells": options.cells},
            "training": {**training, "cuda_graphs": graphed, "tf32": False},
        },
        "data": {"name": options.data, "flip": True},
    }
    plain = make_config(search.method, "paper", changes, {"space": SPACE})
    assert isinstance(plain, SupernetSearchConfig)  # all these methods train a supernet
    if search.method in LEARNED:
        optimizer = plain.supernet.optimizer.model_dump()
        changes["supernet"]["optimizer"] = {**optimizer, "lr": options.rate * optimizer["lr"]}
        if plain.supernet.training.warmup_epochs:
            changes["supernet"]["training"]["warmup_epochs"] = round(WARMUP * epochs)
    config = make_config(search.method, "paper", changes, {"space": SPACE})
    assert isinstance(config, SupernetSearchConfig)
    return settings_of(config)


def trained(
    config: dict[str, Any], label: str, checkpoint: Path | None = None
) -> Iterator[tuple[dict[str, Any], SupernetTrainable]]:
    """Trains a supernet. Yields the result of each epoch. Raises: RuntimeError if the training fails."""
    trainable, done, start = SupernetTrainable(config), False, time.monotonic()
    if checkpoint is not None:
        trainable.load_checkpoint(str(checkpoint))
    while not done:
        result = trainable.step()
        if result["failure"]:
            raise RuntimeError(f"{label}: {result['failure']}")
        done = result["done"]
        print(f"{label}: epoch {result['epoch']}, {time.monotonic() - start:.0f} s", flush=True)
        yield result, trainable


def run(search: Search, options: argparse.Namespace) -> Search:
    """Runs a search, and writes a row for each of its results: the epoch, and the columns CURVES that it has."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    label = f"{search.method} {search.objective}, seed {search.seed}"
    chosen = settings(search, options)
    if search.method in LEARNED:
        rows = learned(chosen, search.seed, label, options.out / f"{search.file}.part")
    elif search.method == "rs-ws":
        result, trainable = list(trained({"settings": chosen, "seed": search.seed}, label))[-1]
        weights = arrays_of(trainable.trainer.supernet.state_dict())
        scores = SupernetScorer(chosen, weights)(candidates(search, options))
        rows.append({"epoch": result["epoch"], **best_of(pd.DataFrame(scores))})
    else:
        rows.append(halved(search, options, label))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    with whole_file(options.out / search.file) as stream:
        stream.write(pd.DataFrame(rows).assign(**search._asdict(), device=device).to_csv(index=False).encode())
    shutil.rmtree(options.out / f"{search.file}.part", ignore_errors=True)
    return search


def learned(chosen: dict[str, Any], seed: int, label: str, part: Path) -> list[dict[str, Any]]:
    """Returns a row per epoch. part: folder of rows and checkpoint, from which an interrupted search resumes."""
    rows: list[dict[str, Any]] = []
    checkpoint = part if (part / "rows.json").exists() else None
    if checkpoint is not None:
        rows = json.loads((part / "rows.json").read_text())
    part.mkdir(exist_ok=True)
    for result, trainable in trained({"settings": chosen, "seed": seed}, label, checkpoint):
        steps = max(0, result["epoch"] - chosen["training"]["warmup_epochs"]) * trainable.trainer.steps_per_epoch
        rows = [row for row in rows if row["epoch"] < result["epoch"]]
        rows.append({"epoch": result["epoch"], "steps": steps, **{name: result[name] for name in CURVES}})
        with whole_file(part / "rows.json") as stream:
            stream.write(json.dumps(rows).encode())
        trainable.save_checkpoint(str(part))
    return rows


def candidates(search: Search, options: argparse.Namespace) -> list[str]:
    config = make_config(search.method, "paper", {}, {"space": SPACE})
    assert isinstance(config, SupernetSearchConfig)
    return draw_architectures(SPACE, config.supernet, options.candidates, search.seed)


def halved(search: Search, options: argparse.Namespace, label: str) -> dict[str, Any]:
    """Runs halving with as many weight steps as one other supernet, divided among its rounds. Returns the winner."""
    names = candidates(search, options)
    rounds = int(np.ceil(np.log2(len(names))))
    chosen = settings(search, options)
    epochs = max(1, chosen["training"]["epochs"] // rounds)
    searcher = WeightSharingHalving(names, budget=epochs, metric="score", mode="min", seed=search.seed)
    with tempfile.TemporaryDirectory() as folder:

        def evaluate(config: dict[str, Any]) -> dict[str, Any]:
            if len(config["candidates"]) == 1:
                return {"scores": [0.0], "score": 0.0, "weights": None}  # the last round would only train the winner
            return list(trained({**config, "settings": {**chosen, "weights_dir": folder}}, label))[-1][0]

        drive(searcher, evaluate)
    best = searcher.best()
    assert best is not None  # no round failed
    return {"epoch": epochs * rounds, "architecture": best["candidate"]}


def report(options: argparse.Namespace) -> None:
    """Writes in OUT: `cells.csv`, a row per search; `methods.csv`, means over seeds; `steps.csv`, the same by step."""
    table = pd.read_csv(options.table, usecols=["arch", VALIDATION, TEST, SIZE]).dropna().set_index("arch")
    rows = pd.concat([pd.read_csv(file) for file in sorted(options.out.glob("*-[0-9]*.csv"))], ignore_index=True)
    space = get_space(SPACE)
    found = rows["architecture"].map(lambda name: space.encode(space.decode(name)))
    rows["accuracy"] = found.map(table[TEST])
    rows["skips"], rows["convolutions"] = found.str.count("skip_connect"), found.str.count("conv")
    keys = ["method", "objective"]
    last = rows.sort_values("epoch").groupby([*keys, "seed"]).tail(1)
    last.to_csv(options.out / "cells.csv", index=False)
    methods = pd.concat([means(last, keys), baselines(table)], ignore_index=True)
    methods.to_csv(options.out / "methods.csv", index=False, float_format="%.4g")
    steps = means(rows[rows["steps"].notna()], [*keys, "steps"])
    steps.to_csv(options.out / "steps.csv", index=False, float_format="%.4g")
    print(methods.T.to_string())


def means(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Returns the mean, the range and the number of seeds of each value."""
    values = ["accuracy", "skips", "convolutions", "entropy", "mixture_accuracy", "shared_accuracy"]
    grouped = rows.groupby(list(keys))[values].agg(["mean", "min", "max", "count"])
    grouped.columns = [f"{name}_{'n' if part == 'count' else part}" for name, part in grouped.columns]
    return grouped.reset_index()


def baselines(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the largest cell, a random cell, and the best of 20 by 12-epoch validation: random ones, the largest."""
    rng, repeats = np.random.default_rng(0), 1000
    drawn = [table.iloc[rng.choice(len(table), 20, replace=False)] for _ in range(repeats)]
    accuracies = {
        "largest": table.nlargest(1, SIZE)[TEST],
        "random": table[TEST],
        "best of 20 random": pd.Series([cells[TEST][cells[VALIDATION].idxmax()] for cells in drawn]),
        "best of the 20 largest": table.nlargest(20, SIZE).nlargest(1, VALIDATION)[TEST],
    }
    rows = [
        {
            "method": name,
            "accuracy_mean": v.mean(),
            "accuracy_min": v.min(),
            "accuracy_max": v.max(),
            "accuracy_n": len(v),
        }
        for name, v in accuracies.items()
    ]
    return pd.DataFrame(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Completes the missing searches, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["search", "report"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the searches; finished ones are reused")
    parser.add_argument("--table", type=Path, default=TABLE, help="NAS-Bench-201 as CSV (default: %(default)s)")
    parser.add_argument("--data", default="cifar10", help="data set of images (default: %(default)s)")
    parser.add_argument("--images", type=int, default=20000, help="training images in the data set (%(default)s)")
    parser.add_argument("--methods", nargs="+", default=[*LEARNED, *SAMPLED], choices=[*LEARNED, *SAMPLED])
    parser.add_argument("--objectives", nargs="+", default=["bilevel", "erm"], choices=["bilevel", "erm"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5000, help="steps of the architecture (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=2.0, help="factor of the paper's architecture learning rate")
    parser.add_argument("--candidates", type=int, default=200, help="cells for rs-ws and halving (%(default)s)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=1, help="cells per stage")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if options.command == "report":
        report(options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    missing = [search for search in searches(options) if not (options.out / search.file).exists()]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, search, options) for search in missing]):
            print(f"{done.result().file} written", flush=True)


if __name__ == "__main__":
    main()
