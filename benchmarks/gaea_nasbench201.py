"""GAEA against DARTS on NAS-Bench-201's supernet, single level and bilevel. Li et al. 2021, Figure 1 and App. C.3.

Both methods train the same supernets on small images, with the same batches. They differ in the architecture
parameters and their update. The accuracy of the found cells is looked up in NAS-Bench-201's table, which is about
other data: CIFAR-10.

    python benchmarks/gaea_nasbench201.py --table nasbench201.csv.gz --out docs
    python benchmarks/gaea_nasbench201.py --data glyphs --channels 4 --epochs 15 --seeds 2 --runs gaea-glyphs --out gaea
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from ray import tune
from ray.tune import CheckpointConfig, RunConfig, Tuner

from archray.platform.api import make_config
from archray.platform.methods.supernets.config import SupernetSearchConfig
from archray.platform.methods.supernets.stages import settings_of
from archray.trainables.tune.supernet_trainable import SupernetTrainable

TEST = "cifar10_test_200"
TABLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "nasbench201.csv.gz"
METHODS, OBJECTIVES = {"darts": "DARTS", "gaea-darts": "GAEA DARTS"}, ("bilevel", "erm")
COLORS = {"darts": "#b3560b", "gaea-darts": "#1f6f8b"}
COLUMNS = ["epoch", "entropy", "mixture_accuracy", "shared_accuracy", "discretization_drop", "architecture"]


def settings(method: str, objective: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the method's default configuration, with a small supernet and images of one size."""
    training = {"objective": objective, "epochs": options.epochs, "batch_size": options.batch}
    small = {"channels": options.channels, "cells": options.cells}
    data = {"name": options.data, "image_size": options.image_size}
    changes = {"supernet": {"network": small, "training": training}, "data": data}
    config = make_config(method, "paper", changes, {"space": "nasbench201"})
    assert isinstance(config, SupernetSearchConfig)  # both methods train a supernet
    return settings_of(config)


def run(options: argparse.Namespace) -> pd.DataFrame:
    """Runs the searches. Returns a row per method, objective, seed and epoch."""
    frames = []
    for method in METHODS:
        for objective in OBJECTIVES:
            grid = {"settings": settings(method, objective, options), "seed": tune.grid_search(range(options.seeds))}
            tuner = Tuner(
                tune.with_resources(SupernetTrainable, {"cpu": 1, "gpu": options.gpus}),
                param_space=grid,
                run_config=RunConfig(
                    name=f"{method}-{objective}",
                    storage_path=str(options.runs.absolute()),
                    verbose=0,
                    checkpoint_config=CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                ),
            )
            results = tuner.fit()
            for number in range(len(results)):
                result = results[number]
                labels = {"method": method, "objective": objective, "seed": (result.config or {})["seed"]}
                frames.append(result.metrics_dataframe[COLUMNS].assign(**labels))
            print(f"{method}, {objective}: {options.seeds} seeds done", flush=True)
    return pd.concat(frames, ignore_index=True)


def looked_up(curves: pd.DataFrame, table: Path) -> pd.DataFrame:
    """Returns the last epoch of each search, with the found architecture's accuracy on CIFAR-10, in percent."""
    last = curves[curves["epoch"] == curves["epoch"].max()]
    accuracy = pd.read_csv(table, usecols=["arch", TEST]).set_index("arch")[TEST]
    convolutions = last["architecture"].str.count("conv")
    skips = last["architecture"].str.count("skip_connect")
    return last.assign(cifar10=last["architecture"].map(accuracy), convolutions=convolutions, skips=skips)


def markdown(searches: pd.DataFrame) -> str:
    """Formats mean ± standard deviation over seeds as a Markdown table."""
    lines = [
        "| | entropy, nats | mixture | discretized | drop | CIFAR-10 of the found cells | convolutions, skips of 6 |",
        "|---|---|---|---|---|---|---|",
    ]
    for (objective, method), rows in searches.groupby(["objective", "method"], sort=False):
        accuracies = ", ".join(f"{value:.2f}" for value in rows["cifar10"])
        entries = [
            f"{rows['entropy'].mean():.3f} ± {rows['entropy'].std():.3f}",
            *(
                f"{100 * rows[name].mean():.1f} ± {100 * rows[name].std():.1f}"
                for name in ("mixture_accuracy", "shared_accuracy", "discretization_drop")
            ),
            f"{rows['cifar10'].mean():.2f} ± {rows['cifar10'].std():.2f} ({accuracies})",
            f"{rows['convolutions'].mean():.1f}, {rows['skips'].mean():.1f}",
        ]
        lines.append(f"| {METHODS[str(method)]}, {objective} | {' | '.join(entries)} |")
    return "\n".join(lines)


def draw(curves: pd.DataFrame, to: Path) -> None:
    """Draws entropy and accuracy of mixture and discretized architecture by epoch: mean and range over seeds."""
    figure, grid = plt.subplots(2, len(OBJECTIVES), figsize=(9, 6), sharex=True, sharey="row", layout="constrained")
    for column, objective in enumerate(OBJECTIVES):
        upper, lower = grid[0, column], grid[1, column]
        for method, label in METHODS.items():
            rows = curves[(curves["method"] == method) & (curves["objective"] == objective)].groupby("epoch")
            color = COLORS[method]
            entropy = rows["entropy"]
            upper.plot(entropy.mean(), color=color, label=label)
            upper.fill_between(entropy.mean().index, entropy.min(), entropy.max(), color=color, alpha=0.2, linewidth=0)
            lower.plot(100 * rows["mixture_accuracy"].mean(), color=color, label=f"{label}, mixture")
            lower.plot(100 * rows["shared_accuracy"].mean(), color=color, linestyle=":", label="discretized")
        upper.set_title(objective)
        lower.set_xlabel("epoch")
    grid[0, 0].set_ylabel("entropy of an edge's weights, nats")
    grid[1, 0].set_ylabel("validation accuracy, %")
    grid[0, 0].set_ylim(bottom=0)
    grid[0, 0].legend()
    grid[1, 0].legend()
    figure.savefig(to, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the searches, prints the table in Markdown, and draws the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=TABLE, help="NAS-Bench-201 as CSV (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figure, gaea_nasbench201.png")
    parser.add_argument("--runs", type=Path, default=Path("gaea-runs"), help="folder of Tune's runs (%(default)s)")
    parser.add_argument("--data", default="digits", help="data set of images (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=1, help="cells per stage")
    parser.add_argument("--image-size", type=int, default=16)
    parser.add_argument("--gpus", type=float, default=0.0, help="GPUs per trial")
    options = parser.parse_args(arguments)
    if not options.table.is_file():
        raise SystemExit(
            f"expected NAS-Bench-201 as a CSV of arch and {TEST} in {options.table}, got no file. Pass it with --table"
        )
    curves = run(options)
    options.out.mkdir(parents=True, exist_ok=True)
    curves.to_parquet(options.runs / "curves.parquet")
    draw(curves, options.out / "gaea_nasbench201.png")
    print(markdown(looked_up(curves, options.table)))


if __name__ == "__main__":
    main()
