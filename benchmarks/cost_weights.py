"""A supernet at several weights of the expected cost in its loss: the expected and the real cost of the result.

    python benchmarks/cost_weights.py --out weights [--method gaea-darts] [--weights 0 0.3 3] [--seeds 4]

NAS-Bench-201 without `none`; the method's own relaxation and optimizer, in this process, without Ray. The supernet is
as deep as the networks whose flops are counted, which the preset `demo` trains. Each found architecture is then
trained standalone with that preset, under two seeds. The comparison contains the cells without a convolution and with
six convolutions, and random cells.

Each search and each training run is a line of a file in OUT. The same command resumes an interrupted benchmark.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from data_spread import SPACE, Lines, data_settings, settings_of, trained

from archray.platform.methods.configure import make_config
from archray.trainables.costs.networks import NetworkCosts, edge_costs
from archray.trainables.data import Dataset, DataSettings, load_images
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.supernets import build_mixing
from archray.trainables.supernets.settings import CostPenaltySettings
from archray.trainables.supernets.trainer import CostPenalty, SupernetTrainer

TRAININGS = 2  # seeds of the standalone training runs
CELL = "|{0}~0|+|{0}~0|{0}~1|+|{0}~0|{0}~1|{0}~2|"


def costs_on(data: Dataset, network: NetworkSettings) -> NetworkCosts:
    shape = {"in_channels": data.in_channels, "num_classes": data.num_classes, "image_size": data.image_size}
    return NetworkCosts(SPACE, ("flops",), network=network, **shape)


def searched(options: argparse.Namespace, data: Dataset, costs: NetworkCosts, weight: float, seed: int) -> dict:
    """Runs one search. Returns the final costs of the mixture, and the found architecture with its cost."""
    flags = {"epochs": options.epochs, "search_channels": costs.network.channels, "space": SPACE}
    config: Any = make_config(options.method, "smoke", None, flags)
    space, supernet_options = get_space(SPACE), config.supernet
    network = supernet_options.network.model_copy(
        update={"channels": costs.network.channels, "cells": costs.network.cells}
    )
    supernet_options = supernet_options.model_copy(
        update={
            "network": network,
            "optimizer": supernet_options.optimizer.model_copy(update={"lr": options.rate}),
            "training": supernet_options.training.model_copy(
                update={"batch_size": 64, "lr": 0.1, "warmup_epochs": options.warmup, "threads": 1}
            ),
        }
    )
    groups = supernet_options.groups(space)
    table = edge_costs(space, groups, lambda name: costs(name)["flops"])
    supernet = supernet_options.build(space, seed=seed, in_channels=data.in_channels, num_classes=data.num_classes)
    mixing = build_mixing(supernet, supernet_options.relaxation, supernet_options.optimizer, seed=seed)
    penalty = CostPenalty(CostPenaltySettings(weight=weight), table, {g.name: g.shape for g in groups})
    trainer = SupernetTrainer(supernet, data, mixing, supernet_options.training, seed=seed, penalty=penalty)
    for _ in range(options.epochs):
        trainer.epoch()
    architecture = trainer.derive()
    assert architecture is not None  # the search learned a mixture of operations
    probabilities = mixing.probabilities()  # type: ignore[attr-defined]
    return {
        "uniform": penalty.unit,
        "expected": float(table.expected(probabilities)),
        "largest": float(torch.cat([rows.max(dim=-1).values for rows in probabilities.values()]).mean()),
        "real": costs(architecture)["flops"],
        "shared accuracy": trainer.score([architecture])[0].accuracy,
        "architecture": architecture,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Completes the missing searches and training runs, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; finished rows in it are reused")
    parser.add_argument("--method", default="gaea-darts")
    parser.add_argument("--data", default="glyphs:10@16", help="default: %(default)s")
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.3, 3.0])
    parser.add_argument("--seeds", type=int, default=4, help="number of searches (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of a search (default: %(default)s)")
    parser.add_argument(
        "--warmup", type=int, default=5, help="epochs at the start that train only weights (default: %(default)s)"
    )
    parser.add_argument(
        "--rate", type=float, default=0.1, help="learning rate of the architecture (default: %(default)s)"
    )
    parser.add_argument("--random", type=int, default=6, help="random cells (default: %(default)s)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    searches, training_runs = Lines(options.out / "searches.jsonl"), Lines(options.out / "training-runs.jsonl")
    data = load_images(DataSettings.model_validate(data_settings(options.data, 0)))
    costs = costs_on(data, NetworkSettings.model_validate(settings_of(options.data, 0, {}).network))
    how = {name: getattr(options, name) for name in ("method", "data", "epochs", "warmup", "rate")}
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for weight in options.weights:
            key = {**how, "weight": weight, "seed": seed}
            row = searches.row(key, partial(searched, options, data, costs, weight, seed))
            rows.append({"cells": f"found at weight {weight:g}", **row})
            print({name: row[name] for name in ("weight", "seed", "expected", "largest", "real")}, flush=True)
    space, rng = get_space(SPACE), np.random.default_rng(0)
    drawn: list[str] = []
    while len(drawn) < options.random:
        name = space.encode(space.canonical(space.sample(rng)))
        if "none" not in name and name not in drawn:
            drawn.append(name)
    others = {"without a convolution": ["skip_connect"], "six convolutions": ["nor_conv_3x3"]}
    named = {kind: [CELL.format(operation) for operation in listed] for kind, listed in others.items()}
    for kind, cells in {**named, "random": drawn}.items():
        rows += [{"cells": kind, "architecture": cell, "real": costs(cell)["flops"]} for cell in cells]
    for row in rows:
        cell = space.encode(space.canonical(space.decode(row["architecture"])))
        of_seeds = [
            training_runs.row(
                {"data": options.data, "seed": seed, "cell": cell},
                partial(trained, settings_of(options.data, seed, {}), cell, seed),
            )
            for seed in range(TRAININGS)
        ]
        row["accuracy"] = float(np.mean([row_of_seed["test_accuracy"] for row_of_seed in of_seeds]))
    columns = ["expected", "largest", "real", "shared accuracy", "accuracy"]
    table = pd.DataFrame(rows).groupby("cells", sort=False)[columns].agg(["mean", "min", "max"])
    with pd.option_context("display.width", 250, "display.max_columns", None):
        print(table.round(3).to_string())


if __name__ == "__main__":
    main()
